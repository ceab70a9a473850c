// The store's end of a link: serves the clients of one node, which come over one connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>

#include "rendezvous/store/session_work.hpp"

namespace cpprun::store {

class LinkEnd {
 public:
  explicit LinkEnd(ConnectionId link) : link_(link) {}

  struct Served {
    std::size_t consumed = 0;   // 0: no frame is whole
    Fault fault = Fault::None;  // of the link
  };
  // Serves the first frame of `input`; replies, and the wake-ups of this link's clients, are appended to the
  // work's reply as frames.
  Served serve_next(std::string_view input, SessionWork& work);

  // All clients are gone.
  void close(SessionWork& work);

 private:
  struct Client {
    ConnectionId id = 0;
    bool closed = false;  // for a fault; what it sent before it heard of that is not served
  };

  Fault serve(std::uint32_t channel, std::string_view bytes, SessionWork& work);
  Client* client(std::uint32_t channel, SessionWork& work);
  void forget(const Client& client, SessionWork& work);
  void tell_woken(SessionWork& work) const;

  ConnectionId link_;
  std::unordered_map<std::uint32_t, Client> clients_;  // by channel
};

// The frame that ends a client's wait.
void put_link_wakeup(std::string& out, std::uint32_t channel);

}  // namespace cpprun::store
