// The agent: rendezvous, assign ranks, run the workers, decide; again until the job is done.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <variant>

#include "launcher/agent/agent_phase.hpp"
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
  // The workers' store as this node's workers reach it; null: as other nodes do.
  std::function<rendezvous::StoreEndpoint(const rendezvous::StoreEndpoint&)> reach{};
  // Told of each attempt whose workers have started; null: nobody.
  std::function<void(const Attempt&)> started{};
  // Its workers are gone; null: nobody.
  std::function<void()> ended{};
  // Writes down where all workers are, for this reason, and returns within a limit; null: nobody does.
  std::function<awaitable<void>(std::string why)> take_stacks{};
  // The attempt fails, and these nodes (group ranks) are lost: what they said last, and what node 0 says of
  // itself. Returns within a moment; null: nobody knows.
  std::function<awaitable<std::vector<NodeWords>>(std::vector<int> lost)> last_words{};
};

class Agent {
 public:
  // All arguments outlive the agent.
  Agent(const AgentConfig& config, const WorkerSpec& spec, rendezvous::RendezvousHandler& handler,
        WorkerRunner& runner, StopSignal& stop_signal, const RunFolder& folder);

  // Returns when no worker is left. Throws rendezvous::RendezvousError, std::system_error. The handler is
  // still to be closed.
  awaitable<RunResult> run();

  // After run() has thrown: what the last attempt left to report, if it failed.
  std::optional<FailureReport> failure() const;
  // Whether any attempt has failed so far.
  bool has_failed() const { return has_failed_; }

  AgentPhase phase() const { return phase_; }
  // The present round, or the last one; null before the first.
  const rendezvous::RendezvousInfo* round() const { return info_.group_world_size > 0 ? &info_ : nullptr; }

 private:
  // The attempt of the next round that comes to be, the signal that ended the wait for it, or nothing: the
  // job ended well without this node.
  using Joined = std::variant<Attempt, StopRequested, Succeeded>;
  awaitable<Joined> join();
  // One attempt, from the start of its workers to the end of the last. Nothing: there is to be another one.
  awaitable<std::optional<RunResult>> run_attempt(const Attempt& attempt);
  awaitable<GroupEvent> next_event();
  // Unless the user wants the end.
  awaitable<void> take_stacks(std::string why);
  // The exit barrier. `told_to_stop`: a signal that came before it; then only a job of one node, which waits
  // for nobody, still ends well.
  awaitable<GroupEvent> finish(std::optional<int> told_to_stop);
  // Asks for what is to follow from the event, and tells the user.
  void announce(const GroupEvent& event);
  // What follows, after the workers' end: restart (nothing) or the end of the job.
  awaitable<std::optional<RunResult>> conclude(GroupEvent event);
  RunResult stopped(int signal);
  // Stops the workers, by `requested` or else by SIGTERM, within `grace`, and returns the signal that the
  // user sent, then or meanwhile.
  awaitable<std::optional<int>> stop_workers(std::optional<int> requested, std::chrono::milliseconds grace);
  Attempt plan(const rendezvous::RendezvousInfo& info) const;
  std::string own_name() const;
  // Where the event is a failure.
  awaitable<void> hear_last_words(GroupEvent event);
  FailureReport report() const;
  // The run is over for this node, since the rendezvous was lost in the last attempt.
  void record_loss(const std::exception_ptr& error);

  const AgentConfig& config_;
  const WorkerSpec& spec_;
  rendezvous::RendezvousHandler& handler_;
  WorkerRunner& runner_;
  StopSignal& stop_signal_;
  const RunFolder& folder_;
  AgentPhase phase_ = AgentPhase::Rendezvous;
  rendezvous::RendezvousInfo info_{};        // of the present round
  std::string own_cause_;                    // what the others were told of a failure here
  std::optional<JobCause> cause_elsewhere_;  // why another agent ended the present round
  std::vector<NodeWords> words_;             // heard when the present round failed
  std::vector<int> lost_nodes_;              // of the present round
  std::string lost_;                         // why the last attempt had no leader any more; else empty
  bool failed_ = false;                      // the last attempt
  bool has_failed_ = false;                  // any attempt
};

}  // namespace cpprun::launcher
