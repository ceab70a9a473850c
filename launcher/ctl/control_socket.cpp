#include "launcher/ctl/control_socket.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <system_error>

namespace cpprun::launcher {
namespace {

constexpr int kBacklog = 64;

[[noreturn]] void refuse(const std::filesystem::path& folder) {
  throw std::system_error(errno, std::generic_category(), (folder / kControlSocket).string());
}

// An address holds 107 characters; a longer path is reached through the open folder, which must stay open
// while the address is used.
struct Address {
  sockaddr_un bytes{};
  FileDescriptor folder;
};

Address address_in(const std::filesystem::path& folder) {
  Address address;
  address.bytes.sun_family = AF_UNIX;
  std::string path = (folder / kControlSocket).string();
  if (path.size() >= sizeof address.bytes.sun_path) {
    address.folder = FileDescriptor(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!address.folder.valid()) refuse(folder);
    path = "/proc/self/fd/" + std::to_string(address.folder.get()) + "/" + kControlSocket;
  }
  std::memcpy(address.bytes.sun_path, path.c_str(), path.size() + 1);
  return address;
}

const sockaddr* generic(const Address& address) {
  return reinterpret_cast<const sockaddr*>(&address.bytes);
}

}  // namespace

FileDescriptor listen_at(const std::filesystem::path& folder) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) refuse(folder);
  const Address address = address_in(folder);
  // Before bind(2), so that the file never has another mode, whatever the umask.
  if (::fchmod(socket.get(), 0600) != 0) refuse(folder);
  if (::bind(socket.get(), generic(address), sizeof address.bytes) != 0) refuse(folder);
  if (::listen(socket.get(), kBacklog) != 0) refuse(folder);
  return socket;
}

FileDescriptor connect_to(const std::filesystem::path& folder, std::chrono::milliseconds patience) {
  FileDescriptor socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) refuse(folder);
  const timeval limit{static_cast<time_t>(patience.count() / 1000),
                      static_cast<suseconds_t>(patience.count() % 1000 * 1000)};
  for (const int direction : {SO_RCVTIMEO, SO_SNDTIMEO}) {
    if (::setsockopt(socket.get(), SOL_SOCKET, direction, &limit, sizeof limit) != 0) refuse(folder);
  }
  const Address address = address_in(folder);
  if (::connect(socket.get(), generic(address), sizeof address.bytes) != 0) refuse(folder);
  return socket;
}

bool peer_is_trusted(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == 0 || peer.uid == ::geteuid();
}

}  // namespace cpprun::launcher
