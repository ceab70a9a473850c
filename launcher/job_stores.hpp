// The stores that this process serves: that of the agents, where it hosts the rendezvous, and that of the
// workers, where it has group rank 0. Several nodes with a given port (static) have both on that one port.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <string>

#include "launcher/launch_config.hpp"
#include "rendezvous/async/task_group.hpp"
#include "rendezvous/council/council.hpp"
#include "rendezvous/leader_link.hpp"
#include "rendezvous/membership.hpp"
#include "rendezvous/rendezvous_handler.hpp"
#include "rendezvous/store/store_proxy.hpp"
#include "rendezvous/store/store_server.hpp"

namespace cpprun::launcher {

class JobStores {
 public:
  // `config` outlives this.
  JobStores(asio::io_context& io, const LaunchConfig& config);
  ~JobStores();

  // Binds what this node is to serve from the start, which it may have to look up the endpoints' names for.
  // Cancel-safe. Throws std::system_error that names a port in use, and RendezvousError where no name was
  // answered for within the limit of connecting.
  awaitable<void> open();

  // After open(): serves until cancelled; further servers are started in `tasks`.
  void serve(async::TaskGroup& tasks);

  // After open(): the rendezvous that fits the configuration.
  std::unique_ptr<rendezvous::RendezvousHandler> make_handler();

  // The workers' store as the workers of this node reach it: at its node, or through the proxy here. No
  // worker of another round is left when it is called.
  rendezvous::StoreEndpoint reach(const rendezvous::StoreEndpoint& workers);

  // Where this process serves the agents: the address of this machine by which other machines' agents came.
  std::optional<asio::ip::address> reached_at() const;

 private:
  struct EtcdParts;

  void meet_in_etcd();
  std::unique_ptr<rendezvous::LeaderLink> make_link(rendezvous::Membership& membership,
                                                    async::Event& changed);
  awaitable<std::optional<bool>> may_serve(std::size_t endpoint, async::Deadline limit);
  awaitable<bool> bind_endpoint(std::size_t endpoint);
  store::StoreServerConfig worker_config() const;
  rendezvous::StoreEndpoint open_worker_store(const std::string& own_address);

  asio::io_context& io_;
  const LaunchConfig& config_;
  async::TaskGroup* tasks_ = nullptr;
  std::unique_ptr<store::RunDesk> desk_;        // of agents_
  std::unique_ptr<store::StoreServer> agents_;  // also the workers' where the rendezvous is static
  std::unique_ptr<store::StoreServer> workers_;
  std::unique_ptr<store::StoreProxy> proxy_;
  rendezvous::StoreEndpoint own_store_;  // of the workers, as the last round's nodes know it; unset: not here
  int own_endpoint_ = -1;                // where agents_ serves, in the list
  std::unique_ptr<rendezvous::Council> council_;
  std::unique_ptr<EtcdParts> etcd_;
};

}  // namespace cpprun::launcher
