// The memory cgroups of a process, of version 1 and 2, and how many processes the kernel killed in them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace cpprun::launcher {

// The files that count a process's cgroups' kills; for version 2 a group counts those of the groups below it.
// Empty where they cannot be found.
std::vector<std::string> oom_counters_of(pid_t pid);

// The count of "oom_kill" in such a file, or in /proc/vmstat; 0 where it cannot be read.
std::int64_t oom_kills_in(const std::string& file);

}  // namespace cpprun::launcher
