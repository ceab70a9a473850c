// Takes the registers and stacks of a worker's threads by ptrace, without disturbing it: a process that is
// stopped stays stopped, a signal on its way is delivered, a system call that slept goes on sleeping (but for
// the few that a stop always ends with EINTR, such as epoll_wait).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/health/thread_facts.hpp"
#include "launcher/stacks/process_capture.hpp"

namespace cpprun::launcher {

struct CaptureLimits {
  // Within this time of the first interrupt every thread that stopped goes on again.
  std::chrono::milliseconds stop{40};
  // For a thread that is late to stop, which stops nobody else meanwhile.
  std::chrono::milliseconds patience{250};
  std::size_t threads = 256;
  std::size_t stack = 256 * 1024;         // of each thread
  std::size_t stacks = 32 * 1024 * 1024;  // of all together
  std::size_t maps = 8 * 1024 * 1024;
  // Only where each thread stands: the process's memory is not touched.
  bool pointers_only = false;
};

struct CapturedProcess {
  std::string note;  // why no thread has a stack; else empty
  std::vector<ThreadFacts> threads;
  stacks::ProcessCapture capture;  // only threads of which there is something to unwind
  // The longest that a thread may have stood still: from the first interrupt to the last detach.
  std::chrono::microseconds stopped{0};
  bool main_late = false;           // the main thread stopped too late to be copied: try again
  std::uint64_t stack_pointer = 0;  // of the main thread; 0: it did not stop
  std::chrono::system_clock::time_point when;
  ProcessStatus status;
  std::string command;      // /proc/<pid>/cmdline
  std::string environment;  // /proc/<pid>/environ
};

// Blocks, and for as long as the kernel likes where it holds the process's address space: to be called on a
// thread of its own. The end of that thread lets go of threads that did not stop in time. Looks at
// `abandoned` between its steps, and returns early once it is true. The caller is an ancestor of `pid`, or
// root.
CapturedProcess capture_process(pid_t pid, const CaptureLimits& limits, const std::atomic<bool>& abandoned);

}  // namespace cpprun::launcher
