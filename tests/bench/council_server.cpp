// The leader's process of scripts/bench/rendezvous: the port of a run's agents and the council that leads
// them, as an agent that serves the rendezvous has them.
//
// Usage: council_server RUN_ID MIN_NODES MAX_NODES STOP_MARGIN_MS. Prints its port, an ephemeral one of
// 127.0.0.1, and serves until it is killed.

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address_v4.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/council/council.hpp"
#include "rendezvous/open_files.hpp"
#include "rendezvous/store/store_server.hpp"

namespace {

using namespace cpprun;

void rethrow(std::exception_ptr error) {
  if (error) std::rethrow_exception(error);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  rendezvous::raise_open_file_limit();
  asio::io_context io{1};
  store::RunDesk desk(io.get_executor(), argv[1]);
  store::StoreServer server(store::bind_acceptor(io, asio::ip::address_v4::loopback(), 0),
                            {.desk = &desk, .torchrun_agents = false});
  rendezvous::CouncilConfig config;
  config.run_id = argv[1];
  config.endpoints = {{"127.0.0.1", server.port()}};
  config.rules.round = {std::atoi(argv[2]), std::atoi(argv[3])};
  config.rules.stop_margin = std::chrono::milliseconds(std::atoi(argv[4]));
  rendezvous::Council council(io.get_executor(), config, desk);
  asio::co_spawn(io, server.run(), rethrow);
  asio::co_spawn(io, council.run(), rethrow);
  std::printf("%u\n", server.port());
  std::fflush(stdout);
  io.run();
}
