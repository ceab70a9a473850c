// The floor of scripts/bench/store: answers the load with as many bytes as a store would, and knows nothing.
// One read and one write for whatever has come, which is what a server of one thread cannot do without.
//
// Usage: store_floor KIND (set-get, get or add, whose sizes are expected; or wake). Prints its port, an
// ephemeral one of 127.0.0.1, and serves until it is killed.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <vector>

#include "tests/bench/store_requests.hpp"

namespace {

using namespace cpprun;

struct Connection {
  bool greeted = false;
  std::size_t bytes = 0;  // of an exchange that is not whole yet
};

int listen_on_loopback() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);  // accepted sockets have it from here
  if (::bind(fd, reinterpret_cast<sockaddr*>(&address), length) != 0 || ::listen(fd, SOMAXCONN) != 0 ||
      ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    std::perror("store_floor: listen");
    std::exit(1);
  }
  std::printf("%d\n", ntohs(address.sin_port));
  std::fflush(stdout);
  return fd;
}

void watch(int epoll, int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

// How many bytes answer what has come with this read.
std::size_t reply_size(Connection& connection, std::size_t read, const bench::Exchange& exchange) {
  std::size_t reply = 0;
  connection.bytes += read;
  if (!connection.greeted && connection.bytes >= bench::kGreeting.size()) {
    connection.greeted = true;
    connection.bytes -= bench::kGreeting.size();
    reply = bench::kGreetingReply;
  }
  if (!connection.greeted) return 0;
  reply += connection.bytes / exchange.request.size() * exchange.reply.size();
  connection.bytes %= exchange.request.size();
  return reply;
}

// A read of the setter wakes everybody else with a byte.
void wake_all(const std::vector<Connection>& connections, int setter) {
  for (std::size_t fd = 0; fd < connections.size(); ++fd) {
    if (connections[fd].greeted && static_cast<int>(fd) != setter)
      ::send(static_cast<int>(fd), "", 1, MSG_NOSIGNAL);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const bool waking = std::string_view(argv[1]) == "wake";
  const bench::Waking wake = bench::waking(0, 0);
  const bench::Exchange exchange = waking
                                       ? bench::Exchange{wake.wait, std::string(bench::kGreetingReply, 0), 1}
                                       : bench::exchange(bench::kind_of(argv[1]), 0, 0);
  const int listener = listen_on_loopback();
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  watch(epoll, listener);
  std::vector<Connection> connections;  // by descriptor
  std::array<epoll_event, 256> events;
  std::vector<char> input(64 * 1024);
  const std::vector<char> output(256 * 1024);
  for (;;) {
    const int ready = ::epoll_wait(epoll, events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < ready; ++i) {
      const int fd = events[i].data.fd;
      if (fd == listener) {
        const int accepted = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (accepted < 0) continue;
        if (connections.size() <= static_cast<std::size_t>(accepted)) connections.resize(accepted + 1);
        connections[accepted] = {};
        watch(epoll, accepted);
        continue;
      }
      ssize_t read = ::recv(fd, input.data(), input.size(), 0);
      if (read <= 0) {
        ::close(fd);
        connections[fd] = {};
        continue;
      }
      if (waking && static_cast<std::size_t>(read) == wake.set.size()) {
        wake_all(connections, fd);
        read = static_cast<ssize_t>(wake.wait.size());  // whose answer is the same
      }
      const std::size_t size = reply_size(connections[fd], static_cast<std::size_t>(read), exchange);
      if (size > 0 && ::send(fd, output.data(), size, MSG_NOSIGNAL) < 0) ::close(fd);
    }
  }
}
