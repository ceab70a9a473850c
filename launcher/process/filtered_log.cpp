#include "launcher/process/filtered_log.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace cpprun::launcher {

FilteredLog::FilteredLog(const std::string& path, const std::vector<std::string>& needles)
    : path_(path),
      needles_(needles),
      fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644)) {
  if (fd_ < 0) throw std::system_error(errno, std::generic_category(), "cannot open the log file " + path);
}

FilteredLog::~FilteredLog() {
  if (fd_ >= 0) ::close(fd_);
}

void FilteredLog::append(std::string_view lines) {
  while (!lines.empty() && fd_ >= 0) {
    const ssize_t n = ::write(fd_, lines.data(), lines.size());
    if (n > 0) lines.remove_prefix(static_cast<std::size_t>(n));
    if (n >= 0 || errno == EINTR) continue;
    spdlog::error("cannot write the log file {}: {}; it gets no further lines", path_,
                  std::generic_category().message(errno));
    ::close(fd_);
    fd_ = -1;
  }
}

}  // namespace cpprun::launcher
