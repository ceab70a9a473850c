// A nursery: the coroutines started in a group end before the group does. One thread, no detached work.
//
//   TaskGroup group(executor);
//   group.start(accept_loop());
//   ...
//   group.cancel();
//   co_await group.join();
//
// What a task refers to must outlive the group: declare the parts first, the group last.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/this_coro.hpp>
#include <cassert>
#include <cstddef>
#include <exception>
#include <list>
#include <utility>

#include "rendezvous/async/deadline.hpp"
#include "rendezvous/async/event.hpp"
#include "rendezvous/async/tokens.hpp"

namespace cpprun::async {

class TaskGroup {
 public:
  explicit TaskGroup(asio::any_io_executor executor) : executor_(executor), ended_(executor) {}
  // Every task must have ended: join() first.
  ~TaskGroup() { assert(children_.empty() && "a TaskGroup ended before its tasks"); }
  TaskGroup(const TaskGroup&) = delete;
  TaskGroup& operator=(const TaskGroup&) = delete;

  // Runs `task` until its first suspension, then beside the caller. A task that throws cancels the others.
  // After cancel() a new task starts cancelled: it ends at its first wait.
  void start(awaitable<void> task) {
    children_.emplace_back();
    const std::list<Child>::iterator child = std::prev(children_.end());
    asio::co_spawn(executor_, std::move(task),
                   asio::bind_cancellation_slot(child->stop.slot(), [this, child](std::exception_ptr error) {
                     finished(child, error);
                   }));
    if (cancelled_) child->stop.emit(asio::cancellation_type::terminal);
  }

  // Asks every task to end soon, now and in future. Returns at once.
  void cancel() {
    cancelled_ = true;
    emitting_ = true;
    for (Child& child : children_) {
      if (!child.finished) child.stop.emit(asio::cancellation_type::terminal);
    }
    emitting_ = false;
    children_.remove_if([](const Child& child) { return child.finished; });
    if (children_.empty()) ended_.notify_all();
  }

  // Waits for every task to end, then throws the first error one of them threw (a task that ended because it
  // was cancelled has no error). Cancelling the joiner cancels the tasks; join still waits for them.
  // A coroutine that may already be cancelled when it comes here does
  // `co_await asio::this_coro::throw_if_cancelled(false)` first.
  awaitable<void> join() {
    const bool throws = co_await asio::this_coro::throw_if_cancelled();
    co_await asio::this_coro::throw_if_cancelled(false);
    while (!children_.empty()) {
      const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
      if (state.cancelled() != asio::cancellation_type::none && !cancelled_) cancel();
      if (!children_.empty()) co_await ended_.wait();
    }
    co_await asio::this_coro::throw_if_cancelled(throws);
    if (first_error_) std::rethrow_exception(std::exchange(first_error_, nullptr));
  }

  bool empty() const { return children_.empty(); }
  std::size_t size() const { return children_.size(); }

 private:
  struct Child {
    asio::cancellation_signal stop;
    bool finished = false;
  };

  void finished(std::list<Child>::iterator child, const std::exception_ptr& error) {
    child->finished = true;
    if (!emitting_) children_.erase(child);  // cancel() walks the list while it emits
    if (error && !(cancelled_ && is_cancellation(error)) && !first_error_) {
      first_error_ = error;
      if (!emitting_) cancel();
    }
    if (children_.empty()) ended_.notify_all();
  }

  asio::any_io_executor executor_;
  std::list<Child> children_;
  Event ended_;
  std::exception_ptr first_error_;
  bool cancelled_ = false;
  bool emitting_ = false;
};

}  // namespace cpprun::async
