// How many files and connections a process may have open (RLIMIT_NOFILE).
#pragma once

#include <sys/resource.h>

namespace cpprun::rendezvous {

// This process's limits. Throws std::system_error.
rlimit open_file_limits();

// Raises this process's soft limit to its hard one; where that is not allowed it stays.
void raise_open_file_limit();

}  // namespace cpprun::rendezvous
