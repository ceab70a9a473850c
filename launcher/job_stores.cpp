#include "launcher/job_stores.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <system_error>

#include "launcher/vital_task.hpp"
#include "rendezvous/council/council_link.hpp"
#include "rendezvous/duration_text.hpp"
#include "rendezvous/dynamic_rendezvous.hpp"
#include "rendezvous/etcd/etcd_council.hpp"
#include "rendezvous/etcd/etcd_link.hpp"
#include "rendezvous/solo_rendezvous.hpp"
#include "rendezvous/store/host_lookup.hpp"
#include "rendezvous/this_host.hpp"

namespace cpprun::launcher {
namespace {

constexpr char kLoopback[] = "127.0.0.1";
// How long a port may be taken by somebody's passing connection, which nobody listens at.
constexpr std::chrono::seconds kPortPatience(2);
constexpr std::chrono::milliseconds kPortPause(20);
// How often one that waits for a name says so.
constexpr std::chrono::seconds kSayEvery(10);
constexpr char kEtcdPrefix[] = "/torchelastic/p2p";  // torchrun's
// Of one request to etcd.
constexpr std::chrono::milliseconds kLeastEtcdLimit(500);
constexpr std::chrono::milliseconds kMostEtcdLimit(3000);

bool is_static(const LaunchConfig& config) {
  return config.rdzv_backend == "static";
}

bool is_etcd(const LaunchConfig& config) {
  return config.rdzv_backend == "etcd";
}

std::vector<store::StoreEndpoint> endpoints(const LaunchConfig& config) {
  std::vector<store::StoreEndpoint> endpoints;
  for (const rendezvous::Endpoint& endpoint : config.endpoints)
    endpoints.push_back({endpoint.host, *endpoint.port});
  return endpoints;
}

rendezvous::CoordinatorRules rules(const LaunchConfig& config) {
  rendezvous::CoordinatorRules rules;
  rules.round = {config.min_nodes, config.max_nodes, is_static(config)};
  rules.max_restarts = config.max_restarts;
  rules.last_call = config.rdzv_limits.last_call;
  rules.death_limit = config.rdzv_limits.death_limit();
  rules.stop_margin = config.rdzv_limits.stop_margin();
  // In etcd one is elected, and nobody is who cannot reach it.
  rules.endpoints = is_etcd(config) ? 1 : static_cast<int>(config.endpoints.size());
  return rules;
}

bool somebody_listens(asio::io_context& io, std::uint16_t port) {
  asio::ip::tcp::socket probe(io);
  boost::system::error_code error;
  probe.connect({asio::ip::make_address(kLoopback), port}, error);
  return !error;
}

// Once, by the nodes that others reach.
void warn_of_open_stores(const LaunchConfig& config) {
  if (config.max_nodes == 1 || config.secret) return;
  spdlog::warn(
      "the stores of this run answer whoever reaches them, as torchrun's do; where the network is not yours "
      "alone, give --secret-file on every node");
}

std::string etcd_prefix(const LaunchConfig& config) {
  const auto given = config.rdzv_settings.find("etcd_prefix");
  return given == config.rdzv_settings.end() ? kEtcdPrefix : given->second;
}

// An endpoint that does not answer is left for the next one while the lease holds.
rendezvous::EtcdOptions etcd_options(const LaunchConfig& config) {
  const std::chrono::milliseconds death_limit = config.rdzv_limits.death_limit();
  rendezvous::EtcdOptions options = rendezvous::etcd_options_of(config.rdzv_settings);
  options.request_limit = std::clamp(death_limit / 3, kLeastEtcdLimit, kMostEtcdLimit);
  options.silence_limit = std::max(death_limit, kLeastEtcdLimit);
  return options;
}

std::vector<rendezvous::EtcdEndpoint> etcd_endpoints(const LaunchConfig& config) {
  std::vector<rendezvous::EtcdEndpoint> endpoints;
  for (const rendezvous::Endpoint& endpoint : config.endpoints)
    endpoints.push_back({endpoint.host, *endpoint.port});
  return endpoints;
}

}  // namespace

struct JobStores::EtcdParts {
  EtcdParts(asio::any_io_executor executor, const LaunchConfig& config)
      : keys(rendezvous::keys_of(etcd_prefix(config), config.run_id)),
        client(etcd_endpoints(config), etcd_options(config)),
        session(executor, client, {config.rdzv_limits.death_limit(), config.rdzv_limits.keep_alive_interval}),
        council(executor,
                {rendezvous::host_name() + " (pid " + std::to_string(::getpid()) + ")", keys, rules(config)},
                client, session) {}

