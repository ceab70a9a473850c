// Several agents' rendezvous at one real store server.
#include "rendezvous/store_rendezvous.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/store/run_coroutine.hpp"
#include "tests/store/server_thread.hpp"

namespace cpprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

constexpr RoundRule kStatic2{2, true};
constexpr RoundRule kAny2{2, false};
constexpr RoundRule kAny3{3, false};

// g++ 12 does not take braces within a co_await expression.
RoundEnd round_end(bool charged, bool final, const char* sentence, const char* cause) {
  return {charged, final, sentence, cause};
}
template <typename... Handlers>
std::vector<StoreRendezvous*> those(Handlers*... handlers) {
  return {handlers...};
}
std::vector<store::Key> those_keys(const char* key) {
  return {key};
}

// The agents of one test: rank 0 stands in the process that serves the store.
class Agents {
 public:
  explicit Agents(std::uint16_t port) : port_(port) {
    limits.join_timeout = limits.connect_timeout = seconds(30);
    limits.keep_alive_interval = milliseconds(100);
  }

  StoreRendezvousConfig config(int rank, RoundRule rule) const {
    StoreRendezvousConfig made;
    made.run_id = "run";
    made.endpoint = {"127.0.0.1", port_};
    made.hosts_store = rank == 0;
    made.host_address = "store-host";
    made.rule = rule;
    made.node.host = "host" + std::to_string(rank);
    made.node.pid = 100 + rank;
    made.node.nodes = rule.nodes;
    if (rule.ranks_given) made.node.wished_rank = rank;
    made.limits = limits;
    return made;
  }
  StoreRendezvous& add(StoreRendezvousConfig made) {
    all.push_back(std::make_unique<StoreRendezvous>(io.get_executor(), std::move(made)));
    return *all.back();
  }
  StoreRendezvous& add(int rank, RoundRule rule) { return add(config(rank, rule)); }

  // The next round of each, joined at the same time.
  awaitable<std::vector<RendezvousInfo>> next_round(std::vector<StoreRendezvous*> handlers) {
    std::vector<RendezvousInfo> infos(handlers.size());
    async::TaskGroup joining(io.get_executor());
    for (std::size_t i = 0; i < handlers.size(); ++i) joining.start(join(*handlers[i], infos[i]));
    co_await joining.join();
    co_return infos;
  }
  // They close at the same time: the store's host waits for the others' last word.
  awaitable<void> close() {
    async::TaskGroup closing(io.get_executor());
    for (const std::unique_ptr<StoreRendezvous>& handler : all) closing.start(handler->close());
    co_await closing.join();
  }

  static awaitable<void> join(StoreRendezvous& handler, RendezvousInfo& info) {
    info = co_await handler.next_rendezvous();
  }
  static awaitable<void> join_in_vain(StoreRendezvous& handler, std::string& why) {
    try {
      co_await handler.next_rendezvous();
    } catch (const RendezvousError& error) {
      why = error.what();
    }
  }
  static awaitable<void> finish(StoreRendezvous& handler, std::optional<FinishEvent>& event) {
    event = co_await handler.finish();
  }

  asio::io_context io;
  RendezvousLimits limits;
  std::vector<std::unique_ptr<StoreRendezvous>> all;

 private:
  std::uint16_t port_;
};

class StoreRendezvousTest : public ::testing::Test {
 protected:
  void run(awaitable<void> story) { run_coroutine(agents_.io, to_the_end(agents_, std::move(story))); }

  static awaitable<int> to_the_end(Agents& agents, awaitable<void> story) {
    std::exception_ptr failure;
    try {
      co_await std::move(story);
    } catch (...) {
      failure = std::current_exception();
    }
    co_await agents.close();
    if (failure) std::rethrow_exception(failure);
    co_return 0;
  }

  store::ServerThread server_{{}, "run"};
  Agents agents_{server_.port()};
};

