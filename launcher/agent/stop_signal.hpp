// Why the agent should stop its workers and end: a signal, or the end of its guardian.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <csignal>
#include <deque>
#include <vector>

#include "rendezvous/async/event.hpp"
#include "rendezvous/async/tokens.hpp"

namespace cpprun::launcher {

class StopSignal {
 public:
  // Handles `signals`, except those that the process was started ignoring (nohup). `guardian_pipe` is owned
  // from here on.
  StopSignal(asio::io_context& io, const std::vector<int>& signals, int guardian_pipe);

  // Collects signals until cancelled.
  awaitable<void> watch_signals();
  awaitable<void> watch_guardian();

  // Returns when there is a signal to take. Takes none: of two raced waits that end at once, one is
  // forgotten.
  awaitable<void> wait();
  // The next signal not yet taken, after wait(); SIGKILL stands for the end of the guardian.
  int take();

 private:
  void arrived(int signal);

  asio::signal_set signals_;
  asio::posix::stream_descriptor guardian_;
  async::Event arrived_;
  std::deque<int> pending_;
  int last_ = 0;
  std::chrono::steady_clock::time_point last_when_{};
};

}  // namespace cpprun::launcher
