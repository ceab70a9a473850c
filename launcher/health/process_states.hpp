// Where the kernel has each thread of some workers: what can be told of any process without stopping it. For
// people.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace cpprun::launcher {

struct WorkerProcess {
  int global_rank;
  pid_t pid;
};

// A paragraph for each worker, with all processes that descend from it and, of each, the threads: number,
// state (the kernel's letter), where it sleeps in the kernel ("-": nowhere, or not for us to know), name. At
// most `most_bytes` long, with a last line where something was left out.
std::string process_states(const std::vector<WorkerProcess>& workers, std::size_t most_bytes);

}  // namespace cpprun::launcher
