// Looks at this node's workers again and again, and tells of one that hangs.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <optional>
#include <vector>

#include "launcher/agent/rank_assignment.hpp"
#include "launcher/health/activity.hpp"
#include "launcher/health/hang_policy.hpp"
#include "launcher/health/socket_bytes.hpp"
#include "rendezvous/async/tokens.hpp"

namespace cpprun::launcher {

struct LiveWorker {
  WorkerRanks ranks;
  pid_t pid;
};

// What the monitor sees the workers by, and whom it tells.
struct HangWatch {
  std::function<std::vector<LiveWorker>()> workers;  // those that run and are not being stopped
  std::function<std::optional<WorkerLook::Progress>(int local_rank)> progress;
  std::function<awaitable<std::optional<std::uint64_t>>(pid_t)> stack_pointer;  // of the main thread, now
  // While it runs, nobody is looked at. False: it was no hang.
  std::function<awaitable<bool>(Hang)> respond;
};

class HangMonitor {
 public:
  HangMonitor(boost::asio::io_context& io, HangLimits limits, HangWatch watch);

  // Until cancelled.
  awaitable<void> run();

  // Whether all workers here have been still for at least half of the limit of silence.
  bool quiet() const { return policy_.wants_closer_look(); }

 private:
  awaitable<std::vector<WorkerLook>> look();

  boost::asio::io_context& io_;
  HangPolicy policy_;
  HangWatch watch_;
  SocketBytes sockets_;
  ChildrenActivity children_;
};

}  // namespace cpprun::launcher
