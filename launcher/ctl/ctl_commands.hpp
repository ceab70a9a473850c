// What cpprunctl does, one function a command. Each prints its result to stdout and returns the exit code; it
// throws NoSuchJob or ControlError where there is none to ask. `job`: a pid, a run id, or the folder of a
// run; empty: not said.
#pragma once

#include <string>

namespace cpprun::launcher {

inline constexpr int kNotReached = 3;

// Without a job, a line for each of the user's jobs on this host.
int show_status(const std::string& job, bool json);

// Of all workers on all nodes; without a job, of the only one that runs here.
int show_stacks(const std::string& job, bool json);

}  // namespace cpprun::launcher
