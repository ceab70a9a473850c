// Who serves the requests that a server's clients send: the table, or the store behind a proxy.
#pragma once

#include <string>

#include "rendezvous/store/protocol.hpp"
#include "rendezvous/store/store_table.hpp"

namespace cpprun::store {

class RequestHandler {
 public:
  virtual ~RequestHandler() = default;

  // Appends to `reply` what the client is to read now, and to `woken` the other clients whose wait this ends.
  // At a fault the client's connection ends.
  virtual Fault serve(ConnectionId client, const Request& request, std::string& reply, Wakeups& woken) = 0;
  // The client sends nothing more. True: it still gets replies, and its connection is closed when those are
  // through (StoreServer::close).
  virtual bool finish(ConnectionId client) {
    static_cast<void>(client);
    return false;
  }
  // The client is gone; its id may soon be another's.
  virtual void forget(ConnectionId client) = 0;
};

}  // namespace cpprun::store
