// How sockets are opened, and their options. On a listening socket the options hold for the connections that
// it accepts.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cerrno>
#include <system_error>

#include "rendezvous/async/tokens.hpp"

namespace cpprun::store {

// A peer whose host vanished without a word is noticed after two minutes.
inline void keep_alive(int socket) {
  const auto set = [socket](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 60);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 20);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

// Requests and replies are small and leave at once.
inline void no_delay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Of a client. Opened here rather than by Asio, which would let children inherit the descriptor. Throws
// std::system_error.
inline asio::ip::tcp::socket open_socket(const asio::any_io_executor& executor,
                                         const asio::ip::tcp::endpoint& endpoint) {
  asio::ip::tcp::socket socket(executor);
  const int fd =
      ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
  if (fd < 0) throw std::system_error(errno, std::system_category(), "socket");
  socket.assign(endpoint.protocol(), fd);
  no_delay(fd);
  return socket;
}

}  // namespace cpprun::store
