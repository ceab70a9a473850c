// One validated connection of a client to a store server, used for one request at a time.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "rendezvous/store/agent_desk.hpp"
#include "rendezvous/store/store.hpp"

namespace cpprun::store {

class StoreConnection {
 public:
  // One attempt: connect, VALIDATE and PING in one write, the answer; then, where `opening` is given,
  // OPEN of that run, after which the connection carries what its agents say to each other. `name` is the
  // store's in error messages. Throws StoreError: Refused where another service or another run's agent
  // answers, NobodyListens, else Unreachable.
  static awaitable<std::unique_ptr<StoreConnection>> open(asio::ip::tcp::endpoint endpoint, std::string name,
                                                          std::optional<Opening> opening, Deadline deadline);

  // Each throws StoreError(Lost or NoAnswer), after which the connection is of no use.
  awaitable<void> send(std::string_view bytes, Deadline deadline);  // `bytes` must outlive the call
  awaitable<std::string> receive(std::size_t size, Deadline deadline);
  awaitable<std::string> receive_text(Deadline deadline);  // a length and its bytes
  template <typename T>
  awaitable<T> receive_number(Deadline deadline) {
    const std::string bytes = co_await receive(sizeof(T), deadline);
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    co_return value;
  }
  // True when there is something to receive, false at the deadline.
  awaitable<bool> wait_readable(Deadline deadline);

  // Whether an idle connection can carry another request: the peer has neither closed it nor sent anything.
  bool usable();
  std::string local_address() const;  // numeric
  asio::ip::tcp::endpoint peer() const { return peer_; }

 private:
  StoreConnection(asio::ip::tcp::socket socket, asio::ip::tcp::endpoint peer, std::string name)
      : socket_(std::move(socket)), peer_(std::move(peer)), name_(std::move(name)) {}
  awaitable<void> greet(Deadline deadline);
  awaitable<void> open_run(Opening opening, Deadline deadline);
  bool read_some();
  awaitable<bool> wait_socket(asio::ip::tcp::socket::wait_type what, Deadline deadline);

  asio::ip::tcp::socket socket_;
  asio::ip::tcp::endpoint peer_;
  std::string name_;
  std::string received_;  // read and not yet asked for
};

}  // namespace cpprun::store
