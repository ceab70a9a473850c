// The options of the store's sockets. On a listening socket they hold for the connections it accepts.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

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

}  // namespace cpprun::store
