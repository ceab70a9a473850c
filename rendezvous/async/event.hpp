// A condition that coroutines of one thread wait on: the owner changes some state, then notifies; each waiter
// wakes and looks at the state again. Nothing is remembered, so look at the state before waiting.
#pragma once

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <vector>

namespace cpprun::async {

class Event {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit Event(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void notify_all() {
    for (boost::asio::steady_timer* waiter : waiters_) waiter->cancel();
  }

  // Returns at a notification, at `limit`, or when the caller is cancelled; the caller looks at its state to
  // tell them apart. The event must outlive the wait.
  boost::asio::awaitable<void> wait_until(TimePoint limit) {
    boost::asio::steady_timer timer(executor_, limit);
    const Registration registration(waiters_, timer);
    co_await timer.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  }

  boost::asio::awaitable<void> wait() { return wait_until(TimePoint::max()); }

 private:
  struct Registration {
    Registration(std::vector<boost::asio::steady_timer*>& all, boost::asio::steady_timer& mine)
        : waiters(all), timer(&mine) {
      waiters.push_back(timer);
    }
    ~Registration() { waiters.erase(std::find(waiters.begin(), waiters.end(), timer)); }
    Registration(const Registration&) = delete;
    Registration& operator=(const Registration&) = delete;
    std::vector<boost::asio::steady_timer*>& waiters;
    boost::asio::steady_timer* timer;
  };

  boost::asio::any_io_executor executor_;
  std::vector<boost::asio::steady_timer*> waiters_;
};

}  // namespace cpprun::async
