// Serves one store, or proxies of one, until standard input ends: the server of the tests that are programs
// of their own.
//
// Usage: serve_store --ready-fd N [--bind ADDRESS] [--port PORT] [--secret FILE] [--proxies COUNT] [--behind
// PORT] Listens at ADDRESS (default 127.0.0.1) and PORT (default: an ephemeral one), and writes its port and
// a newline on descriptor N; then those of COUNT proxies of that store. With --behind they are proxies of the
// store at 127.0.0.1:PORT, another process's, and there is none here.
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/open_files.hpp"
#include "rendezvous/async/task_group.hpp"
#include "rendezvous/store/secret.hpp"
#include "rendezvous/store/store_proxy.hpp"
#include "rendezvous/store/store_server.hpp"

namespace {

using namespace cpprun;

constexpr char kRun[] = "test";

awaitable<void> stop_at_end_of_input(asio::io_context& context, async::TaskGroup& tasks) {
  asio::posix::stream_descriptor input(context, ::dup(STDIN_FILENO));
  char bytes[64];
  for (bool open = true; open;) {
    auto [error, n] = co_await input.async_read_some(asio::buffer(bytes), async::use_error);
    open = !error;
  }
  tasks.cancel();
}

int number(const std::map<std::string, std::string>& options, const char* name) {
  const auto option = options.find(name);
  return option == options.end() ? 0 : std::atoi(option->second.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> options{{"--bind", "127.0.0.1"}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  if (argc % 2 == 0 || !options.contains("--ready-fd")) return 2;
  cpprun::rendezvous::raise_open_file_limit();
  asio::io_context context(1);
  store::StoreServerConfig config;
  config.linked_run = kRun;
  if (options.contains("--secret")) {
    config.secret = std::make_shared<store::Secret>(store::Secret::from_file(options["--secret"]));
  }
  async::TaskGroup tasks(context.get_executor());
  std::string ready;
  std::unique_ptr<store::StoreServer> server;
  std::uint16_t behind = static_cast<std::uint16_t>(number(options, "--behind"));
  if (behind == 0) {
    const asio::ip::address address = asio::ip::make_address(options["--bind"]);
    server = std::make_unique<store::StoreServer>(
        store::bind_acceptor(context, address, static_cast<std::uint16_t>(number(options, "--port"))),
        config);
    behind = server->port();
    ready = std::to_string(behind) + "\n";
    tasks.start(server->run());
  }
  std::vector<std::unique_ptr<store::StoreProxy>> proxies;
  for (int i = 0; i < number(options, "--proxies"); ++i) {
    proxies.push_back(std::make_unique<store::StoreProxy>(
        store::bind_acceptor(context, asio::ip::address_v4::loopback(), 0),
        store::ProxyConfig{kRun, config.secret}));
    proxies.back()->lead_to({"127.0.0.1", behind});
    ready += std::to_string(proxies.back()->port()) + "\n";
    tasks.start(proxies.back()->run());
  }
  tasks.start(stop_at_end_of_input(context, tasks));
  if (::write(number(options, "--ready-fd"), ready.data(), ready.size()) < 0) return 4;
  context.run();
}
