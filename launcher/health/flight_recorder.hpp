// NCCL's flight recorder, in workers that are configured for it.
#pragma once

#include <sys/types.h>

#include <string>

namespace cpprun::launcher {

// Asks the worker to write what its recorder holds, where its environment (/proc/<pid>/environ) names a pipe
// for that (TORCH_NCCL_DEBUG_INFO_PIPE_FILE). Returns a sentence that names the file, or why there will be
// none; empty for a worker without a recorder. Waits for nothing.
std::string ask_flight_recorder(const std::string& environment, pid_t pid, int global_rank);

}  // namespace cpprun::launcher
