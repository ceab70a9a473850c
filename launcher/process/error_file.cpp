#include "launcher/process/error_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cpprun::launcher {
namespace {

constexpr off_t kLongestErrorFile = 4 * 1024 * 1024;

}  // namespace

std::optional<std::string> read_error_file(const std::string& path) {
  if (path.empty()) return std::nullopt;
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::optional<std::string> text;
  struct stat about {};
  if (::fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size <= kLongestErrorFile) {
    text.emplace(static_cast<std::size_t>(about.st_size), '\0');
    const ssize_t n = ::pread(fd, text->data(), text->size(), 0);
    text->resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  }
  ::close(fd);
  return text;
}

}  // namespace cpprun::launcher
