// TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT: when a worker has been in uninterruptible sleep for too long.
// Pure.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>

namespace cpprun::launcher {

class StuckPolicy {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  explicit StuckPolicy(std::chrono::milliseconds limit) : limit_(limit) {}

  // `state` is the letter of /proc/<pid>/stat, or 0 for a process that is gone. True once every look at `pid`
  // for `limit` has found it in state D.
  bool observe(pid_t pid, char state, TimePoint now);

 private:
  std::chrono::milliseconds limit_;
  std::map<pid_t, TimePoint> since_;
};

// The variable's text, or null: a positive number of seconds; nothing else asks for a watch, and gives 0.
std::chrono::milliseconds stuck_limit(const char* text);

}  // namespace cpprun::launcher
