// What a store promises, over the network.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/store/store_client.hpp"
#include "tests/store/run_coroutine.hpp"
#include "tests/store/server_thread.hpp"

namespace cpprun::store {
namespace {

using ::testing::ElementsAre;

Deadline far() {
  return Deadline::after(std::chrono::minutes(5));
}
Deadline now() {
  return Deadline::at(async::Clock::now());
}

class StoreContract : public ::testing::Test {
 protected:
  StoreContract() { client = run(StoreClient::connect({"127.0.0.1", server.port()}, far())); }
  Store& store() { return *client; }

  template <typename T>
  T run(awaitable<T> coroutine) {
    return run_coroutine(context, std::move(coroutine));
  }

  asio::io_context context;
  ServerThread server;
  std::unique_ptr<StoreClient> client;
};

TEST_F(StoreContract, SetThenGet) {
  const std::string key("k\0/\xff", 4);
  const std::string value("a\0b", 3);
  EXPECT_EQ(run(store().get(key)), "");
  run(store().set(key, value));
  EXPECT_EQ(run(store().get(key)), value);
  run(store().set(key, ""));
  EXPECT_EQ(run(store().get(key)), "");
  EXPECT_TRUE(run(store().check({key})));
}

TEST_F(StoreContract, ALargeValue) {
  const std::string value(3'000'000, 'v');
  run(store().set("k", value));
  EXPECT_TRUE(run(store().get("k")) == value);
}

TEST_F(StoreContract, MultiGetKeepsTheOrderOfItsKeys) {
  run(store().set("a", "1"));
  run(store().set("b", "2"));
  EXPECT_THAT(run(store().multi_get({"b", "absent", "a", "b"})), ElementsAre("2", "", "1", "2"));
  EXPECT_TRUE(run(store().multi_get({})).empty());
}

TEST_F(StoreContract, Append) {
  run(store().append("k", "ab"));
  run(store().append("k", "c"));
  EXPECT_EQ(run(store().get("k")), "abc");
}

TEST_F(StoreContract, Add) {
  EXPECT_EQ(run(store().add("n", 5)), 5);
  EXPECT_EQ(run(store().add("n", -7)), -2);
  EXPECT_EQ(run(store().get("n")), "-2");
  run(store().set("text", "abc"));
  EXPECT_THROW(run(store().add("text", 1)), StoreError);
  EXPECT_EQ(run(store().add("n", 1)), -1) << "the store is of use after an error";
}

TEST_F(StoreContract, CompareSetTellsWonLostAndAbsent) {
  EXPECT_EQ(run(store().compare_set("k", "old", "new")).outcome, CasOutcome::Absent);
  EXPECT_FALSE(run(store().check({"k"})));
  const CasResult won = run(store().compare_set("k", "", "one"));
  EXPECT_EQ(won.outcome, CasOutcome::Won);
  EXPECT_EQ(won.current, "one");
  const CasResult lost = run(store().compare_set("k", "zero", "two"));
  EXPECT_EQ(lost.outcome, CasOutcome::Lost);
  EXPECT_EQ(lost.current, "one");
  EXPECT_EQ(run(store().compare_set("k", "one", "two")).outcome, CasOutcome::Won);
  EXPECT_EQ(run(store().get("k")), "two");
  EXPECT_THROW(run(store().compare_set("k", "two", "two")), std::invalid_argument);
}

TEST_F(StoreContract, CheckEraseAndCount) {
  EXPECT_EQ(run(store().count()), 0);
  run(store().set("a", "1"));
  run(store().set("b", "2"));
  EXPECT_TRUE(run(store().check({"a", "b"})));
  EXPECT_TRUE(run(store().check({})));
  EXPECT_FALSE(run(store().check({"a", "c"})));
  EXPECT_EQ(run(store().count()), 2);
  EXPECT_TRUE(run(store().erase("a")));
  EXPECT_FALSE(run(store().erase("a")));
  EXPECT_FALSE(run(store().check({"a"})));
  EXPECT_EQ(run(store().count()), 1);
}

TEST_F(StoreContract, AWaitForWhatIsThereIsReadyAlsoAtItsDeadline) {
  run(store().set("a", "1"));
  EXPECT_EQ(run(store().wait({"a"}, far())), WaitResult::Ready);
  EXPECT_EQ(run(store().wait({}, now())), WaitResult::Ready);
  EXPECT_EQ(run(store().wait({"a"}, now())), WaitResult::Ready);
}

TEST_F(StoreContract, AWaitEndsAtItsDeadlineAndLeavesNothingBehind) {
  EXPECT_EQ(run(store().wait({"never"}, now())), WaitResult::TimedOut);
  EXPECT_EQ(run(store().wait({"never"}, Deadline::after(std::chrono::milliseconds(5)))),
            WaitResult::TimedOut);
  run(store().set("never", "1"));
  EXPECT_EQ(run(store().add("n", 1)), 1) << "no late wake-up is taken for this reply";
  EXPECT_EQ(run(store().wait({"never"}, now())), WaitResult::Ready);
}

awaitable<void> wait_ready(Store& store, std::vector<Key> keys) {
  const WaitResult result = co_await store.wait(std::move(keys), far());
  EXPECT_EQ(result, WaitResult::Ready);
}

awaitable<void> write_while_others_wait(Store& store, std::vector<int>& notes) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  async::TaskGroup group(executor);
  for (int i = 0; i < 3; ++i) group.start(wait_ready(store, {"set", "added", "appended", "swapped"}));
  co_await store.set("set", "1");
  co_await store.add("added", 1);
  co_await store.append("appended", "1");
  EXPECT_EQ(group.size(), 3U) << "one key is still missing";
  co_await store.compare_set("swapped", "", "1");
  co_await group.join();
  notes.push_back(1);
}

TEST_F(StoreContract, EveryWriteWakesAndAWaitHoldsUpNoOtherCall) {
  std::vector<int> notes;
  run(write_while_others_wait(store(), notes));
  EXPECT_EQ(notes.size(), 1U);
}

awaitable<void> cancel_a_wait(Store& store) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  async::TaskGroup group(executor);
  group.start(wait_ready(store, {"never"}));
  co_await store.set("a", "1");
  group.cancel();
  co_await group.join();
  co_await store.set("never", "1");
  const std::int64_t sum = co_await store.add("n", 3);
  EXPECT_EQ(sum, 3);
}

TEST_F(StoreContract, ACancelledWaitEndsAndLeavesNothingBehind) {
  run(cancel_a_wait(store()));
}

}  // namespace
}  // namespace cpprun::store
