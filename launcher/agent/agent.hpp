// The agent: rendezvous, assign ranks, run the workers, decide; again until the job is done.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "launcher/agent/rank_exchange.hpp"
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
  // Node 0 as this node's user spelled it (static rendezvous), for the workers here; else as node 0 says.
  std::optional<std::string> master_addr;
};

class Agent {
 public:
  // All arguments outlive the agent.
  Agent(const AgentConfig& config, const WorkerSpec& spec, rendezvous::RendezvousHandler& handler,
        WorkerRunner& runner, StopSignal& stop_signal, const RunFolder& folder, OpenWorkerStore open_store);

  // Returns when no worker is left. Throws rendezvous::RendezvousError, std::system_error. The handler is
  // still to be closed.
  awaitable<RunResult> run();

 private:
  // The attempt of the next round that comes to be, or the signal that ended the wait for it.
  using Joined = std::variant<Attempt, StopRequested>;
  awaitable<Joined> join();
  awaitable<std::optional<Attempt>> join_round();
  awaitable<GroupEvent> next_event();
  // The exit barrier. `told_to_stop`: a signal that came before it; then only a job of one node, which waits
  // for nobody, still ends well.
  awaitable<GroupEvent> finish(std::optional<int> told_to_stop);
  // Agrees with the other agents on how the round ends, and returns what holds.
  awaitable<RestartDecision> settle(GroupEvent event);
  rendezvous::RoundEnd round_end(const GroupEvent& event, const RestartDecision& decision) const;
  // Stops the workers, by `requested` or else by SIGTERM, and returns the signal that the user sent, then or
  // meanwhile.
  awaitable<std::optional<int>> stop_workers(std::optional<int> requested);
  Attempt plan(const RankExchange& exchange) const;
  std::string own_name() const;
  FailureReport report() const;
  void record_failure(const FailureReport& report) const;

  const AgentConfig& config_;
  const WorkerSpec& spec_;
  rendezvous::RendezvousHandler& handler_;
  WorkerRunner& runner_;
  StopSignal& stop_signal_;
  const RunFolder& folder_;
  OpenWorkerStore open_store_;
  rendezvous::RendezvousInfo info_{};        // of the present round
  std::optional<JobCause> cause_elsewhere_;  // why another agent ended the present round
};

}  // namespace cpprun::launcher