awaitable<void> given_ranks_hold(Agents& agents) {
  StoreRendezvous& one = agents.add(1, kStatic2);
  StoreRendezvous& zero = agents.add(0, kStatic2);
  const std::vector<RendezvousInfo> infos = co_await agents.next_round(those(&one, &zero));
  EXPECT_EQ(infos[0].group_rank, 1);
  EXPECT_EQ(infos[1].group_rank, 0);
  for (const RendezvousInfo& info : infos) {
    EXPECT_EQ(info.group_world_size, 2);
    EXPECT_EQ(info.round, 0);
    EXPECT_EQ(info.restarts, 0);
  }
  EXPECT_EQ(infos[0].address, "127.0.0.1");   // of its connection
  EXPECT_EQ(infos[1].address, "store-host");  // as typed
  co_await zero.round_store().set("key", "value");
  const store::Bytes value = co_await one.round_store().get("key");
  EXPECT_EQ(value, "value");
}
TEST_F(StoreRendezvousTest, GivenRanksHoldAndTheRoundsKeysAreShared) {
  run(given_ranks_hold(agents_));
}

awaitable<void> hosts_decide(Agents& agents) {
  StoreRendezvous& ten = agents.add(10, kAny3);
  StoreRendezvous& nine = agents.add(9, kAny3);
  StoreRendezvous& zero = agents.add(0, kAny3);
  const std::vector<RendezvousInfo> infos = co_await agents.next_round(those(&ten, &nine, &zero));
  EXPECT_EQ(infos[0].group_rank, 2);
  EXPECT_EQ(infos[1].group_rank, 1);
  EXPECT_EQ(infos[2].group_rank, 0);
}
TEST_F(StoreRendezvousTest, WithoutGivenRanksTheHostsOrderDecides) {
  run(hosts_decide(agents_));
}

awaitable<void> first_word_holds(Agents& agents) {
  StoreRendezvous& zero = agents.add(0, kAny2);
  StoreRendezvous& one = agents.add(1, kAny2);
  co_await agents.next_round(those(&zero, &one));
  const RoundEnd first = co_await one.end_round(round_end(true, false, "one failed", "cause 1"));
  EXPECT_EQ(first.cause, "cause 1");
  const RoundEnd second = co_await zero.end_round(round_end(false, true, "zero failed", "cause 0"));
  EXPECT_EQ(second.cause, "cause 1");
  EXPECT_FALSE(second.final);
  const RoundEvent told = co_await zero.round_ended();
  EXPECT_EQ(std::get<RoundEnd>(told).sentence, "one failed");
  std::vector<RendezvousInfo> infos = co_await agents.next_round(those(&zero, &one));
  EXPECT_EQ(infos[0].round, 1);
  EXPECT_EQ(infos[1].restarts, 1);
  const store::Bytes old = co_await one.round_store().get("key");
  EXPECT_EQ(old, "");
  co_await zero.end_round(round_end(false, false, "a free restart", "cause"));
  infos = co_await agents.next_round(those(&one, &zero));
  EXPECT_EQ(infos[0].round, 2);
  EXPECT_EQ(infos[0].restarts, 1);
  EXPECT_EQ(infos[0].group_rank, 1);  // survivors keep their rank, whoever comes first
}
TEST_F(StoreRendezvousTest, TheFirstWordOnARoundsEndHoldsForAll) {
  run(first_word_holds(agents_));
}

awaitable<void> all_finish(Agents& agents) {
  StoreRendezvous& zero = agents.add(0, kAny2);
  StoreRendezvous& one = agents.add(1, kAny2);
  co_await agents.next_round(those(&zero, &one));
  std::optional<FinishEvent> early;
  async::TaskGroup waiting(agents.io.get_executor());
  waiting.start(Agents::finish(zero, early));
  const bool over = co_await one.round_store().check(those_keys("all_finished"));
  EXPECT_FALSE(over);
  EXPECT_FALSE(early);
  const FinishEvent late = co_await one.finish();
  EXPECT_TRUE(std::holds_alternative<AllFinished>(late));
  co_await waiting.join();
  EXPECT_TRUE(std::holds_alternative<AllFinished>(*early));
}
TEST_F(StoreRendezvousTest, TheExitBarrierWaitsForAll) {
  run(all_finish(agents_));
}

