// What the workers of one node are: the same for every attempt.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <optional>
#include <string>
#include <vector>

#include "launcher/process/binding.hpp"
#include "launcher/process/redirect_policy.hpp"
#include "launcher/report/verdict_rules.hpp"
#include "worker_runtime/contract/worker_env.hpp"

namespace cpprun::launcher {

struct WorkerSpec {
  std::string name;  // as the failure report calls the program
  std::string role;
  std::string executable;                // path, already looked up
  std::vector<std::string> argv;         // argv[0] first; $local_rank is filled in for each worker
  std::vector<std::string> environment;  // "NAME=value", the inherited part
  // By local rank, over everything else that a worker gets; may be empty.
  std::vector<worker::Variables> own_variables;
  std::vector<CpuSet> cpus;  // by local rank, where they may run; empty: where we may
  int local_world_size = 1;
  int max_restarts = 0;
  std::chrono::milliseconds stop_grace{30'000};  // from the first signal to SIGKILL
  RedirectPolicy redirects;
  std::string prefix_template;
  std::string hostname;
  sigset_t signal_mask{};            // for the workers
  std::optional<rlimit> open_files;  // their RLIMIT_NOFILE; without: as ours
  std::optional<mode_t> umask;       // theirs; without: as ours
  VerdictRules verdict_rules;        // by which their failures are classed
};

}  // namespace cpprun::launcher
