// One validated connection of a client to a store server, used for one request at a time.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "rendezvous/store/agent_desk.hpp"
#include "rendezvous/store/byte_stream.hpp"
#include "rendezvous/store/protocol.hpp"
#include "rendezvous/store/secret.hpp"
#include "rendezvous/store/store.hpp"

namespace cpprun::store {

// A proxy's.
struct Linking {
  std::string run;
};

// What a connection is for.
struct ConnectionPurpose {
  // Nothing more: requests of one client. Else OPEN or LINK follows, after which the connection carries what
  // agents say to each other, or frames (link_frames.hpp).
  std::variant<std::monostate, Opening, Linking> use{};
  std::shared_ptr<const Secret> secret{};  // of the job; null: none
};

class StoreConnection {
 public:
  // One attempt: connect, VALIDATE and PING in one write, the answer, and what the purpose asks for. `name`
  // is the store's in error messages. Throws StoreError: Refused where another service or another run's agent
  // answers or the secret is another, NobodyListens, else Unreachable.
  static awaitable<std::unique_ptr<StoreConnection>> open(asio::ip::tcp::endpoint endpoint, std::string name,
                                                          ConnectionPurpose purpose, Deadline deadline);

  // Each throws StoreError(Lost or NoAnswer), after which the connection is of no use.
  awaitable<void> send(std::string_view bytes, Deadline deadline);  // `bytes` must outlive the call
  awaitable<std::string> receive(std::size_t size, Deadline deadline);
  awaitable<std::string> receive_text(Deadline deadline);  // a length and its bytes
  awaitable<std::string> receive_some();                   // what there is; waits for the first byte
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
  StoreConnection(asio::ip::tcp::socket socket, ByteStream stream, asio::ip::tcp::endpoint peer,
                  std::string name)
      : socket_(std::move(socket)),
        stream_(std::move(stream)),
        peer_(std::move(peer)),
        name_(std::move(name)) {}
  awaitable<void> greet(Deadline deadline);
  awaitable<void> open_run(Opening opening, Deadline deadline);
  awaitable<void> open_link(Linking link, Deadline deadline);
  awaitable<std::uint8_t> ask(const Request& request, const char* else_there, Deadline deadline);
  bool read_some();
  StoreError broken();
  awaitable<bool> wait_socket(Deadline deadline);

  asio::ip::tcp::socket socket_;
  ByteStream stream_;  // over socket_
  asio::ip::tcp::endpoint peer_;
  std::string name_;
  std::string received_;  // read and not yet asked for
};

}  // namespace cpprun::store
