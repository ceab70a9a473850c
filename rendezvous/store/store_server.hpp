// The store on the network: speaks the protocol of PROTOCOL.md to any number of clients, LibTorch's TCPStore
// among them, on one thread.
#pragma once

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>

#include "rendezvous/async/tokens.hpp"
#include "rendezvous/store/agent_desk.hpp"
#include "rendezvous/store/protocol.hpp"

namespace cpprun::store {

// A listening socket on `address`, or on every interface (IPv6 and IPv4) without one; port 0 lets the kernel
// choose. Throws std::system_error whose text names the address and port.
asio::ip::tcp::acceptor bind_acceptor(asio::io_context& context,
                                      const std::optional<asio::ip::address>& address, std::uint16_t port);

// What a client may cost; breaking one closes that client's connection with a logged reason.
struct ServerLimits {
  std::chrono::milliseconds unvalidated = kUnvalidatedLifetime;  // from accept to a complete VALIDATE
  std::chrono::milliseconds stalled = kStalledReaderLifetime;    // without taking a byte of a pending reply
  std::size_t reply_bytes = kMaxReplyBytes;                      // of one reply
  std::int64_t keys = std::numeric_limits<std::int64_t>::max();  // of the table
  std::size_t bytes = std::numeric_limits<std::size_t>::max();   // of its keys and values
  // Open at once; at this number the server accepts no more until one ends.
  std::size_t connections = std::numeric_limits<std::size_t>::max();
};

// What a server has done and holds, for those who watch it.
struct StoreUse {
  std::array<std::uint64_t, kLastOp + 1> requests{};  // by opcode
  // Of the time between a read and the sending of its replies: how many took at most kTurnBounds[i].
  static constexpr std::array<std::chrono::microseconds, 8> kTurnBounds{
      std::chrono::microseconds(10),      std::chrono::microseconds(30),
      std::chrono::microseconds(100),     std::chrono::microseconds(300),
      std::chrono::microseconds(1'000),   std::chrono::microseconds(10'000),
      std::chrono::microseconds(100'000), std::chrono::microseconds(1'000'000)};
  std::array<std::uint64_t, kTurnBounds.size()> turns_within{};
  std::uint64_t turns = 0;
  std::chrono::nanoseconds turn_time{};
  std::uint64_t accepted = 0;
  std::uint64_t faults = 0;  // connections closed for one
  std::size_t connections = 0;
  std::size_t waiting = 0;  // connections with an open wait
  std::int64_t keys = 0;
  std::size_t bytes = 0;  // of keys and values, queues' included
};

struct StoreServerConfig {
  AgentDesk* desk = nullptr;    // answers OPEN; null: nobody does. Outlives the server
  bool torchrun_agents = true;  // may meet here, as clients; else theirs are closed with a warning
  ServerLimits limits;
};

// One port serves c10d's clients and, where there is a desk for them, cpprun's agents.
class StoreServer {
 public:
  explicit StoreServer(asio::ip::tcp::acceptor acceptor, StoreServerConfig config = {});
  // Closes what is still open. run() must have returned, or never have started.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Serves until stop() or cancellation; then every connection and the listener are closed. Once only.
  awaitable<void> run();
  void stop();

  // From now on the table is empty, and every connection that has used it is closed. One that has asked for
  // nothing yet may be an agent's.
  void start_empty_table();

  std::uint16_t port() const;
  std::size_t connections() const;
  StoreUse use() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cpprun::store
