// The agent: rendezvous, assign ranks, run the workers, decide; again until the job is done.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "launcher/agent/restart_policy.hpp"
#include "launcher/agent/stop_signal.hpp"
#include "launcher/agent/worker_spec.hpp"
#include "launcher/process/log_layout.hpp"
#include "launcher/process/worker_runner.hpp"
#include "rendezvous/rendezvous_handler.hpp"

namespace cpprun::launcher {

struct AgentConfig {
  std::string run_id;
  std::string interpreter;  // of the workers; empty for a program that runs by itself
};

// Where an attempt's workers find their store.
struct StoreEndpoint {
  std::string address;
  std::uint16_t port;
};
// Opens the worker store for a new attempt: empty, and closed to the workers of earlier ones.
using OpenWorkerStore = std::function<StoreEndpoint()>;

class Agent {
 public:
  // All arguments outlive the agent.
  Agent(const AgentConfig& config, const WorkerSpec& spec, rendezvous::RendezvousHandler& handler,
        WorkerRunner& runner, StopSignal& stop_signal, const RunFolder& folder, OpenWorkerStore open_store);

  // Returns when no worker is left. Throws rendezvous::RendezvousError, std::system_error.
  awaitable<RunResult> run();

 private:
  awaitable<GroupEvent> next_event();
  // Stops the workers, by `requested` or else by SIGTERM, and returns the signal that the user sent, then or
  // meanwhile.
  awaitable<std::optional<int>> stop_workers(std::optional<int> requested);
  Attempt plan(const rendezvous::RendezvousInfo& info, int number, int restarts_left);
  FailureReport report(int attempt) const;
  void record_failure(const FailureReport& report) const;

  const AgentConfig& config_;
  const WorkerSpec& spec_;
  rendezvous::RendezvousHandler& handler_;
  WorkerRunner& runner_;
  StopSignal& stop_signal_;
  const RunFolder& folder_;
  OpenWorkerStore open_store_;
};

}  // namespace cpprun::launcher
