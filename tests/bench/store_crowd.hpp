// Many connections to one store, on raw sockets and one thread, at little cost: the load generator of
// scripts/bench/store must not be what limits a server.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace cpprun::bench {

using Clock = std::chrono::steady_clock;

// The kernel reports a connection only once all bytes of its answer are there (SO_RCVLOWAT), so an answer
// costs one read however many pieces the server sends it in. Ends the process where a server closes a
// connection, or a socket fails: a benchmark has nothing to go on with.
class Crowd {
 public:
  Crowd(const char* host, int port);
  ~Crowd();
  Crowd(const Crowd&) = delete;
  Crowd& operator=(const Crowd&) = delete;

  // Connects one more, to another port of the host where one is given; its number.
  std::size_t connect(int port = 0);
  std::size_t size() const { return connections_.size(); }

  // Sends a request whose answer is of that many bytes, more than none.
  void send(std::size_t number, std::string_view request, std::size_t reply_size);
  // The answer is one more byte than those that have already been asked for and received.
  void expect(std::size_t number, std::size_t reply_size);
  std::size_t outstanding() const { return outstanding_; }  // connections that wait for an answer

  // Waits for answers and calls on_reply(number, bytes) for each that is whole; how many there were, 0 where
  // none came in time. on_reply may send.
  template <typename OnReply>
  std::size_t collect(std::chrono::milliseconds patience, OnReply on_reply) {
    const int ready = wait(patience);
    std::size_t replies = 0;
    for (int i = 0; i < ready; ++i) {
      const std::size_t number = events_[i].data.u64;
      const std::string_view reply = receive(number);
      if (reply.empty()) continue;
      ++replies;
      on_reply(number, reply);
    }
    return replies;
  }

 private:
  struct Connection {
    int fd;
    std::size_t expected = 0;   // bytes of the answer
    std::size_t low_water = 1;  // SO_RCVLOWAT
  };

  int wait(std::chrono::milliseconds patience);
  std::string_view receive(std::size_t number);

  const char* host_;
  int port_;
  int epoll_;
  std::vector<Connection> connections_;
  std::size_t outstanding_ = 0;
  std::array<epoll_event, 1024> events_;
  std::vector<char> input_;
};

}  // namespace cpprun::bench
