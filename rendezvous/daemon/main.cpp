// cpprund: the rendezvous of many jobs, and a store, on one port; and further stores on their own.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/this_coro.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/async/deadline.hpp"
#include "rendezvous/async/task_group.hpp"
#include "rendezvous/daemon/daemon_config.hpp"
#include "rendezvous/daemon/http_server.hpp"
#include "rendezvous/daemon/metrics.hpp"
#include "rendezvous/daemon/run_registry.hpp"
#include "rendezvous/daemon/service_manager.hpp"
#include "rendezvous/error_text.hpp"
#include "rendezvous/open_files.hpp"
#include "rendezvous/print_text.hpp"
#include "rendezvous/store/address_text.hpp"
#include "rendezvous/store/store_server.hpp"

namespace cpprun::rendezvous {
namespace {

using namespace boost::asio::experimental::awaitable_operators;
using asio::ip::tcp;
using async::Deadline;

// The exit codes of all of cpprun's programs.
constexpr int kGood = 0;
constexpr int kWrongUsage = 2;
constexpr int kSystemRefused = 4;

tcp::acceptor adopt(asio::io_context& context, int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  const bool known = ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (!known || (address.ss_family != AF_INET && address.ss_family != AF_INET6)) {
    throw ConfigError("the socket that was passed is no TCP socket: is it ListenStream=PORT in the unit?");
  }
  tcp::acceptor acceptor(context);
  acceptor.assign(address.ss_family == AF_INET ? tcp::v4() : tcp::v6(), fd);
  acceptor.non_blocking(true);
  return acceptor;
}

class Daemon {
 public:
  explicit Daemon(const DaemonConfig& config)
      : config_(config),
        signals_(io_, SIGTERM, SIGINT),
        registry_(io_.get_executor(), config.runs),
        tasks_(io_.get_executor()) {
    const std::vector<int> passed = take_listening_sockets();
    if (passed.size() > 2)
      throw ConfigError("more than two sockets were passed: the store's and the HTTP server's");
    server_ = std::make_unique<store::StoreServer>(
        passed.empty() ? store::bind_acceptor(io_, config.bind.address, config.bind.port)
                       : adopt(io_, passed[0]),
        store::StoreServerConfig{.desk = &registry_, .secret = config.secret, .limits = config.store});
    for (const NamedStore& store : config.stores) {
      stores_.push_back({store.name, std::make_unique<store::StoreServer>(
                                         store::bind_acceptor(io_, config.bind.address, store.port),
                                         store::StoreServerConfig{.limits = config.store})});
    }
    if (passed.size() > 1) {
      http_ = serve_http(adopt(io_, passed[1]));
    } else if (config.http) {
      http_ = serve_http(store::bind_acceptor(io_, config.http->address, config.http->port));
    }
  }

  void run() {
    std::exception_ptr failure;
    asio::co_spawn(io_, serve(), [&](std::exception_ptr error) { failure = error; });
    io_.run();
    if (failure) std::rethrow_exception(failure);
  }

 private:
  struct OpenStore {
    std::string name;
    std::unique_ptr<store::StoreServer> server;
  };

  std::unique_ptr<HttpServer> serve_http(tcp::acceptor acceptor) {
    return std::make_unique<HttpServer>(std::move(acceptor),
                                        [this](const std::string& path) { return answer(path); });
  }

  std::vector<StoreReading> store_readings() const {
    std::vector<StoreReading> readings{{"", server_->use()}};
    for (const OpenStore& store : stores_) readings.push_back({store.name, store.server->use()});
    return readings;
  }

  HttpAnswer answer(const std::string& path) const {
    if (path == "/healthz") {
      if (draining_) return {503, "text/plain; charset=utf-8", "draining\n"};
      return {200, "text/plain; charset=utf-8", "ok\n"};
    }
    if (path == "/metrics") {
      return {200, "text/plain; version=0.0.4; charset=utf-8",
              to_prometheus({store_readings(), registry_.runs(), registry_.opened(), registry_.refused()})};
    }
    return {404, "text/plain; charset=utf-8", "there are /healthz and /metrics\n"};
  }

  awaitable<void> serve() {
    tasks_.start(registry_.run());
    tasks_.start(server_->run());
    for (const OpenStore& store : stores_) tasks_.start(store.server->run());
    if (http_) tasks_.start(http_->run());
    std::vector<std::uint16_t> ports{server_->port()};
    if (http_) ports.push_back(http_->port());
    for (const OpenStore& store : stores_) ports.push_back(store.server->port());
    if (config_.ready_fd) announce_ports(*config_.ready_fd, ports);
    notify_service_manager("READY=1\nSTATUS=serving at port " + std::to_string(server_->port()));
    spdlog::info("cpprund serves at port {}{}", server_->port(),
                 http_ ? ", /healthz and /metrics at port " + std::to_string(http_->port()) : "");
    for (const OpenStore& store : stores_)
      spdlog::info("store {} is at port {}", store.name, store.server->port());
    co_await stop_when_told();
    tasks_.cancel();
    co_await tasks_.join();
  }

  // The first signal waits for the runs that are open, the second does not.
  awaitable<void> stop_when_told() {
    const int signal = co_await signals_.async_wait(asio::use_awaitable);
    draining_ = true;
    notify_service_manager("STOPPING=1");
    spdlog::info("stopped by {}: waiting up to {} s for {} runs", signal == SIGTERM ? "SIGTERM" : "SIGINT",
                 config_.drain_limit.count() / 1000, registry_.runs().size());
    awaitable<void> drained = registry_.drain(Deadline::after(config_.drain_limit));
    awaitable<int> told_again = signals_.async_wait(asio::use_awaitable);
    co_await (std::move(drained) || std::move(told_again));
    co_await registry_.say_farewell("the rendezvous daemon that led it was stopped");
  }

  const DaemonConfig& config_;
  asio::io_context io_{1};
  asio::signal_set signals_;
  RunRegistry registry_;
  std::unique_ptr<store::StoreServer> server_;
  std::vector<OpenStore> stores_;  // for those who cannot name theirs
  std::unique_ptr<HttpServer> http_;
  bool draining_ = false;
  async::TaskGroup tasks_;
};

int fail(const char* kind, const std::string& sentence, int code) {
  std::fprintf(stderr, "cpprund: %s: %s\n", kind, sentence.c_str());
  return code;
}

int run(int argc, const char* const* argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    std::string printed;
    const std::optional<DaemonConfig> config = parse_daemon_config(argc, argv, printed);
    if (!config) {
      return print_text(printed) ? kGood : kSystemRefused;
    }
    spdlog::set_default_logger(spdlog::stderr_logger_st("cpprund"));
    spdlog::set_pattern("[%n] %Y-%m-%d %H:%M:%S.%e %l: %v");
    spdlog::set_level(spdlog::level::from_str(config->log_level));
    raise_open_file_limit();  // each client and each agent takes a descriptor
    Daemon(*config).run();
    return kGood;
  } catch (const std::invalid_argument& error) {
    return fail("UsageError", error.what(), kWrongUsage);
  } catch (const std::exception& error) {
    return fail("SystemError", error_text(error), kSystemRefused);
  }
}

}  // namespace
}  // namespace cpprun::rendezvous

int main(int argc, char** argv) {
  return cpprun::rendezvous::run(argc, argv);
}
