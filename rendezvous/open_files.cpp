#include "rendezvous/open_files.hpp"

#include <cerrno>
#include <system_error>

namespace cpprun::rendezvous {

rlimit open_file_limits() {
  rlimit limits{};
  if (::getrlimit(RLIMIT_NOFILE, &limits) == 0) return limits;
  throw std::system_error(errno, std::generic_category(), "getrlimit(RLIMIT_NOFILE)");
}

void raise_open_file_limit() {
  rlimit limits = open_file_limits();
  limits.rlim_cur = limits.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limits);
}

}  // namespace cpprun::rendezvous
