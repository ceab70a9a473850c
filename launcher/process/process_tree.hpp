// Who descends from a process, of any depth, session or group, as the kernel tells in /proc.
#pragma once

#include <sys/types.h>

#include <vector>

namespace cpprun::launcher {

struct ProcessEntry {
  pid_t pid;
  pid_t group;
  bool zombie;
};

// All descendants of `root`, zombies included, parents before children. A process that ends or starts
// meanwhile may be missing: callers that must reach all of them ask again until nothing is left. Complete
// only while every orphan below `root` comes back to it, that is when `root` is a child subreaper.
std::vector<ProcessEntry> descendants(pid_t root);

}  // namespace cpprun::launcher