awaitable<void> a_failure_frees_the_barrier(Agents& agents) {
  StoreRendezvous& zero = agents.add(0, kAny2);
  StoreRendezvous& one = agents.add(1, kAny2);
  co_await agents.next_round(those(&zero, &one));
  std::optional<FinishEvent> early;
  async::TaskGroup waiting(agents.io.get_executor());
  waiting.start(Agents::finish(zero, early));
  co_await one.end_round(round_end(true, false, "one failed late", "cause"));
  co_await waiting.join();
  EXPECT_EQ(std::get<RoundEnd>(*early).sentence, "one failed late");
}
TEST_F(StoreRendezvousTest, AFailureElsewhereEndsTheExitBarrier) {
  run(a_failure_frees_the_barrier(agents_));
}

awaitable<void> silent_node_is_lost(Agents& agents) {
  StoreRendezvous& zero = agents.add(0, kStatic2);
  StoreRendezvous& one = agents.add(1, kStatic2);
  co_await agents.next_round(those(&zero, &one));
  co_await one.close();  // as if killed: no word, no further heartbeat
  const RoundEvent event = co_await zero.round_ended();
  EXPECT_THAT(std::get<NodeLost>(event).what, HasSubstr("node 1 (host1, pid 101) has not been heard of"));
  co_await zero.end_round(round_end(true, false, "node 1 lost", "cause"));
  // Its replacement, with the same rank, makes the next round complete.
  StoreRendezvous& again = agents.add(1, kStatic2);
  const std::vector<RendezvousInfo> infos = co_await agents.next_round(those(&again, &zero));
  EXPECT_EQ(infos[0].group_rank, 1);
  EXPECT_EQ(infos[0].round, 1);
  EXPECT_EQ(infos[0].restarts, 1);
}
TEST_F(StoreRendezvousTest, ASilentNodeIsLostAndMayBeReplaced) {
  run(silent_node_is_lost(agents_));
}

awaitable<void> replacement_comes_early(Agents& agents) {
  StoreRendezvous& zero = agents.add(0, kStatic2);
  StoreRendezvous& one = agents.add(1, kStatic2);
  co_await agents.next_round(those(&zero, &one));
  co_await one.close();
  StoreRendezvous& again = agents.add(1, kStatic2);
  RendezvousInfo info{};
  async::TaskGroup joining(agents.io.get_executor());
  joining.start(Agents::join(again, info));
  co_await zero.round_ended();
  co_await zero.end_round(round_end(true, false, "node 1 lost", "cause"));
  co_await zero.next_rendezvous();
  co_await joining.join();
  EXPECT_EQ(info.round, 1);
}
TEST_F(StoreRendezvousTest, AReplacementThatComesBeforeTheLossIsNoticedWaits) {
  run(replacement_comes_early(agents_));
}

// An agent that was killed between the two writes of its arrival.
awaitable<void> silent_arrival_is_skipped(Agents& agents) {
  std::unique_ptr<store::StoreClient> killed = co_await store::StoreClient::connect(
      agents.config(1, kStatic2).endpoint, async::Deadline::after(seconds(30)), seconds(30), "run");
  co_await killed->add("run/0/arrivals", 1);
  StoreRendezvous& zero = agents.add(0, kStatic2);
  StoreRendezvous& one = agents.add(1, kStatic2);
  const std::vector<RendezvousInfo> infos = co_await agents.next_round(those(&zero, &one));
  EXPECT_EQ(infos[1].group_rank, 1);
}
TEST_F(StoreRendezvousTest, AnArrivalThatSaysNothingHoldsUpNobody) {
  run(silent_arrival_is_skipped(agents_));
}

