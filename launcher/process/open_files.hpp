// How many files and connections a process may have open (RLIMIT_NOFILE).
#pragma once

#include <sys/resource.h>

namespace cpprun::launcher {

// Raises this process's soft limit to its hard one, and returns what held before: for processes that are
// started later, since select(2) in them may count on few descriptors. A limit that cannot be raised stays.
rlimit raise_open_files();

}  // namespace cpprun::launcher
