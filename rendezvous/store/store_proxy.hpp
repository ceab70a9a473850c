// A node's way to a store on another node: speaks the store's protocol to the node's workers, and carries
// what they ask over one connection, which a secret may protect although the workers know of none.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rendezvous/async/event.hpp"
#include "rendezvous/async/task_group.hpp"
#include "rendezvous/async/tokens.hpp"
#include "rendezvous/store/host_lookup.hpp"
#include "rendezvous/store/request_handler.hpp"
#include "rendezvous/store/store_client.hpp"
#include "rendezvous/store/store_connection.hpp"
#include "rendezvous/store/store_server.hpp"

namespace cpprun::store {

struct ProxyConfig {
  std::string run;                       // whose stores are behind it
  std::shared_ptr<const Secret> secret;  // of the job; null: none
  ServerLimits limits{};                 // of the clients here
};

// Nothing is kept here: every request is answered by the store. Those that arrive together leave in one
// write, and what it answers in one turn, the wake-ups of many waiters among it, comes back in one. Clients
// that come before the store can be reached wait for it; when the connection to it is lost, all are closed,
// as the store's own would be.
class StoreProxy : private RequestHandler {
 public:
  StoreProxy(asio::ip::tcp::acceptor acceptor, ProxyConfig config);
  ~StoreProxy() override;

  // Serves until cancelled. Once only.
  awaitable<void> run();

  // From now on that store is behind it. Clients of another are closed.
  void lead_to(StoreEndpoint store);

  std::uint16_t port() const { return server_.port(); }
  std::size_t clients() const { return clients_.size(); }  // that have asked for something

 private:
  using Connection = std::unique_ptr<StoreConnection>;

  Fault serve(ConnectionId id, const Request& request, std::string& reply, Wakeups& woken) override;
  bool finish(ConnectionId id) override;
  void forget(ConnectionId id) override;

  awaitable<void> keep_link();
  awaitable<void> carry(async::TaskGroup& tasks);
  awaitable<Connection> connect();
  awaitable<void> speak();
  awaitable<void> listen();
  std::size_t take_frames(std::string_view input);
  void close_clients();
  void put_off();

  ProxyConfig config_;
  StoreServer server_;
  std::optional<StoreEndpoint> store_;
  Connection connection_;             // to it
  async::TaskGroup* link_ = nullptr;  // what uses the connection, or makes it
  async::Event led_;                  // store_ has changed
  HostLookups lookups_;
  struct Client {
    std::uint32_t channel = 0;  // 0: it has asked for nothing
    bool finished = false;      // and the store has been told
  };
  std::vector<Client> by_id_;
  std::unordered_map<std::uint32_t, ConnectionId> clients_;  // by channel
  std::uint32_t last_channel_ = 0;
  std::string outbox_;  // frames to send
  async::Event to_send_;
};

}  // namespace cpprun::store
