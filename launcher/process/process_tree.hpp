// Who descends from a process, of any depth, session or group, as the kernel tells in /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace cpprun::launcher {

struct ProcessEntry {
  pid_t pid;
  pid_t group;
  bool zombie;
};

struct ProcessStat {
  char state;  // the kernel's letter: 'R', 'S', 'D', 'Z', ...
  pid_t parent;
  pid_t group;
  std::uint64_t started;  // clock ticks since the machine's start
};

// Nothing for a process that is gone.
std::optional<ProcessStat> read_stat(pid_t pid);

// All descendants of `root`, zombies included, parents before children. A process that ends or starts
// meanwhile may be missing: callers that must reach all of them ask again until nothing is left. Complete
// only while every orphan below `root` comes back to it, that is when `root` is a child subreaper.
std::vector<ProcessEntry> descendants(pid_t root);

}  // namespace cpprun::launcher
