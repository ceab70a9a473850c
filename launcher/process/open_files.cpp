#include "launcher/process/open_files.hpp"

#include <cerrno>
#include <system_error>

namespace cpprun::launcher {

rlimit raise_open_files() {
  rlimit before{};
  if (::getrlimit(RLIMIT_NOFILE, &before) != 0) {
    throw std::system_error(errno, std::generic_category(), "getrlimit(RLIMIT_NOFILE)");
  }
  const rlimit raised{.rlim_cur = before.rlim_max, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return before;
}

}  // namespace cpprun::launcher
