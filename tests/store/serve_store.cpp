// Serves one store until standard input ends: the server of the tests that are programs of their own.
//
// Usage: serve_store --ready-fd N [ADDRESS [PORT]]. Listens there (default: an ephemeral port of 127.0.0.1)
// and writes its port and a newline on descriptor N.
#include <unistd.h>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/store/store_server.hpp"

namespace {

using namespace cpprun;

awaitable<void> stop_at_end_of_input(asio::io_context& context, store::StoreServer& server) {
  asio::posix::stream_descriptor input(context, ::dup(STDIN_FILENO));
  char bytes[64];
  for (bool open = true; open;) {
    auto [error, n] = co_await input.async_read_some(asio::buffer(bytes), async::use_error);
    open = !error;
  }
  server.stop();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5 || std::string_view(argv[1]) != "--ready-fd") return 2;
  asio::io_context context(1);
  const asio::ip::address address = asio::ip::make_address(argc > 3 ? argv[3] : "127.0.0.1");
  const std::uint16_t port = argc > 4 ? static_cast<std::uint16_t>(std::atoi(argv[4])) : 0;
  store::StoreServer server(store::bind_acceptor(context, address, port));
  async::TaskGroup tasks(context.get_executor());
  tasks.start(server.run());
  tasks.start(stop_at_end_of_input(context, server));
  const std::string ready = std::to_string(server.port()) + "\n";
  if (::write(std::atoi(argv[2]), ready.data(), ready.size()) < 0) return 4;
  context.run();
}
