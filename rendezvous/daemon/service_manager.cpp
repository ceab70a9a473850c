#include "rendezvous/daemon/service_manager.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <system_error>

namespace cpprun::rendezvous {
namespace {

constexpr int kFirstSocket = 3;  // sd_listen_fds(3)
constexpr int kMostSockets = 16;

std::optional<int> number_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (!text) return std::nullopt;
  int number = 0;
  const char* end = text + std::strlen(text);
  const std::from_chars_result read = std::from_chars(text, end, number);
  if (read.ec != std::errc() || read.ptr != end || number < 0) {
    throw std::invalid_argument(std::string(variable) + "='" + text + "' is no number");
  }
  return number;
}

bool listens(int fd) {
  int yes = 0;
  socklen_t size = sizeof yes;
  return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &yes, &size) == 0 && yes != 0;
}

}  // namespace

std::vector<int> take_listening_sockets() {
  std::vector<int> sockets;
  const std::optional<int> count = number_of("LISTEN_FDS");
  const std::optional<int> pid = number_of("LISTEN_PID");
  if (!count || pid != ::getpid()) return sockets;
  if (*count > kMostSockets)
    throw std::invalid_argument("LISTEN_FDS passes more sockets than cpprund can use");
  for (int fd = kFirstSocket; fd < kFirstSocket + *count; ++fd) {
    if (!listens(fd)) {
      throw std::invalid_argument(
          "descriptor " + std::to_string(fd) +
          " of LISTEN_FDS is not a listening socket: is it ListenStream= in the unit?");
    }
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    sockets.push_back(fd);
  }
  for (const char* variable : {"LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"}) ::unsetenv(variable);
  return sockets;
}

void notify_service_manager(const std::string& state) {
  const char* path = std::getenv("NOTIFY_SOCKET");
  if (!path || (path[0] != '/' && path[0] != '@')) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::size_t length = std::strlen(path);
  if (length >= sizeof address.sun_path) return;
  std::memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = '\0';  // the abstract namespace
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const socklen_t size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length);
  const ssize_t sent = ::sendto(fd, state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                                reinterpret_cast<const sockaddr*>(&address), size);
  if (sent < 0) spdlog::warn("cannot tell the service manager '{}': {}", state, std::strerror(errno));
  ::close(fd);
}

void announce_ports(int fd, const std::vector<std::uint16_t>& ports) {
  std::string text;
  for (const std::uint16_t port : ports) text += std::to_string(port) + "\n";
  std::size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = ::write(fd, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      throw std::system_error(errno, std::system_category(),
                              "--ready-fd: cannot write to descriptor " + std::to_string(fd));
    }
    written += static_cast<std::size_t>(n);
  }
  if (fd > STDERR_FILENO) ::close(fd);
}

}  // namespace cpprun::rendezvous
