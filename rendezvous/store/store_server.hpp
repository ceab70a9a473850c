// The store on the network: speaks the protocol of PROTOCOL.md to any number of clients, LibTorch's TCPStore
// among them, on one thread.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "rendezvous/async/tokens.hpp"
#include "rendezvous/store/request_handler.hpp"
#include "rendezvous/store/run_desk.hpp"
#include "rendezvous/store/server_config.hpp"
#include "rendezvous/store/store_use.hpp"

namespace cpprun::store {

// A listening socket on `address`, or on every interface (IPv6 and IPv4) without one; port 0 lets the kernel
// choose. Throws std::system_error whose text names the address and port.
asio::ip::tcp::acceptor bind_acceptor(asio::io_context& context,
                                      const std::optional<asio::ip::address>& address, std::uint16_t port);

// One port serves c10d's clients and, where there is a desk for them, cpprun's agents.
class StoreServer {
 public:
  explicit StoreServer(asio::ip::tcp::acceptor acceptor, StoreServerConfig config = {});
  // A server without a table: `handler`, which outlives it, serves.
  StoreServer(asio::ip::tcp::acceptor acceptor, StoreServerConfig config, RequestHandler& handler);
  // Closes what is still open. run() must have returned, or never have started.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Serves until stop() or cancellation; then every connection and the listener are closed. Once only.
  awaitable<void> run();
  void stop();

  // From now on the table is empty, and every connection that has used it is closed. One that has asked for
  // nothing yet may be an agent's. Of a server with a table.
  void start_empty_table();

  // For a handler whose answers come later. Each id is an open client's.
  void deliver(ConnectionId client, std::string_view bytes);
  void close(ConnectionId client, Fault why);
  // Between the two no client is served; what they send waits in their sockets.
  void pause();
  void resume();

  asio::any_io_executor executor() const;
  std::uint16_t port() const;
  std::size_t connections() const;
  StoreUse use() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cpprun::store
