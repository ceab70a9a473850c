// Agents of several nodes gather each other's evidence through a real store.
#include "launcher/health/evidence_exchange.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <memory>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/store/store_server.hpp"

namespace cpprun::launcher {
namespace {

using async::Deadline;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

// Limits that no test is to reach, and one that a test waits for.
constexpr milliseconds kLong{60'000};
constexpr milliseconds kShort{200};

class Exchanges : public ::testing::Test {
 public:  // for the stories below
  struct Node {
    std::vector<std::string> asked;  // why, each time
    std::vector<int> kept;           // numbers of the requests
    std::string evidence;
    ProgressOfRanks progress;
    bool fails = false;
    bool hangs = false;
    std::unique_ptr<EvidenceExchange> exchange;
  };

  void SetUp() override {
    tasks_.start(server_.run());
    for (int i = 0; i < 3; ++i) {
      Node& node = nodes_[i];
      node.evidence = "of " + std::to_string(i);
      node.exchange = std::make_unique<EvidenceExchange>(
          io_.get_executor(), [this, &node](std::string why) { return capture(node, std::move(why)); },
          [&node](int, int request, Gathered) { return keep(node, request); },
          WordsSource{"host " + std::to_string(i), [&node] { return node.progress; },
                      [i] { return facts_of(i); }});
    }
  }

  static NodeFacts facts_of(int node) { return {{{"torch", "2.1" + std::to_string(node)}}, {}, {}}; }

  awaitable<std::string> capture(Node& node, std::string why) {
    node.asked.push_back(std::move(why));
    if (node.fails) throw std::runtime_error("no permission");
    if (node.hangs) {
      asio::steady_timer never(io_, async::Clock::time_point::max());
      co_await never.async_wait(asio::use_awaitable);
    }
    co_return node.evidence;
  }
  static awaitable<void> keep(Node& node, int request) {
    node.kept.push_back(request);
    co_return;
  }

  store::StoreEndpoint endpoint() const { return {"127.0.0.1", server_.port()}; }

  // The place of node `i` of `nodes`, whose agent runs from now on.
  void begin(int i, int nodes = 3, int attempt = 0) {
    nodes_[i].exchange->begin({endpoint(), attempt, i, nodes});
  }
  void start(std::initializer_list<int> which, int nodes = 3) {
    for (const int i : which) {
      begin(i, nodes);
      tasks_.start(nodes_[i].exchange->run());
    }
  }

  awaitable<void> gather(int i, milliseconds limit, Gathered& gathered) {
    gathered = co_await nodes_[i].exchange->gather("because", limit);
  }
  awaitable<void> until_connected(std::size_t connections) {
    asio::steady_timer timer(io_);
    while (server_.connections() != connections) {
      timer.expires_after(milliseconds(1));
      co_await timer.async_wait(asio::use_awaitable);
    }
  }

  // Runs the story to its end, beside servers and exchanges.
  void play(awaitable<void> story) {
    std::exception_ptr failure;
    asio::co_spawn(io_, std::move(story), [&](std::exception_ptr error) {
      failure = error;
      tasks_.cancel();
    });
    io_.run();
    io_.restart();
    if (failure) std::rethrow_exception(failure);
  }
  Gathered play_gather(int i, milliseconds limit) {
    Gathered gathered;
    play(gather(i, limit, gathered));
    return gathered;
  }

  asio::io_context io_{1};
  store::StoreServer server_{store::bind_acceptor(io_, asio::ip::address_v4::loopback(), 0)};
  Node nodes_[3];
  async::TaskGroup tasks_{io_.get_executor()};
};

TEST_F(Exchanges, EveryNodeAnswersWhoAsks) {
  start({0, 1, 2});
  const Gathered gathered = play_gather(1, kLong);
  EXPECT_THAT(gathered.by_node, ElementsAre(Pair(0, "of 0"), Pair(1, "of 1"), Pair(2, "of 2")));
  EXPECT_THAT(gathered.missing, IsEmpty());
  for (const Node& node : nodes_) EXPECT_THAT(node.asked, ElementsAre("because"));
}

TEST_F(Exchanges, NobodyIsWaitedForBeyondTheLimit) {
  start({0, 1});
  const Gathered gathered = play_gather(1, kShort);
  EXPECT_THAT(gathered.by_node, ElementsAre(Pair(0, "of 0"), Pair(1, "of 1")));
  EXPECT_THAT(gathered.missing, ElementsAre(2));
}

TEST_F(Exchanges, WhatANodeCannotGiveIsMissing) {
  nodes_[0].hangs = true;
  nodes_[1].fails = true;
  nodes_[2].evidence.assign(EvidenceExchange::kMostBytes + 1, 'x');
  start({0, 1, 2});
  const Gathered gathered = play_gather(2, kShort);
  EXPECT_THAT(gathered.by_node, IsEmpty());
  EXPECT_THAT(gathered.missing, ElementsAre(0, 1, 2));
}

TEST_F(Exchanges, TheLongestEvidenceArrives) {
  nodes_[0].evidence.assign(EvidenceExchange::kMostBytes, 'x');
  start({0, 1, 2});
  const Gathered gathered = play_gather(1, kLong);
  EXPECT_THAT(gathered.missing, IsEmpty());
  EXPECT_EQ(gathered.by_node.at(0), nodes_[0].evidence);
}

TEST_F(Exchanges, ANodeCostsOneConnectionAndNothingIsWrittenUnasked) {
  const auto story = [](Exchanges& test) -> awaitable<void> {
    co_await test.until_connected(3);
    const Deadline limit = Deadline::after(kLong);
    const std::unique_ptr<store::StoreClient> worker =
        co_await store::StoreClient::connect(test.endpoint(), limit);
    const std::int64_t before = co_await worker->count();
    EXPECT_EQ(before, 0);
    Gathered gathered;
    co_await test.gather(1, kLong, gathered);
    EXPECT_THAT(gathered.missing, IsEmpty());
    const std::int64_t after = co_await worker->count();
    EXPECT_EQ(after, 4);
    co_await test.until_connected(4);  // the three, and the worker
  };
  start({0, 1, 2});
  play(story(*this));
}

TEST_F(Exchanges, WhoAskTogetherShareOneRequest) {
  const auto story = [](Exchanges& test, Gathered& first, Gathered& second) -> awaitable<void> {
    co_await test.until_connected(3);
    async::TaskGroup both(test.io_.get_executor());
    both.start(test.gather(1, kLong, first));
    both.start(test.gather(2, kLong, second));
    co_await both.join();
  };
  start({0, 1, 2});
  Gathered first;
  Gathered second;
  play(story(*this, first, second));
  EXPECT_EQ(first.by_node.size(), 3u);
  EXPECT_EQ(second.by_node.size(), 3u);
  for (const Node& node : nodes_) EXPECT_EQ(node.asked.size(), 1u);
}

TEST_F(Exchanges, ManyRequestsInARow) {
  const auto story = [](Exchanges& test) -> awaitable<void> {
    for (int i = 0; i < 6; ++i) {
      test.nodes_[0].evidence = "number " + std::to_string(i);
      Gathered gathered;
      co_await test.gather(1 + i % 2, kLong, gathered);
      EXPECT_THAT(gathered.by_node.at(0), test.nodes_[0].evidence);
      EXPECT_THAT(gathered.missing, IsEmpty());
    }
  };
  start({0, 1, 2});
  play(story(*this));
  // Who asked keeps it, and the node with rank 0 always; its last one may be under way at the end.
  EXPECT_THAT(nodes_[1].kept, ElementsAre(1, 3, 5));
  EXPECT_GE(nodes_[0].kept.size(), 5u);
}

TEST_F(Exchanges, WhatWorkersWriteThereDisturbsNothing) {
  const auto story = [](Exchanges& test) -> awaitable<void> {
    const Deadline limit = Deadline::after(kLong);
    const std::unique_ptr<store::StoreClient> worker =
        co_await store::StoreClient::connect(test.endpoint(), limit);
    const char* garbage[] = {"", "garbage", "[]", "{\"by\":\"me\",\"why\":1,\"limit_ms\":[]}"};
    int number = 0;
    for (const char* value : garbage) {
      const std::string key = "cpprun/evidence/0/request/" + std::to_string(++number);
      co_await worker->set(key, value);
    }
    Gathered gathered;
    co_await test.gather(1, kLong, gathered);
    EXPECT_EQ(gathered.by_node.size(), 3u);
  };
  start({0, 1, 2});
  play(story(*this));
  EXPECT_THAT(nodes_[2].asked, ElementsAre("because"));
}

TEST_F(Exchanges, ALostStoreLeavesThisNodesEvidence) {
  const auto story = [](Exchanges& test, Gathered& gathered) -> awaitable<void> {
    co_await test.until_connected(3);
    test.server_.stop();
    co_await test.gather(1, kShort, gathered);
  };
  start({0, 1, 2});
  Gathered gathered;
  play(story(*this, gathered));
  EXPECT_THAT(gathered.by_node, ElementsAre(Pair(1, "of 1")));
  EXPECT_THAT(gathered.missing, ElementsAre(0, 2));
}

TEST_F(Exchanges, ANodeAloneAsksNobody) {
  start({0}, 1);
  const Gathered gathered = play_gather(0, kLong);
  EXPECT_THAT(gathered.by_node, ElementsAre(Pair(0, "of 0")));
  EXPECT_THAT(gathered.missing, IsEmpty());
  EXPECT_EQ(server_.connections(), 0u);
}

// Waits until the store holds so many keys.
awaitable<void> until_written(Exchanges& test, std::int64_t keys) {
  const Deadline limit = Deadline::after(kLong);
  const std::unique_ptr<store::StoreClient> worker =
      co_await store::StoreClient::connect(test.endpoint(), limit);
  asio::steady_timer timer(co_await asio::this_coro::executor);
  for (std::int64_t there = -1; there < keys && !limit.passed(); there = co_await worker->count()) {
    timer.expires_after(milliseconds(1));
    co_await timer.async_wait(asio::use_awaitable);
  }
}

worker::ProgressReading at_step(std::int64_t step) {
  worker::ProgressReading reading;
  reading.step = step;
  return reading;
}

TEST_F(Exchanges, TheLastWordsOfALostNodeAndTheFactsOfTheFirst) {
  const auto story = [](Exchanges& test, std::vector<NodeWords>& heard) -> awaitable<void> {
    co_await until_written(test, 3);
    // Node 2 says nothing more.
    test.nodes_[2].exchange->begin({});
    const std::vector<int> lost(1, 2);
    (void)co_await test.nodes_[0].exchange->last_words(lost);
    heard = co_await test.nodes_[1].exchange->last_words(lost);
  };
  for (int i = 0; i < 3; ++i) nodes_[i].progress[i] = at_step(10 + i);
  std::vector<NodeWords> heard;
  start({0, 1, 2});
  play(story(*this, heard));
  ASSERT_EQ(heard.size(), 2U);
  EXPECT_EQ(heard[0].node, 0);
  EXPECT_THAT(heard[0].facts.versions, ElementsAre(Pair("torch", "2.10")));
  EXPECT_EQ(heard[1].node, 2);
  EXPECT_EQ(heard[1].host, "host 2");
  ASSERT_EQ(heard[1].ranks.size(), 1U);
  EXPECT_EQ(heard[1].ranks[0].rank, 2);
  EXPECT_THAT(heard[1].ranks[0].text, ::testing::HasSubstr("step 12"));
  EXPECT_THAT(heard[1].facts.versions, IsEmpty());
}

// The first node's host may hold the store.
TEST_F(Exchanges, WordsThatWereHeardOutliveTheStore) {
  const auto story = [](Exchanges& test, std::vector<NodeWords>& heard) -> awaitable<void> {
    co_await until_written(test, 2);
    const std::vector<int> lost(1, 0);
    (void)co_await test.nodes_[1].exchange->last_words(lost);
    test.server_.stop();
    heard = co_await test.nodes_[1].exchange->last_words(lost);
  };
  for (int i = 0; i < 2; ++i) nodes_[i].progress[i] = at_step(10 + i);
  std::vector<NodeWords> heard;
  start({0, 1}, 2);
  play(story(*this, heard));
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_THAT(heard[0].ranks[0].text, ::testing::HasSubstr("step 10"));
}

TEST_F(Exchanges, AnotherAttemptIsAsOfNew) {
  const auto story = [](Exchanges& test) -> awaitable<void> {
    Gathered gathered;
    co_await test.gather(2, kLong, gathered);
    test.server_.start_empty_table();
    for (int i = 0; i < 2; ++i) test.begin(i, 2, 1);
    co_await test.gather(1, kLong, gathered);
    EXPECT_THAT(gathered.by_node, ElementsAre(Pair(0, "of 0"), Pair(1, "of 1")));
    EXPECT_THAT(gathered.missing, IsEmpty());
  };
  start({0, 1, 2});
  play(story(*this));
}

TEST_F(Exchanges, WhoGivesUpWaitingDisturbsNobody) {
  const auto story = [](Exchanges& test) -> awaitable<void> {
    Gathered gathered;
    test.nodes_[0].hangs = true;
    co_await test.until_connected(3);
    const bool ended =
        co_await async::before(Deadline::after(milliseconds(20)), test.gather(1, kShort, gathered));
    EXPECT_FALSE(ended);
    test.nodes_[0].hangs = false;
    co_await test.gather(2, kLong, gathered);
    EXPECT_EQ(gathered.by_node.size(), 3u);
  };
  start({0, 1, 2});
  play(story(*this));
}

}  // namespace
}  // namespace cpprun::launcher
