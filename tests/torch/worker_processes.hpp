// Runs the test program again as the ranks of a small job: a test names a worker body, and each rank is a
// real process with torchrun's environment and a store that the test serves.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/torch/temporary_folder.hpp"
#include "worker_runtime/contract/worker_env.hpp"

namespace cpprun::worker::test {

// What a rank does; its return value is the exit code and its exceptions are recorded as in any worker.
// `arguments` are those of the Job.
using WorkerBody = std::function<int(const WorkerEnv& env, const std::vector<std::string>& arguments)>;

// Registers a body at program start: `const WorkerRegistration kMean("mean", body);`
struct WorkerRegistration {
  WorkerRegistration(const std::string& name, WorkerBody body);
};

// In a worker body: throws with the text unless `condition` holds.
void require(bool condition, const std::string& text);

struct Job {
  std::string worker;  // a registered name
  int world_size = 1;
  std::vector<std::string> arguments;
  bool agent_store = true;  // the test serves the store; otherwise rank 0 has to
  std::vector<std::pair<std::string, std::string>> variables;  // more environment
  std::map<int, std::vector<std::string>> commands;            // another program as this rank
  std::vector<int> absent;                                     // ranks that are never started
};

struct RankResult {
  int exit_code = 0;  // negative: killed by that signal
  std::string standard_error;
};

// Runs all ranks to their end.
std::vector<RankResult> run_job(const Job& job);

// The same, expecting each rank to exit with 0; the text of the ranks that did not, empty when all did.
std::string failures_of(const Job& job);

// Starts one rank of a job of one, and returns its pid; its standard output goes to the descriptor.
pid_t start_worker(const std::string& worker, const std::vector<std::string>& arguments, int standard_output);

// A Python that can import torch (CPPRUN_TORCH_PYTHON), or nothing where only the C++ part is installed.
std::string python_with_torch();

// Standard output of a command; throws where it fails.
std::string output_of(const std::vector<std::string>& command);

// The folder of the tests' sources.
std::filesystem::path source_folder();

}  // namespace cpprun::worker::test
