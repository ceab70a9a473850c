#include "launcher/health/hang_monitor.hpp"

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <utility>

namespace cpprun::launcher {

namespace asio = boost::asio;

HangMonitor::HangMonitor(asio::io_context& io, HangLimits limits, HangWatch watch)
    : io_(io), policy_(std::move(limits)), watch_(std::move(watch)) {}

awaitable<void> HangMonitor::run() {
  asio::steady_timer timer(io_);
  for (;;) {
    timer.expires_after(policy_.interval());
    co_await timer.async_wait(asio::use_awaitable);
    const std::vector<WorkerLook> workers = co_await look();
    std::optional<Hang> hang = policy_.observe(workers, std::chrono::steady_clock::now());
    if (!hang) continue;
    const bool was_one = co_await watch_.respond(std::move(*hang));
    if (!was_one) policy_.forgive();
  }
}

awaitable<std::vector<WorkerLook>> HangMonitor::look() {
  const std::vector<LiveWorker> live = watch_.workers();
  const bool closer = policy_.wants_closer_look();
  const bool counted = policy_.wants_activity() && !live.empty() && sockets_.refresh();
  std::vector<WorkerLook> looks;
  for (const LiveWorker& worker : live) {
    const std::optional<ProcessActivity> activity = read_activity(worker.pid);
    if (!activity) continue;  // its end will be noticed
    WorkerLook look;
    look.local_rank = worker.ranks.local;
    look.pid = worker.pid;
    look.progress = watch_.progress(worker.ranks.local);
    look.state = activity->state;
    look.traced = activity->traced;
    look.cpu_time = activity->cpu_time;
    look.written = activity->written;
    look.read = activity->read;
    look.page_faults = activity->page_faults;
    if (counted) look.socket_bytes = sockets_.of(worker.pid);
    if (closer) {
      look.children_busy = children_.busy(worker.pid);
      look.stack_pointer = co_await watch_.stack_pointer(worker.pid);
    }
    looks.push_back(std::move(look));
  }
  co_return looks;
}

}  // namespace cpprun::launcher
