// One event in the life of a job, as torchrun's event log writes it. Pure.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>

#include "launcher/agent/rank_assignment.hpp"
#include "launcher/process/exit_status.hpp"

namespace cpprun::launcher {

// Where --event-log-handler wants events. "null" and "dynamic_rendezvous" (which torchrun leaves empty too)
// write nothing, "console" writes to stderr, "file:PATH" appends to a file. Throws std::invalid_argument with
// a sentence for any other name.
struct EventDestination {
  static EventDestination parse(const std::string& name);
  bool console = false;
  std::string file;  // empty: none
};

// The same in all events of an agent.
struct EventSource {
  std::string run_id;
  std::string role;
  std::string hostname;
  std::string rdzv_backend;
  std::string entry_point;  // base name of the executable
};

struct EventWorker {
  WorkerRanks ranks{};
  pid_t pid = 0;
  std::optional<ExitStatus> status;  // of one that ended
};

struct Event {
  // RENDEZVOUS, ASSIGN_WORKER_RANKS, START, SUCCEEDED, FAILED, TERMINATED as torchrun's; HANG, STACKS,
  // STOPPING are ours
  std::string state;
  std::chrono::system_clock::time_point when;
  std::chrono::seconds total_run_time{0};  // of the agent so far
  std::optional<int> group_rank;           // nothing before the first rendezvous
  std::optional<int> group_world_size;
  int agent_restarts = 0;
  std::optional<EventWorker> worker;  // nothing: an event of the agent itself
  std::string raw_error;              // JSON or text; empty: none
  std::optional<std::chrono::duration<double, std::milli>> duration;
};

// One line of JSON, without its end, in torchrun's keys and order; `timestamp` is in milliseconds since 1970.
std::string to_json(const EventSource& source, const Event& event);

}  // namespace cpprun::launcher
