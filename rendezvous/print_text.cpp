#include "rendezvous/print_text.hpp"

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace cpprun::rendezvous {

bool print_text(const std::string& text) {
  errno = 0;
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return true;
  if (errno == EPIPE) return false;
  throw std::system_error(errno, std::generic_category(), "cannot write to stdout");
}

}  // namespace cpprun::rendezvous
