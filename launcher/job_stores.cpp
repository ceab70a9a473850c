#include "launcher/job_stores.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <system_error>
#include <thread>

#include "launcher/vital_task.hpp"
#include "rendezvous/solo_rendezvous.hpp"
#include "rendezvous/store_rendezvous.hpp"
#include "rendezvous/this_host.hpp"

namespace cpprun::launcher {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
// How long a port may be taken by somebody's passing connection, which nobody listens at.
constexpr std::chrono::seconds kPortPatience(2);
constexpr std::chrono::milliseconds kPortPause(20);

bool is_static(const LaunchConfig& config) {
  return config.rdzv_backend == "static";
}

bool somebody_listens(asio::io_context& io, std::uint16_t port) {
  asio::ip::tcp::socket probe(io);
  boost::system::error_code error;
  probe.connect({asio::ip::make_address(kLoopback), port}, error);
  return !error;
}

}  // namespace

JobStores::JobStores(asio::io_context& io, const LaunchConfig& config) : io_(io), config_(config) {
  if (!config.meets_peers()) {
    std::optional<asio::ip::address> address;  // every interface, unless nobody outside may come
    if (config.standalone) address = asio::ip::address_v4::loopback();
    workers_ = std::make_unique<store::StoreServer>(
        store::bind_acceptor(io, address, config.master_port.value_or(0)));
    return;
  }
  const bool hosts =
      is_static(config)
          ? config.node_rank == 0
          : config.rdzv_limits.is_host.value_or(rendezvous::is_this_host(config.rendezvous_endpoint.host));
  if (hosts && bind_endpoint()) return;
  spdlog::debug("the rendezvous store is another agent's");
}

// False where another agent of this machine serves the endpoint already.
bool JobStores::bind_endpoint() {
  const std::uint16_t port = *config_.rendezvous_endpoint.port;
  const bool inferred = !is_static(config_) && !config_.rdzv_limits.is_host;
  const async::Deadline limit = async::Deadline::after(kPortPatience);
  for (;;) {
    try {
      agents_ =
          std::make_unique<store::StoreServer>(store::bind_acceptor(io_, std::nullopt, port), config_.run_id);
      return true;
    } catch (const std::system_error& error) {
      if (!inferred || error.code() != std::errc::address_in_use) throw;
      if (somebody_listens(io_, port)) return false;
      if (limit.passed()) throw;
    }
    std::this_thread::sleep_for(kPortPause);  // nothing runs on this thread yet
  }
}

void JobStores::serve(async::TaskGroup& tasks) {
  tasks_ = &tasks;
  if (agents_) tasks.start(vital(agents_->run()));
  if (workers_) tasks.start(vital(workers_->run()));
}

std::unique_ptr<rendezvous::RendezvousHandler> JobStores::make_handler() const {
  if (!config_.meets_peers()) {
    return std::make_unique<rendezvous::SoloRendezvous>(io_.get_executor(),
                                                        config_.standalone ? kLoopback : config_.master_addr);
  }
  rendezvous::StoreRendezvousConfig config;
  config.run_id = config_.run_id;
  config.hosts_store = agents_ != nullptr;
  config.host_address = config_.rendezvous_endpoint.host;
  config.endpoint = {agents_ ? kLoopback : config_.rendezvous_endpoint.host,
                     *config_.rendezvous_endpoint.port};
  config.rule = {config_.max_nodes, is_static(config_)};
  config.node.host = config_.local_addr.value_or(rendezvous::host_name());
  config.node.pid = ::getpid();
  config.node.nodes = config_.max_nodes;
  if (is_static(config_) || config_.node_rank > 0) config.node.wished_rank = config_.node_rank;
  config.address = config_.local_addr;
  config.limits = config_.rdzv_limits;
  config.limits.survivor_patience = config_.shutdown_timeout + std::chrono::seconds(5);
  return std::make_unique<rendezvous::StoreRendezvous>(io_.get_executor(), std::move(config));
}

StoreEndpoint JobStores::open_worker_store(const std::string& own_address) {
  if (config_.meets_peers() && is_static(config_)) {
    agents_->start_empty_table();
    return {config_.rendezvous_endpoint.host, agents_->port()};
  }
  if (workers_) {
    workers_->start_empty_table();
  } else {
    workers_ = std::make_unique<store::StoreServer>(store::bind_acceptor(io_, std::nullopt, 0));
    tasks_->start(vital(workers_->run()));
  }
  return {own_address, workers_->port()};
}

std::optional<asio::ip::address> JobStores::reached_at() const {
  return agents_ ? agents_->agents_reach() : std::nullopt;
}

}  // namespace cpprun::launcher