  rendezvous::EtcdKeys keys;
  rendezvous::EtcdClient client;
  rendezvous::EtcdSession session;
  rendezvous::EtcdCouncil council;
};

JobStores::~JobStores() = default;

JobStores::JobStores(asio::io_context& io, const LaunchConfig& config) : io_(io), config_(config) {}

awaitable<void> JobStores::open() {
  warn_of_open_stores(config_);
  if (!config_.meets_peers()) {
    std::optional<asio::ip::address> address;  // every interface, unless nobody outside may come
    if (config_.keeps_to_itself()) address = asio::ip::address_v4::loopback();
    workers_ = std::make_unique<store::StoreServer>(
        store::bind_acceptor(io_, address, config_.master_port.value_or(0)));
    co_return;
  }
  if (is_etcd(config_)) {
    meet_in_etcd();
    co_return;
  }
  const std::size_t count = config_.endpoints.size();
  const std::chrono::milliseconds limit =
      std::min(config_.rdzv_limits.connect_timeout, config_.rdzv_limits.join_timeout);
  std::size_t unknown = 0;
  for (std::size_t i = 0; i < count && !agents_; ++i) {
    const std::optional<bool> own = co_await may_serve(i, async::Deadline::after(limit / count));
    unknown += own ? 0 : 1;
    if (!own.value_or(false)) continue;
    const bool bound = co_await bind_endpoint(i);
    if (bound) own_endpoint_ = static_cast<int>(i);
  }
  if (unknown == count) {
    throw rendezvous::RendezvousError(
        rendezvous::RendezvousError::Kind::Timeout,
        "timed out: no name server answered for " + config_.endpoints.front().host + " within " +
            rendezvous::seconds_text(limit) + "; see /etc/resolv.conf, or give --rdzv-endpoint an address");
  }
  if (!agents_) {
    spdlog::debug("the rendezvous is served by other agents");
    co_return;
  }
  rendezvous::CouncilConfig council{config_.run_id, endpoints(config_), rules(config_), config_.secret};
  council.rules.own_endpoint = own_endpoint_;
  council_ = std::make_unique<rendezvous::Council>(io_.get_executor(), std::move(council), *desk_);
}

void JobStores::meet_in_etcd() {
  try {
    etcd_ = std::make_unique<EtcdParts>(io_.get_executor(), config_);
  } catch (const rendezvous::SettingsError& error) {
    throw UsageError(name_of("--rdzv-conf", config_) + ": " + error.what());
  }
}

// Whether other agents look for this one at the endpoint; nothing if that could not be found out in time.
awaitable<std::optional<bool>> JobStores::may_serve(std::size_t endpoint, async::Deadline limit) {
  if (is_static(config_)) co_return config_.node_rank == 0;
  if (config_.rdzv_limits.is_host && (endpoint == 0 || !*config_.rdzv_limits.is_host)) {
    co_return *config_.rdzv_limits.is_host;
  }
  const std::string& name = config_.endpoints[endpoint].host;
  const std::optional<bool> known = rendezvous::is_this_host(name);
  if (known) co_return known;
  store::HostLookups lookups;
  for (;;) {
    const async::Deadline say = async::Deadline::earlier(limit, async::Deadline::after(kSayEvery));
    const store::HostAddresses host = co_await lookups.look_up(name, 0, say);
    if (host.answered) {
      co_return std::any_of(
          host.endpoints.begin(), host.endpoints.end(),
          [](const asio::ip::tcp::endpoint& at) { return rendezvous::is_own_address(at.address()); });
    }
    if (limit.passed()) co_return std::nullopt;
    spdlog::info("rendezvous: waiting for a name server's answer for {}, up to {} more", name,
                 rendezvous::seconds_text(limit.remaining()));
  }
}

// False where another agent of this machine serves the endpoint already.
awaitable<bool> JobStores::bind_endpoint(std::size_t endpoint) {
  const std::uint16_t port = *config_.endpoints[endpoint].port;
  const bool inferred = !is_static(config_) && !config_.rdzv_limits.is_host;
  const async::Deadline limit = async::Deadline::after(kPortPatience);
  asio::steady_timer timer(io_);
  for (;;) {
    try {
      desk_ = std::make_unique<store::RunDesk>(io_.get_executor(), config_.run_id);
      store::StoreServerConfig config = worker_config();
      config.desk = desk_.get();
      config.torchrun_agents = false;
      agents_ = std::make_unique<store::StoreServer>(store::bind_acceptor(io_, std::nullopt, port), config);
      co_return true;
    } catch (const std::system_error& error) {
      if (!inferred || error.code() != std::errc::address_in_use) throw;
      if (somebody_listens(io_, port)) co_return false;
      if (limit.passed()) throw;
    }
    timer.expires_after(kPortPause);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

void JobStores::serve(async::TaskGroup& tasks) {
  tasks_ = &tasks;
  if (agents_) tasks.start(vital(agents_->run()));
  if (workers_) tasks.start(vital(workers_->run()));
  if (council_) tasks.start(vital(council_->run()));
  if (etcd_) tasks.start(vital(etcd_->council.run()));
}

std::unique_ptr<rendezvous::RendezvousHandler> JobStores::make_handler() {
  const rendezvous::OpenWorkerStore open_store = [this](const std::string& own_address) {
    return open_worker_store(own_address);
  };
  if (!config_.meets_peers()) {
    return std::make_unique<rendezvous::SoloRendezvous>(
        config_.keeps_to_itself() ? kLoopback : config_.master_addr, config_.nproc_per_node,
        config_.max_restarts, open_store);
  }
  rendezvous::DynamicRendezvousConfig config;
  config.node.host = config_.local_addr.value_or(rendezvous::host_name());
  config.node.pid = ::getpid();
  config.node.min_nodes = config_.min_nodes;
  config.node.max_nodes = config_.max_nodes;
  if (is_static(config_) || config_.node_rank > 0) config.node.wished_rank = config_.node_rank;
  config.node.address = config_.local_addr.value_or("");
  config.node.role = config_.role;
  config.node.workers = config_.nproc_per_node;
  config.node.rules = rendezvous::to_json(rules(config_));
  config.limits = config_.rdzv_limits;
  config.where = meeting_points(config_);
  config.open_store = open_store;
  config.replaceable_leader = etcd_ || config_.endpoints.size() > 1;
  config.may_rejoin = config_.min_nodes < config_.max_nodes || config_.max_restarts > 0;
  config.farewell = council_.get();
  if (etcd_) {
    config.farewell = &etcd_->council;
    config.nobody = "etcd did not answer";
    config.leader = "etcd";
  }
  return std::make_unique<rendezvous::DynamicRendezvous>(
      io_.get_executor(), std::move(config),
      [this](rendezvous::Membership& membership, async::Event& changed) {
        return make_link(membership, changed);
      });
}

std::unique_ptr<rendezvous::LeaderLink> JobStores::make_link(rendezvous::Membership& membership,
                                                             async::Event& changed) {
  if (etcd_) {
    const rendezvous::EtcdLinkConfig link{etcd_->keys, config_.local_addr.has_value()};
    return std::make_unique<rendezvous::EtcdLink>(io_.get_executor(), link, etcd_->client, etcd_->session,
                                                  membership, changed);
  }
  if (council_) council_->watch(membership);
  rendezvous::CouncilLinkConfig link;
  link.opening = {config_.run_id, rendezvous::to_json(rules(config_))};
  link.secret = config_.secret;
  link.endpoints = endpoints(config_);
  link.own_endpoint = own_endpoint_;
  link.fixed_address = config_.local_addr.has_value();
  link.interval = config_.rdzv_limits.keep_alive_interval;
  link.death_limit = config_.rdzv_limits.death_limit();
  return std::make_unique<rendezvous::CouncilLink>(io_.get_executor(), link, membership, changed);
}

rendezvous::StoreEndpoint JobStores::open_worker_store(const std::string& own_address) {
  if (config_.meets_peers() && is_static(config_)) {
    agents_->start_empty_table();
    own_store_ = {config_.endpoints.front().host, agents_->port()};
    return own_store_;
  }
  if (workers_) {
    workers_->start_empty_table();
  } else {
    workers_ =
        std::make_unique<store::StoreServer>(store::bind_acceptor(io_, std::nullopt, 0), worker_config());
    tasks_->start(vital(workers_->run()));
  }
  own_store_ = {own_address, workers_->port()};
  return own_store_;
}

// Of the store that other nodes reach.
store::StoreServerConfig JobStores::worker_config() const {
  store::StoreServerConfig config;
  config.secret = config_.secret;
  config.linked_run = config_.run_id;
  return config;
}

rendezvous::StoreEndpoint JobStores::reach(const rendezvous::StoreEndpoint& workers) {
  if (!config_.store_proxy || !config_.meets_peers()) return workers;
  if (!proxy_) {
    proxy_ =
        std::make_unique<store::StoreProxy>(store::bind_acceptor(io_, asio::ip::address_v4::loopback(), 0),
                                            store::ProxyConfig{config_.run_id, config_.secret});
    tasks_->start(vital(proxy_->run()));
  }
  // The agent that serves the store needs no way out and back.
  proxy_->lead_to({workers == own_store_ ? kLoopback : workers.address, workers.port});
  return {kLoopback, proxy_->port()};
}

std::optional<asio::ip::address> JobStores::reached_at() const {
  return council_ ? council_->reached_at() : std::nullopt;
}

}  // namespace cpprun::launcher
