// What a process has done so far, as the kernel counts it.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>

namespace cpprun::launcher {

struct ProcessActivity {
  char state = 0;                        // the kernel's letter
  bool traced = false;                   // a debugger is attached
  std::chrono::nanoseconds cpu_time{0};  // of all its threads
  std::uint64_t page_faults = 0;         // that needed no disk
  std::uint64_t read = 0;                // bytes
  std::uint64_t written = 0;             // bytes, through sockets only where write(2) was used
};

// Nothing for a process that is gone. What may not be read counts as 0.
std::optional<ProcessActivity> read_activity(pid_t pid);

// Tells whether the processes below a worker do anything.
class ChildrenActivity {
 public:
  // A descendant of `pid` is new or has computed (1 ms and more) since the last call for that pid; the first
  // call says no.
  bool busy(pid_t pid);

 private:
  std::map<pid_t, std::map<pid_t, std::chrono::nanoseconds>> known_;
};

}  // namespace cpprun::launcher
