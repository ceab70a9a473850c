// A store server on 127.0.0.1 in a thread of its own, and a plain blocking client of it, for tests.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/store/store_server.hpp"
#include "tests/unit/rendezvous/request_bytes.hpp"

namespace cpprun::store {

class ServerThread {
 public:
  explicit ServerThread(ServerLimits limits = {})
      : server_(bind_acceptor(context_, asio::ip::address_v4::loopback(), 0),
                StoreServerConfig{.limits = limits}),
        tasks_(context_.get_executor()) {
    tasks_.start(server_.run());
    thread_ = std::thread([this] { context_.run(); });
  }
  ~ServerThread() { stop(); }
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;

  void stop() {
    if (!thread_.joinable()) return;
    asio::post(context_, [this] { server_.stop(); });
    thread_.join();
  }
  void start_empty_table() {
    in_thread([this] { server_.start_empty_table(); });
  }
  std::size_t connections() {
    std::size_t count = 0;
    in_thread([this, &count] { count = server_.connections(); });
    return count;
  }
  std::uint16_t port() const { return server_.port(); }

 private:
  void in_thread(const std::function<void()>& work) {
    std::packaged_task<void()> task(work);
    std::future<void> done = task.get_future();
    asio::post(context_, [&task] { task(); });
    done.get();
  }

  asio::io_context context_{1};
  StoreServer server_;
  async::TaskGroup tasks_;
  std::thread thread_;
};

// Blocking; a test whose server never answers is ended by ctest's time limit.
class RawClient {
 public:
  RawClient() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  explicit RawClient(std::uint16_t port) : RawClient() { connect(port); }
  // With a first request, so that the server has accepted it when this returns.
  static RawClient validated(std::uint16_t port) {
    RawClient client(port);
    client.send(validate_bytes());
    client.expect_nothing_pending();
    return client;
  }
  RawClient(RawClient&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~RawClient() {
    if (fd_ >= 0) ::close(fd_);
  }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  void connect(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0)
        << std::strerror(errno);
  }
  // A server that has closed the connection is noticed when receiving.
  void send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0) return;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  // Fewer bytes only if the connection ended.
  std::string receive(std::size_t size) {
    std::string bytes(size, '\0');
    const ssize_t n = ::recv(fd_, bytes.data(), size, MSG_WAITALL);
    bytes.resize(n < 0 ? 0 : static_cast<std::size_t>(n));
    return bytes;
  }
  std::string ask(std::string_view request, std::size_t reply_size) {
    send(request);
    return receive(reply_size);
  }
  bool closed_by_peer() { return receive(1).empty(); }
  // Everything asked for so far was served, and nothing but the answer to this ping came.
  void expect_nothing_pending() {
    const std::uint32_t nonce = 0x01020304;
    EXPECT_EQ(ask(ping_bytes(nonce), sizeof nonce), number_bytes(nonce));
  }
  void close_sending() { ::shutdown(fd_, SHUT_WR); }
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace cpprun::store
