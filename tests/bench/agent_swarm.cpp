// Many agents of one job in one process, for scripts/bench/rendezvous: each has its own rendezvous, link and
// connection, as an agent has them, and workers that exist in name only.
//
// Usage: agent_swarm RUN_ID PORT MIN_NODES MAX_NODES FIRST COUNT. Agents FIRST to FIRST + COUNT - 1 are made;
// "ready" is printed; they join when a line comes on stdin. When the last of them has its place in a round,
// a line says
//   ROUND NODES RANKS SQUARES TOLD PLACED
// the number of the round's nodes, the sum of these agents' ranks and of their squares, and CLOCK_MONOTONIC
// in nanoseconds when the first of them was told that the round before was over (0: there was none) and when
// the last one had its place. Workers stop at once. Ends when it is killed, and with 1 when an agent fails.

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/council/council_link.hpp"
#include "rendezvous/dynamic_rendezvous.hpp"
#include "rendezvous/open_files.hpp"

namespace {

using namespace cpprun;
using namespace cpprun::rendezvous;

std::int64_t nanoseconds() {
  return std::chrono::nanoseconds(async::Clock::now().time_since_epoch()).count();
}

// What the agents of this process have come to.
class Tally {
 public:
  explicit Tally(int agents) : agents_(agents) {}

  void told() {
    if (told_ == 0) told_ = nanoseconds();
  }

  void placed(const RendezvousInfo& info) {
    if (info.round != round_) *this = Tally(agents_, info.round, std::exchange(told_, 0));
    const std::int64_t rank = info.group_rank;
    ranks_ += rank;
    squares_ += rank * rank;
    if (++placed_ < agents_) return;
    std::printf("%d %d %lld %lld %lld %lld\n", round_, info.group_world_size, static_cast<long long>(ranks_),
                static_cast<long long>(squares_), static_cast<long long>(began_by_),
                static_cast<long long>(nanoseconds()));
    std::fflush(stdout);
  }

 private:
  Tally(int agents, int round, std::int64_t began_by) : agents_(agents), round_(round), began_by_(began_by) {}

  int agents_;
  int round_ = -1;
  std::int64_t began_by_ = 0;  // what told_ was when this round's first place came
  std::int64_t told_ = 0;
  int placed_ = 0;
  std::int64_t ranks_ = 0;
  std::int64_t squares_ = 0;
};

awaitable<void> take_part(DynamicRendezvous& rendezvous, Tally& tally) {
  for (;;) {
    const std::optional<RendezvousInfo> info = co_await rendezvous.next_rendezvous();
    if (!info) co_return;
    tally.placed(*info);
    co_await rendezvous.round_ended();
    tally.told();
    co_await rendezvous.settled();
  }
}

std::unique_ptr<DynamicRendezvous> make_agent(asio::io_context& io, char** argv, int number) {
  DynamicRendezvousConfig config;
  config.node.host = "host" + std::to_string(number);
  config.node.pid = number;
  config.node.min_nodes = std::atoi(argv[3]);
  config.node.max_nodes = std::atoi(argv[4]);
  config.node.workers = 8;
  config.open_store = [](const std::string& address) { return StoreEndpoint{address, 1}; };
  CouncilLinkConfig link;
  link.opening.run = argv[1];
  link.endpoints = {{"127.0.0.1", static_cast<std::uint16_t>(std::atoi(argv[2]))}};
  return std::make_unique<DynamicRendezvous>(
      io.get_executor(), std::move(config), [&io, link](Membership& membership, async::Event& changed) {
        return std::make_unique<CouncilLink>(io.get_executor(), link, membership, changed);
      });
}

void end_at_error(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "agent_swarm: %s\n", failure.what());
  }
  std::_Exit(EXIT_FAILURE);  // also where an agent was told that the job is done
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) return 2;
  rendezvous::raise_open_file_limit();
  asio::io_context io{1};
  const int first = std::atoi(argv[5]);
  const int count = std::atoi(argv[6]);
  Tally tally(count);
  std::vector<std::unique_ptr<DynamicRendezvous>> agents;
  for (int i = 0; i < count; ++i) agents.push_back(make_agent(io, argv, first + i));
  std::puts("ready");
  std::fflush(stdout);
  if (std::getchar() == EOF) return 0;
  for (const std::unique_ptr<DynamicRendezvous>& agent : agents) {
    asio::co_spawn(io, take_part(*agent, tally), end_at_error);
  }
  io.run();
}
