// Agents that meet in a real etcd, several of them in one process: the end of a run and the next one of the
// same name.
#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/dynamic_rendezvous.hpp"
#include "rendezvous/etcd/etcd_council.hpp"
#include "rendezvous/etcd/etcd_link.hpp"
#include "tests/rendezvous/etcd_calls.hpp"
#include "tests/rendezvous/etcd_server.hpp"
#include "tests/store/run_coroutine.hpp"

namespace cpprun::rendezvous {
namespace {

using async::Deadline;
using std::chrono::seconds;

CoordinatorRules rules_for(int nodes) {
  CoordinatorRules rules;
  rules.round = {nodes, nodes};
  return rules;
}

DynamicRendezvousConfig config_for(int number, int nodes, Farewell& farewell) {
  DynamicRendezvousConfig config;
  config.node.host = "host" + std::to_string(number);
  config.node.min_nodes = config.node.max_nodes = nodes;
  config.node.workers = 1;
  config.open_store = [](const std::string& address) { return StoreEndpoint{address, 1}; };
  config.replaceable_leader = true;
  config.farewell = &farewell;
  return config;
}

// One agent of a run of two.
class Agent {
 public:
  Agent(asio::any_io_executor executor, const EtcdServer& server, int number)
      : client_({at(server.port())}, patient()),
        session_(executor, client_, {}),
        council_(executor, {"agent", keys_, rules_for(2)}, client_, session_),
        handler_(executor, config_for(number, 2, council_),
                 [&, executor](Membership& membership, async::Event& changed) {
                   return std::make_unique<EtcdLink>(executor, EtcdLinkConfig{keys_, false}, client_,
                                                     session_, membership, changed);
                 }),
        tasks_(executor) {
    tasks_.start(council_.run());
  }

  awaitable<void> join() {
    place = co_await handler_.next_rendezvous();
    joined = true;
  }
  awaitable<void> finish() {
    const FinishEvent event = co_await handler_.finish();
    finished = std::holds_alternative<AllFinished>(event);
  }
  awaitable<void> close() {
    if (!std::exchange(closed_, true)) co_await handler_.close("");
    tasks_.cancel();
    co_await tasks_.join();
  }

  bool joined = false;
  std::optional<RendezvousInfo> place;
  bool finished = false;

 private:
  EtcdKeys keys_ = keys_of("/test/", "run");
  EtcdClient client_;
  EtcdSession session_;
  EtcdCouncil council_;
  DynamicRendezvous handler_;
  bool closed_ = false;
  async::TaskGroup tasks_;
};

// How many orders say something with these words.
awaitable<int> orders_with(EtcdClient& client, std::string words) {
  const PrefixReading reading = co_await client.list("/test/run/orders/");
  co_return static_cast<int>(
      std::count_if(reading.entries.begin(), reading.entries.end(),
                    [&](const KeyValue& entry) { return entry.value.find(words) != std::string::npos; }));
}

// What a story has started ends before its parts do, however it goes.
struct Stage {
  Stage(asio::any_io_executor of, EtcdServer& etcd)
      : executor(of), server(etcd), looker({at(etcd.port())}, patient()), later(of) {}
  Agent& agent() {
    agents.push_back(std::make_unique<Agent>(executor, server, static_cast<int>(agents.size()) + 1));
    return *agents.back();
  }
  awaitable<void> clear() {
    later.cancel();
    try {
      co_await later.join();
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
    for (const std::unique_ptr<Agent>& one : agents) co_await one->close();
  }

  asio::any_io_executor executor;
  EtcdServer& server;
  EtcdClient looker;
  std::vector<std::unique_ptr<Agent>> agents;
  async::TaskGroup later;
};

awaitable<void> two_runs(Stage& stage) {
  Agent& first = stage.agent();
  Agent& second = stage.agent();
  async::TaskGroup joins(stage.executor);
  joins.start(first.join());
  joins.start(second.join());
  co_await joins.join();
  EXPECT_EQ(first.place.value().group_rank + second.place.value().group_rank, 1);
  async::TaskGroup ends(stage.executor);
  ends.start(first.finish());
  ends.start(second.finish());
  co_await ends.join();
  EXPECT_TRUE(first.finished && second.finished);
  co_await first.close();

  // The second one is still there: nobody is told that the job is done, nor that a round begins.
  Agent& third = stage.agent();
  Agent& fourth = stage.agent();
  stage.later.start(third.join());
  stage.later.start(fourth.join());
  const Deadline limit = Deadline::after(seconds(60));
  asio::steady_timer timer(stage.executor);
  for (int told = 0; told < 2 && !limit.passed();) {
    timer.expires_after(std::chrono::milliseconds(10));
    co_await timer.async_wait(asio::use_awaitable);
    told = co_await orders_with(stage.looker, "the last run of this name has ended");
  }
  EXPECT_FALSE(limit.passed());
  EXPECT_FALSE(third.joined || fourth.joined);
  co_await second.close();
  co_await stage.later.join();
  EXPECT_EQ(third.place.value().round, 0);
  EXPECT_EQ(third.place.value().group_rank + fourth.place.value().group_rank, 1);
  co_await third.close();
  co_await fourth.close();
  const PrefixReading left = co_await stage.looker.list("/test/run/agents/");
  EXPECT_TRUE(left.entries.empty());
}

awaitable<void> play(EtcdServer& server) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  Stage stage(executor, server);
  try {
    co_await two_runs(stage);
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  co_await stage.clear();
}

TEST(EtcdRendezvousTest, WhoComesAfterTheLastWordBelongsToTheNextRun) {
  EtcdServer server;
  run_coroutine(play(server));
}

}  // namespace
}  // namespace cpprun::rendezvous
