// Serves one store on 127.0.0.1 until standard input ends: the server side of the conformance and load tests.
//
//   serve_store [--ready-fd N] [--empty-on-line]
//
// Writes its port and a newline on the ready descriptor (standard output without one). With --empty-on-line
// each line on standard input starts an empty table, which is answered by a line `emptied`.
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/streambuf.hpp>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/store/store_server.hpp"

namespace {

using namespace cpprun;

void tell(int fd, const std::string& line) {
  const std::string text = line + "\n";
  if (::write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::exit(4);
}

awaitable<void> follow_input(asio::io_context& context, store::StoreServer& server, int ready_fd,
                             bool empty_on_line) {
  asio::posix::stream_descriptor input(context, ::dup(STDIN_FILENO));
  std::string lines;
  for (;;) {
    auto [error, n] =
        co_await asio::async_read_until(input, asio::dynamic_buffer(lines), '\n', async::use_error);
    if (error) break;
    lines.erase(0, n);
    if (!empty_on_line) continue;
    server.start_empty_table();
    tell(ready_fd, "emptied");
  }
  server.stop();
}

}  // namespace

int main(int argc, char** argv) {
  int ready_fd = STDOUT_FILENO;
  bool empty_on_line = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--ready-fd" && i + 1 < argc) ready_fd = std::atoi(argv[++i]);
    if (argument == "--empty-on-line") empty_on_line = true;
  }
  asio::io_context context(1);
  store::StoreServer server(store::bind_acceptor(context, asio::ip::address_v4::loopback(), 0));
  async::TaskGroup tasks(context.get_executor());
  tasks.start(server.run());
  tasks.start(follow_input(context, server, ready_fd, empty_on_line));
  tell(ready_fd, std::to_string(server.port()));
  context.run();
}
