#include "launcher/process/patient_write.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace cpprun::launcher {
std::size_t write_patiently(int fd, std::string_view text, std::chrono::milliseconds patience) {
  std::size_t done = 0;
  while (done < text.size()) {
    pollfd ready{fd, POLLOUT, 0};
    const int polled = ::poll(&ready, 1, static_cast<int>(patience.count()));
    if (polled == 0) break;
    if (polled < 0 && errno != EINTR) return text.size();
    if (polled < 0) continue;
    const ssize_t n = ::write(fd, text.data() + done, std::min(kPipeAtomic, text.size() - done));
    if (n > 0) done += static_cast<std::size_t>(n);
    if (n < 0 && errno != EINTR && errno != EAGAIN) return text.size();
  }
  return done;
}

}  // namespace cpprun::launcher
