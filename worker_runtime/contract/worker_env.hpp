// The environment by which a launcher tells a worker who it is: the names and spellings of torchrun 2.15,
// so that unmodified PyTorch scripts find what they expect. Both sides use this one file; the table of names,
// writers and readers is in README.md beside it.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace cpprun::worker {

// A worker's place in the job. Ranks count from 0 and lie below their world size.
struct WorkerEnv {
  int rank = 0;
  int local_rank = 0;
  int world_size = 1;
  int local_world_size = 1;
  int group_rank = 0;        // of the agent among the agents
  int group_world_size = 1;  // number of agents
  int role_rank = 0;
  int role_world_size = 1;
  std::string role_name = "default";
  std::string master_addr = "127.0.0.1";  // where the worker store listens
  std::uint16_t master_port = 29500;
  std::string
      rank0_addr;         // rank 0's node as this node reaches it, where master_addr is a proxy's; else empty
  int restart_count = 0;  // charged restarts so far
  int max_restarts = 0;
  std::string run_id = "none";
  bool use_agent_store = false;  // the agent serves the store at master_addr:master_port
  std::string error_file;        // empty: errors are not recorded
  std::string progress_page;     // file of this worker's progress page; empty: there is none
};

// A worker's environment is missing or malformed; the text names the variable, its value and what it must be.
struct EnvironmentError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

using Variables = std::vector<std::pair<std::string, std::string>>;

// The variables that a launcher sets for `env`, in a fixed order. Inherited variables of the same name are to
// be replaced.
Variables to_variables(const WorkerEnv& env);

// True when the process was started by a launcher (RANK is set).
bool launched();

// Reads the process's own environment. RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT must be
// there; the rest have the defaults above (LOCAL_WORLD_SIZE defaults to WORLD_SIZE). Throws EnvironmentError.
WorkerEnv from_environment();

}  // namespace cpprun::worker
