// A moment of the steady clock at which waiting ends, and a way to run one awaitable until then.
#pragma once

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/experimental/parallel_group.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>
#include <exception>
#include <optional>
#include <tuple>
#include <utility>

#include "rendezvous/async/clock.hpp"
#include "rendezvous/async/tokens.hpp"

namespace cpprun::async {

class Deadline {
 public:
  static Deadline at(Clock::time_point limit) { return Deadline(limit); }
  // A duration too long for the clock gives the clock's last moment.
  static Deadline after(Clock::duration wait) {
    const Clock::time_point now = Clock::now();
    return Deadline(now + std::min(wait, Clock::time_point::max() - now));
  }

  Clock::time_point time() const { return limit_; }
  bool passed() const { return Clock::now() >= limit_; }
  // Zero once passed.
  Clock::duration remaining() const { return std::max(limit_ - Clock::now(), Clock::duration::zero()); }
  static Deadline earlier(Deadline a, Deadline b) { return Deadline(std::min(a.limit_, b.limit_)); }

 private:
  explicit Deadline(Clock::time_point limit) : limit_(limit) {}
  Clock::time_point limit_;
};

// True for a result that says "I was cancelled" by its error code: the results of `use_error`.
template <typename T>
bool says_cancelled(const T&) {
  return false;
}
template <typename... Rest>
bool says_cancelled(const std::tuple<error_code, Rest...>& result) {
  return std::get<0>(result) == asio::error::operation_aborted;
}

inline bool is_cancellation(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const boost::system::system_error& failure) {
    return failure.code() == asio::error::operation_aborted;
  } catch (...) {
    return false;
  }
}

// Runs `operation`, cancelling it at `limit`. Returns its result, or nothing if the deadline ended it. A
// result that crossed the deadline is returned, never lost. What `operation` throws is thrown here. It has
// always ended when this returns, so it must end soon after being cancelled.
template <typename T>
awaitable<std::optional<T>> before(Deadline limit, awaitable<T> operation);
// The same for an operation without a result: true if it ended by itself.
awaitable<bool> before(Deadline limit, awaitable<void> operation);

template <typename T>
awaitable<std::optional<T>> as_optional(awaitable<T> operation) {
  T result = co_await std::move(operation);
  co_return std::optional<T>(std::move(result));
}

inline awaitable<std::optional<std::tuple<>>> as_optional(awaitable<void> operation) {
  co_await std::move(operation);
  co_return std::tuple<>();
}

template <typename T>
awaitable<std::optional<T>> run_until(Deadline limit, awaitable<std::optional<T>> operation) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  asio::steady_timer timer(executor, limit.time());
  auto race = asio::experimental::make_parallel_group(
      asio::co_spawn(executor, std::move(operation), asio::deferred), timer.async_wait(asio::deferred));
  auto [order, failure, result, timer_error] =
      co_await race.async_wait(asio::experimental::wait_for_one(), asio::use_awaitable);
  // The timer fails only when it was itself cancelled: by the operation's end or by our caller.
  const bool deadline_passed = !timer_error && order[0] == 1;
  if (failure) {
    if (deadline_passed && is_cancellation(failure)) co_return std::nullopt;
    std::rethrow_exception(failure);
  }
  if (deadline_passed && result && says_cancelled(*result)) co_return std::nullopt;
  co_return std::move(result);
}

template <typename T>
awaitable<std::optional<T>> before(Deadline limit, awaitable<T> operation) {
  std::optional<T> result = co_await run_until(limit, as_optional(std::move(operation)));
  co_return std::move(result);
}

inline awaitable<bool> before(Deadline limit, awaitable<void> operation) {
  const std::optional<std::tuple<>> result = co_await run_until(limit, as_optional(std::move(operation)));
  co_return result.has_value();
}

}  // namespace cpprun::async