// The host comes last into the next round; a newcomer was there before it.
awaitable<void> newcomer_waits_for_survivors(Agents& agents) {
  StoreRendezvous& zero = agents.add(0, kAny2);
  StoreRendezvous& one = agents.add(1, kAny2);
  co_await agents.next_round(those(&zero, &one));
  co_await one.end_round(round_end(true, false, "one failed", "cause"));
  StoreRendezvous& newcomer = agents.add(2, kAny2);
  RendezvousInfo info{};
  std::string why;
  async::TaskGroup joining(agents.io.get_executor());
  joining.start(Agents::join(one, info));
  joining.start(Agents::join_in_vain(newcomer, why));
  // Both have said in round 1 who they are before the host comes.
  std::vector<store::Key> arrived{"run/1/node/1", "run/1/node/2"};
  std::unique_ptr<store::StoreClient> eye = co_await store::StoreClient::connect(
      agents.config(0, kAny2).endpoint, async::Deadline::after(seconds(30)), seconds(30), "run");
  co_await eye->wait(arrived, async::Deadline::after(seconds(30)));
  const RendezvousInfo host = co_await zero.next_rendezvous();
  co_await joining.join();
  EXPECT_EQ(host.group_rank, 0);
  EXPECT_EQ(info.group_rank, 1);
  EXPECT_THAT(why, HasSubstr("all 2 nodes are there"));
}
TEST_F(StoreRendezvousTest, ANewcomerDoesNotTakeASurvivorsPlace) { run(newcomer_waits_for_survivors(agents_)); }

awaitable<void> surplus_is_refused(Agents& agents) {
  StoreRendezvous& zero = agents.add(0, kStatic2);
  StoreRendezvous& one = agents.add(1, kStatic2);
  co_await agents.next_round(those(&zero, &one));
  StoreRendezvous& twin = agents.add(1, kStatic2);
  std::string why;
  co_await Agents::join_in_vain(twin, why);
  EXPECT_THAT(why, HasSubstr("its --node-rank is held by node 1 (host1, pid 101)"));
}
TEST_F(StoreRendezvousTest, ASecondNodeOfALivingRankIsRefused) {
  run(surplus_is_refused(agents_));
}

awaitable<void> other_size_is_refused(Agents& agents) {
  StoreRendezvous& zero = agents.add(0, kAny2);
  StoreRendezvous& one = agents.add(1, kAny3);
  StoreRendezvous& two = agents.add(2, kAny2);
  RendezvousInfo info{};
  std::string why;
  async::TaskGroup joining(agents.io.get_executor());
  joining.start(Agents::join(zero, info));
  co_await Agents::join_in_vain(one, why);
  EXPECT_THAT(why, HasSubstr("it expects 3 nodes and this run has 2 (compare --nnodes)"));
  co_await two.next_rendezvous();
  co_await joining.join();
  EXPECT_EQ(info.group_world_size, 2);
}
TEST_F(StoreRendezvousTest, ANodeThatExpectsAnotherNumberIsRefused) {
  run(other_size_is_refused(agents_));
}

awaitable<void> host_leaves(Agents& agents) {
  StoreRendezvous& zero = agents.add(0, kAny2);
  StoreRendezvous& one = agents.add(1, kAny2);
  co_await agents.next_round(those(&zero, &one));
  co_await zero.leave(round_end(true, false, "node 0 was stopped by SIGTERM", "cause"));
  const RoundEvent event = co_await one.round_ended();
  EXPECT_TRUE(std::get<RoundEnd>(event).final);  // the store goes with it
  EXPECT_EQ(std::get<RoundEnd>(event).sentence, "node 0 was stopped by SIGTERM");
}
TEST_F(StoreRendezvousTest, WhenTheStoresHostLeavesTheRunEnds) {
  run(host_leaves(agents_));
}

awaitable<void> late_comer_hears_of_the_end(Agents& agents) {
  StoreRendezvous& zero = agents.add(0, kAny2);
  StoreRendezvous& one = agents.add(1, kAny2);
  co_await agents.next_round(those(&zero, &one));
  co_await one.end_round(round_end(true, true, "rank 3 failed", "cause"));
  StoreRendezvous& late = agents.add(2, kAny2);
  std::string why;
  co_await Agents::join_in_vain(late, why);
  EXPECT_EQ(why, "the run has ended: rank 3 failed");
}
TEST_F(StoreRendezvousTest, WhoComesAfterTheEndIsTold) {
  run(late_comer_hears_of_the_end(agents_));
}

