#include "rendezvous/async/deadline.hpp"

#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <stdexcept>

#include "tests/store/run_coroutine.hpp"

namespace cpprun::async {
namespace {

using std::chrono::milliseconds;

Deadline soon() {
  return Deadline::after(milliseconds(1));
}
Deadline far() {
  return Deadline::after(std::chrono::minutes(5));
}

awaitable<int> give(int value) {
  co_return value;
}
awaitable<int> fail() {
  throw std::runtime_error("broken");
  co_return 0;
}
awaitable<void> sleep_for(Clock::duration time) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  asio::steady_timer timer(executor, time);
  co_await timer.async_wait(asio::use_awaitable);
}
awaitable<int> sleep_then_give(Clock::duration time, int value) {
  co_await sleep_for(time);
  co_return value;
}
// Its result is there although it was cancelled: as of a read that completed while the deadline passed.
awaitable<int> give_although_cancelled(int value) {
  co_await asio::this_coro::throw_if_cancelled(false);
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  asio::steady_timer timer(executor, std::chrono::hours(1));
  co_await timer.async_wait(use_error);
  co_return value;
}

TEST(Deadline, KnowsWhetherItHasPassed) {
  EXPECT_TRUE(Deadline::at(Clock::now()).passed());
  EXPECT_EQ(Deadline::at(Clock::now()).remaining(), Clock::duration::zero());
  EXPECT_FALSE(far().passed());
  EXPECT_GT(far().remaining(), std::chrono::minutes(4));
}

TEST(Deadline, AWaitTooLongForTheClockDoesNotWrapAround) {
  EXPECT_EQ(Deadline::after(Clock::duration::max()).time(), Clock::time_point::max());
}

TEST(Before, GivesTheResultOfAnOperationThatEndsInTime) {
  EXPECT_EQ(run_coroutine(before(far(), give(7))), 7);
  EXPECT_TRUE(run_coroutine(before(far(), sleep_for(milliseconds(0)))));
}

TEST(Before, EndsTheOperationAtTheDeadline) {
  EXPECT_EQ(run_coroutine(before(soon(), sleep_then_give(std::chrono::hours(1), 7))), std::nullopt);
  EXPECT_FALSE(run_coroutine(before(soon(), sleep_for(std::chrono::hours(1)))));
  EXPECT_FALSE(run_coroutine(before(Deadline::at(Clock::now()), sleep_for(std::chrono::hours(1)))));
}

TEST(Before, AResultThatCrossesTheDeadlineIsNotLost) {
  EXPECT_EQ(run_coroutine(before(soon(), give_although_cancelled(7))), 7);
}

TEST(Before, AFailureIsThrown) {
  EXPECT_THROW(run_coroutine(before(far(), fail())), std::runtime_error);
}

awaitable<bool> wait_readable_in_vain() {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  asio::ip::tcp::acceptor nobody(executor, asio::ip::tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  const std::optional<std::tuple<error_code>> ready =
      co_await before(soon(), nobody.async_wait(asio::ip::tcp::acceptor::wait_read, use_error));
  co_return ready.has_value();
}

TEST(Before, AnErrorCodeThatSaysCancelledIsNoResult) {
  EXPECT_FALSE(run_coroutine(wait_readable_in_vain()));
}

TEST(Before, CancellingTheCallerEndsTheOperation) {
  asio::io_context context;
  asio::cancellation_signal stop;
  std::exception_ptr failure;
  asio::co_spawn(context, before(far(), sleep_for(std::chrono::hours(1))),
                 asio::bind_cancellation_slot(
                     stop.slot(), [&failure](std::exception_ptr error, bool) { failure = error; }));
  context.poll();
  stop.emit(asio::cancellation_type::terminal);
  context.run();
  ASSERT_TRUE(failure);
  EXPECT_TRUE(is_cancellation(failure));
}

}  // namespace
}  // namespace cpprun::async
