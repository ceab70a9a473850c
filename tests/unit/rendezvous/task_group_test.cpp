#include "rendezvous/async/task_group.hpp"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <stdexcept>
#include <vector>

#include "tests/store/run_coroutine.hpp"

namespace cpprun::async {
namespace {

// Counts the tasks that are inside, however they leave.
struct Inside {
  explicit Inside(int& here) : count(here) { ++count; }
  ~Inside() { --count; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;
  int& count;
};

awaitable<void> sleep_for(Clock::duration time) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  asio::steady_timer timer(executor, time);
  co_await timer.async_wait(asio::use_awaitable);
}
awaitable<void> stay(int& inside) {
  const Inside me(inside);
  co_await sleep_for(std::chrono::hours(1));
}
awaitable<void> note(std::vector<int>& notes, int value) {
  notes.push_back(value);
  co_return;
}
awaitable<void> fail_after(Clock::duration time, const char* text) {
  co_await sleep_for(time);
  throw std::runtime_error(text);
}
// Ends with an error of its own when it is cancelled.
awaitable<void> fail_when_cancelled(const char* text) {
  co_await asio::this_coro::throw_if_cancelled(false);
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  asio::steady_timer timer(executor, std::chrono::hours(1));
  co_await timer.async_wait(use_error);
  throw std::runtime_error(text);
}

awaitable<void> run_three(std::vector<int>& notes) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  TaskGroup group(executor);
  for (int i = 0; i < 3; ++i) group.start(note(notes, i));
  co_await group.join();
}

TEST(TaskGroup, JoinWaitsForEveryTask) {
  std::vector<int> notes;
  run_coroutine(run_three(notes));
  EXPECT_EQ(notes, (std::vector<int>{0, 1, 2}));
}

awaitable<void> join_nothing() {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  TaskGroup group(executor);
  co_await group.join();
}

TEST(TaskGroup, JoinOfNoTaskReturns) {
  run_coroutine(join_nothing());
}

awaitable<void> cancel_two(int& inside) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  TaskGroup group(executor);
  group.start(stay(inside));
  group.start(stay(inside));
  EXPECT_EQ(inside, 2);
  group.cancel();
  group.start(stay(inside));  // after the cancel: ends at its first wait
  co_await group.join();
  EXPECT_TRUE(group.empty());
}

TEST(TaskGroup, CancelEndsEveryTaskAlsoOneStartedLater) {
  int inside = 0;
  run_coroutine(cancel_two(inside));
  EXPECT_EQ(inside, 0);
}

awaitable<void> fail_beside_others(int& inside) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  TaskGroup group(executor);
  group.start(stay(inside));
  group.start(fail_when_cancelled("second"));
  group.start(fail_after(std::chrono::milliseconds(1), "first"));
  co_await group.join();
}

TEST(TaskGroup, AFailureCancelsTheOthersAndTheFirstIsThrown) {
  int inside = 0;
  try {
    run_coroutine(fail_beside_others(inside));
    ADD_FAILURE() << "join did not throw";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "first");
  }
  EXPECT_EQ(inside, 0);
}

awaitable<void> own_two(int& inside, bool& joined) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  TaskGroup group(executor);
  group.start(stay(inside));
  group.start(stay(inside));
  co_await group.join();
  joined = true;
}

TEST(TaskGroup, CancellingTheJoinerEndsItsTasksFirst) {
  asio::io_context context;
  int inside = 0;
  bool joined = false;
  TaskGroup outer(context.get_executor());
  outer.start(own_two(inside, joined));
  context.poll();
  EXPECT_EQ(inside, 2);
  outer.cancel();
  context.run();
  EXPECT_EQ(inside, 0);
  EXPECT_TRUE(joined);
  EXPECT_TRUE(outer.empty());
}

#ifndef NDEBUG
TEST(TaskGroupDeathTest, EndingBeforeItsTasksIsAMistake) {
  EXPECT_DEATH(
      {
        asio::io_context context;
        int inside = 0;
        TaskGroup group(context.get_executor());
        group.start(stay(inside));
      },
      "ended before its tasks");
}
#endif

}  // namespace
}  // namespace cpprun::async
