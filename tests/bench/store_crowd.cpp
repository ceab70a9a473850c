#include "tests/bench/store_crowd.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace cpprun::bench {
namespace {

constexpr std::size_t kLongestReply = 64 * 1024;

[[noreturn]] void fail(const char* what) {
  std::perror(what);
  std::exit(1);
}

}  // namespace

Crowd::Crowd(const char* host, int port)
    : host_(host), port_(port), epoll_(::epoll_create1(EPOLL_CLOEXEC)), input_(kLongestReply) {
  if (epoll_ < 0) fail("epoll_create1");
}

Crowd::~Crowd() {
  for (const Connection& connection : connections_) ::close(connection.fd);
  ::close(epoll_);
}

std::size_t Crowd::connect(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  const int on = 1;
  // Ended by a reset: thousands of ports in TIME_WAIT would be missing in the next run.
  const linger at_once{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port == 0 ? port_ : port));
  if (::inet_pton(AF_INET, host_, &address.sin_addr) != 1) fail(host_);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fail("connect");
  epoll_event event{.events = EPOLLIN, .data = {.u64 = connections_.size()}};
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) fail("epoll_ctl");
  connections_.push_back({fd});
  return connections_.size() - 1;
}

void Crowd::send(std::size_t number, std::string_view request, std::size_t reply_size) {
  expect(number, reply_size);
  const ssize_t sent = ::send(connections_[number].fd, request.data(), request.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(request.size())) fail("send");
}

void Crowd::expect(std::size_t number, std::size_t reply_size) {
  Connection& connection = connections_[number];
  if (reply_size != connection.low_water) {
    const int bytes = static_cast<int>(reply_size);
    if (::setsockopt(connection.fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof bytes) != 0) fail("SO_RCVLOWAT");
    connection.low_water = reply_size;
  }
  connection.expected = reply_size;
  ++outstanding_;
}

int Crowd::wait(std::chrono::milliseconds patience) {
  const int ready = ::epoll_wait(epoll_, events_.data(), static_cast<int>(events_.size()),
                                 static_cast<int>(patience.count()));
  if (ready < 0) fail("epoll_wait");
  return ready;
}

// A whole answer.
std::string_view Crowd::receive(std::size_t number) {
  Connection& connection = connections_[number];
  const ssize_t read = ::recv(connection.fd, input_.data(), input_.size(), MSG_DONTWAIT);
  if (read <= 0) fail("the server has closed a connection");
  if (static_cast<std::size_t>(read) != connection.expected) fail("an answer of another size than expected");
  connection.expected = 0;
  --outstanding_;
  return {input_.data(), static_cast<std::size_t>(read)};
}

}  // namespace cpprun::bench
