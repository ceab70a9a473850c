#include "launcher/health/socket_bytes.hpp"

#include <dirent.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <string>

#include "launcher/process/file_descriptor.hpp"

namespace cpprun::launcher {
namespace {

// The kernel answers from memory; should it not, the caller is the agent's only thread.
constexpr timeval kPatience{0, 200'000};
constexpr std::uint32_t kAllStates = ~0U;
// In the kernel's tcp_info, which the C library's header knows in part.
constexpr std::size_t kBytesAcked = 120;
constexpr std::size_t kBytesReceived = 128;

struct Request {
  nlmsghdr header;
  inet_diag_req_v2 body;
};

bool ask(int fd, int family) {
  Request request{};
  request.header.nlmsg_len = sizeof request;
  request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.body.sdiag_family = static_cast<std::uint8_t>(family);
  request.body.sdiag_protocol = IPPROTO_TCP;
  request.body.idiag_ext = 1U << (INET_DIAG_INFO - 1);
  request.body.idiag_states = kAllStates;
  return ::send(fd, &request, sizeof request, 0) == static_cast<ssize_t>(sizeof request);
}

// Of an attribute list, TCP's figures; an older kernel knows fewer of them.
std::uint64_t bytes_in(const nlmsghdr& header) {
  const inet_diag_msg& message = *static_cast<const inet_diag_msg*>(NLMSG_DATA(&header));
  int left = static_cast<int>(header.nlmsg_len - NLMSG_LENGTH(sizeof message));
  const rtattr* attribute = reinterpret_cast<const rtattr*>(&message + 1);
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    if (attribute->rta_type != INET_DIAG_INFO) continue;
    const char* info = static_cast<const char*>(RTA_DATA(attribute));
    std::uint64_t acked = 0;
    std::uint64_t received = 0;
    if (RTA_PAYLOAD(attribute) < kBytesReceived + sizeof received) return 0;
    std::memcpy(&acked, info + kBytesAcked, sizeof acked);
    std::memcpy(&received, info + kBytesReceived, sizeof received);
    return acked + received;
  }
  return 0;
}

// False when the answer is over, or none.
bool take(const char* data, std::size_t size, std::map<std::uint64_t, std::uint64_t>& by_inode, bool& good) {
  std::size_t left = size;
  const nlmsghdr* header = reinterpret_cast<const nlmsghdr*>(data);
  for (; NLMSG_OK(header, left); header = NLMSG_NEXT(header, left)) {
    if (header->nlmsg_type == NLMSG_DONE) return false;
    if (header->nlmsg_type == NLMSG_ERROR || header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg))) {
      good = false;
      return false;
    }
    by_inode[static_cast<const inet_diag_msg*>(NLMSG_DATA(header))->idiag_inode] = bytes_in(*header);
  }
  return true;
}

bool read_answer(int fd, std::map<std::uint64_t, std::uint64_t>& by_inode) {
  alignas(nlmsghdr) char buffer[32 * 1024];
  bool good = true;
  for (;;) {
    const ssize_t size = ::recv(fd, buffer, sizeof buffer, 0);
    if (size <= 0) return false;
    if (!take(buffer, static_cast<std::size_t>(size), by_inode, good)) return good;
  }
}

}  // namespace

bool SocketBytes::refresh() {
  by_inode_.clear();
  const FileDescriptor socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!socket.valid()) return false;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  for (const int family : {AF_INET, AF_INET6}) {
    if (!ask(socket.get(), family) || !read_answer(socket.get(), by_inode_)) return false;
  }
  return true;
}

std::uint64_t SocketBytes::of(pid_t pid) const {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  DIR* entries = ::opendir(folder.c_str());
  if (!entries) return 0;
  std::uint64_t bytes = 0;
  while (const dirent* entry = ::readdir(entries)) {
    char target[64];
    const ssize_t length = ::readlinkat(::dirfd(entries), entry->d_name, target, sizeof target - 1);
    if (length <= 0) continue;
    target[length] = '\0';
    std::uint64_t inode = 0;
    if (std::sscanf(target, "socket:[%" SCNu64 "]", &inode) != 1) continue;
    if (const auto found = by_inode_.find(inode); found != by_inode_.end()) bytes += found->second;
  }
  ::closedir(entries);
  return bytes;
}

}  // namespace cpprun::launcher