awaitable<void> timeout_names_the_missing(Agents& agents) {
  agents.limits.join_timeout = milliseconds(300);
  StoreRendezvous& zero = agents.add(0, kStatic2);
  std::string why;
  co_await Agents::join_in_vain(zero, why);
  EXPECT_THAT(why, HasSubstr("1 of 2 nodes have joined (node 0 (host0, pid 100)); missing: node 1"));
}
TEST_F(StoreRendezvousTest, ATimeoutNamesTheMissing) {
  run(timeout_names_the_missing(agents_));
}

awaitable<void> other_run_is_refused(Agents& agents) {
  StoreRendezvousConfig stranger = agents.config(1, kAny2);
  stranger.run_id = "other";
  StoreRendezvous& one = agents.add(std::move(stranger));
  std::string why;
  co_await Agents::join_in_vain(one, why);
  EXPECT_THAT(why, HasSubstr("serves another run (compare --rdzv-id)"));
}
TEST_F(StoreRendezvousTest, AnotherRunIsRefused) {
  run(other_run_is_refused(agents_));
}

awaitable<void> workers_store_is_refused(Agents& agents, std::uint16_t port) {
  StoreRendezvousConfig lost = agents.config(1, kAny2);
  lost.endpoint.port = port;
  StoreRendezvous& one = agents.add(std::move(lost));
  std::string why;
  co_await Agents::join_in_vain(one, why);
  EXPECT_THAT(why, HasSubstr("a store answers there, but no cpprun agent of several nodes"));
}
TEST_F(StoreRendezvousTest, AStoreWithoutAgentsIsRefused) {
  store::ServerThread workers_only;
  run(workers_store_is_refused(agents_, workers_only.port()));
}

awaitable<void> store_dies(Agents& agents, store::ServerThread& server) {
  StoreRendezvous& zero = agents.add(0, kAny2);
  StoreRendezvous& one = agents.add(1, kAny2);
  co_await agents.next_round(those(&zero, &one));
  server.stop();
  const RoundEvent event = co_await one.round_ended();
  EXPECT_THAT(std::get<RendezvousLost>(event).reason, HasSubstr("lost the connection"));
  const RoundEnd end = co_await one.end_round(round_end(true, false, "mine", "cause"));
  EXPECT_EQ(end.sentence, "mine");
  std::string why;
  co_await Agents::join_in_vain(one, why);
  EXPECT_THAT(why, HasSubstr("lost the connection"));
}
TEST_F(StoreRendezvousTest, TheStoresDeathIsToldAndEndsWaits) {
  run(store_dies(agents_, server_));
}

// A worker store that starts anew leaves the agents alone.
awaitable<void> tables_are_apart(Agents& agents, store::ServerThread& server) {
  StoreRendezvous& zero = agents.add(0, kAny2);
  StoreRendezvous& one = agents.add(1, kAny2);
  co_await agents.next_round(those(&zero, &one));
  const store::StoreEndpoint endpoint{"127.0.0.1", server.port()};
  std::unique_ptr<store::StoreClient> worker =
      co_await store::StoreClient::connect(endpoint, async::Deadline::after(seconds(30)));
  co_await worker->set("run/0/end", "not for agents");
  co_await one.round_store().set("mine", "agent's");
  const std::int64_t seen = co_await worker->count();
  EXPECT_EQ(seen, 1);
  server.start_empty_table();
  std::unique_ptr<store::StoreClient> fresh =
      co_await store::StoreClient::connect(endpoint, async::Deadline::after(seconds(30)));
  const std::int64_t left = co_await fresh->count();
  EXPECT_EQ(left, 0);
  const store::Bytes kept = co_await zero.round_store().get("mine");
  EXPECT_EQ(kept, "agent's");
}
TEST_F(StoreRendezvousTest, TheWorkersTableStartsEmptyBesideTheAgents) {
  run(tables_are_apart(agents_, server_));
}

}  // namespace
}  // namespace cpprun::rendezvous
