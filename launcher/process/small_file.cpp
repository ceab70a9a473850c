#include "launcher/process/small_file.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace cpprun::launcher {

std::string read_small_file(const std::string& path, std::size_t most) {
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  char buffer[16 * 1024];
  ssize_t n;
  while (text.size() < most && (n = ::read(fd, buffer, sizeof buffer)) > 0) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  ::close(fd);
  if (text.size() > most) text.resize(most);
  return text;
}

}  // namespace cpprun::launcher
