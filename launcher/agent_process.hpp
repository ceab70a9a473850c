// Everything that lives as long as the agent: its parts, and the loop that they run on.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>
#include <optional>

#include "launcher/agent/agent.hpp"
#include "launcher/ctl/job_control.hpp"
#include "launcher/health/health.hpp"
#include "launcher/health/progress_pages.hpp"
#include "launcher/health/timer_server.hpp"
#include "launcher/job_stores.hpp"
#include "launcher/launch_config.hpp"
#include "launcher/process/guardian.hpp"
#include "launcher/process/local_runner.hpp"
#include "launcher/report/event_log.hpp"

namespace cpprun::launcher {

class AgentProcess {
 public:
  // References outlive it. Throws UsageError, std::system_error.
  AgentProcess(const LaunchConfig& config, const std::string& interpreter, WorkerSpec spec,
               const RunFolder& folder, const Guardianship& guardianship, const AgentSeat& seat,
               StackTools tools);

  // Returns when no worker is left. Throws rendezvous::RendezvousError, std::system_error.
  RunResult run();

  bool abandoned() const { return runner_.abandoned(); }
  // After run() has thrown: what the last attempt left to report, if it failed.
  const std::optional<FailureReport>& failure() const { return failure_; }
  // The log folder tells what is told nowhere else: of a failed attempt before an error, or what could not be
  // shown.
  bool leaves_logs() const { return leaves_logs_; }

 private:
  awaitable<void> run_agent();
  awaitable<RunResult> open_and_run();
  worker::Variables round_environment(const Attempt& attempt) const;
  awaitable<void> watch_timers();
  awaitable<void> watch_terminal();
  std::function<rendezvous::StoreEndpoint(const rendezvous::StoreEndpoint&)> reach_store();

  const LaunchConfig& config_;
  const AgentConfig agent_config_;
  const WorkerSpec spec_;
  const RunFolder& folder_;
  EventLog events_;
  asio::io_context io_{1};
  JobStores stores_;
  // Nothing until the stores are open.
  std::unique_ptr<rendezvous::RendezvousHandler> handler_;
  std::optional<LoggedRendezvous> logged_handler_;
  Reaper reaper_;
  StopSignal stop_signal_;
  Consoles consoles_;
  ProgressPages pages_;
  LocalRunner runner_;
  std::unique_ptr<TimerServer> timers_;
  std::optional<Agent> agent_;  // nothing until the stores are open
  Health health_;
  JobControl control_;
  std::optional<RunResult> result_;
  std::optional<FailureReport> failure_;
  bool leaves_logs_ = false;
  async::TaskGroup tasks_;  // last: its tasks use the parts
};

}  // namespace cpprun::launcher
