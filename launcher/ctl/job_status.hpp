// What an agent tells of its job when it is asked, as a value and as JSON. Pure. The schema is in
// launcher/README.md.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/agent_phase.hpp"
#include "launcher/agent/rank_assignment.hpp"
#include "launcher/process/exit_status.hpp"

namespace cpprun::launcher {

// One worker of the present attempt.
struct WorkerStatus {
  using Time = std::chrono::system_clock::time_point;
  struct End {
    ExitStatus status;
    Time when;
  };

  WorkerRanks ranks{};
  pid_t pid = 0;
  Time started;
  std::optional<End> end;   // nothing: it runs
  char process_state = 0;   // the kernel's letter; 0: gone
  std::string condemned{};  // why the agent counts it as failed though it did not end; empty: it does not
  std::string progress{};   // a JSON object of its own; empty: it tells of none
};

// The round that the agent is in.
struct RoundStatus {
  int attempt = 0;
  int restarts = 0;
  int group_rank = 0;
  int group_world_size = 1;
  std::string address;  // of this node, as the others reach it
};

struct JobStatus {
  std::string version;
  std::string run_id;
  std::string program;
  std::string host;
  pid_t launcher = 0;  // the process that the user started
  pid_t agent = 0;
  std::string rendezvous;  // where and how nodes meet; empty: this one is alone
  int max_restarts = 0;
  std::string folder;  // of the logs; empty: none
  std::chrono::system_clock::time_point started;
  AgentPhase phase = AgentPhase::Rendezvous;
  std::optional<RoundStatus> round;  // nothing before the first
  std::vector<WorkerStatus> workers;
};

// In one line, without its end. Text that is not UTF-8 is mended.
std::string to_json(const JobStatus& status, std::chrono::system_clock::time_point now);

}  // namespace cpprun::launcher
