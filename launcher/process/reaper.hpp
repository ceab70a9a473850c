// Collects every child that ends: workers, and orphans that come to the agent because it is a child
// subreaper. One per process.
#pragma once

#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <map>
#include <optional>

#include "launcher/process/exit_status.hpp"
#include "rendezvous/async/event.hpp"

namespace cpprun::launcher {

struct ProcessEnd {
  ExitStatus status;
  std::chrono::system_clock::time_point when;
  std::chrono::steady_clock::time_point moment;  // the same
  // Ends collected at one waking carry the same number: the kernel does not tell their order.
  std::uint64_t batch;
  std::int64_t peak_memory_kib = 0;  // most resident memory that it had, or a child of it that it awaited
};

class Reaper {
 public:
  explicit Reaper(boost::asio::io_context& io);

  // Runs until cancelled.
  boost::asio::awaitable<void> run();

  // Remembers how `pid`, a child just started, ends. Others are collected and forgotten.
  void watch(pid_t pid);
  void forget(pid_t pid);
  std::optional<ProcessEnd> end_of(pid_t pid) const;

  // The number of the latest collection.
  std::uint64_t batch() const { return batch_; }

  // Notified whenever some child was collected.
  async::Event& collected() { return collected_; }

 private:
  void collect();

  boost::asio::signal_set child_ended_;
  async::Event collected_;
  std::map<pid_t, std::optional<ProcessEnd>> watched_;
  std::uint64_t batch_ = 0;
};

}  // namespace cpprun::launcher
