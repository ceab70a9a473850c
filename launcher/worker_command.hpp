// What a worker executes: from the program as the user typed it to a file that exists and can be run.
#pragma once

#include <string>
#include <vector>

#include "launcher/launch_config.hpp"

namespace cpprun::launcher {

struct WorkerCommand {
  std::string name;               // of the program, for reports
  std::string interpreter;        // path of the Python that runs it; empty if it runs by itself
  std::string executable;         // path
  std::vector<std::string> argv;  // argv[0] first
};

// The variables that decide, read by the caller; null where unset.
struct CommandEnvironment {
  const char* path = nullptr;          // PATH
  const char* python_exec = nullptr;   // PYTHON_EXEC
  const char* virtual_env = nullptr;   // VIRTUAL_ENV
  const char* conda_prefix = nullptr;  // CONDA_PREFIX
  std::string own_folder;              // of the cpprun binary
};

// With --run-path the script runs under Python by way of a small program of ours (run_path.hpp). A module,
// and a file that ends in .py, run under Python: PYTHON_EXEC, else the active virtual environment's, else
// conda's, else python3 or python in PATH. A name without a slash is looked up in PATH, then beside cpprun,
// then in the current folder. An executable or a script with "#!" runs by itself; any other text is taken for
// a Python script, as torchrun does. Throws UsageError for what is missing or cannot be executed.
WorkerCommand find_command(const LaunchConfig& config, const CommandEnvironment& environment);

}  // namespace cpprun::launcher
