// By what a run can be looked at while it runs: its control socket, and its entry in the list of the user's
// jobs; and the answers that it gives.
#pragma once

#include <boost/asio/io_context.hpp>
#include <memory>

#include "launcher/agent/agent.hpp"
#include "launcher/ctl/control_server.hpp"
#include "launcher/ctl/job_status.hpp"
#include "launcher/ctl/running_jobs.hpp"
#include "launcher/health/health.hpp"
#include "launcher/process/local_runner.hpp"

namespace cpprun::launcher {

class JobControl {
 public:
  // `about`: what does not change. Where the system refuses a part, a warning says so and the run goes on
  // without. References outlive this.
  JobControl(asio::io_context& io, const ControlPlace& place, JobStatus about, const LocalRunner& runner,
             Health& health);
  // Removes what was made.
  ~JobControl();
  JobControl(const JobControl&) = delete;
  JobControl& operator=(const JobControl&) = delete;

  // Until cancelled. Never throws.
  awaitable<void> run();

  // Whose phase and round are told from now on; it outlives this.
  void show(const Agent& agent) { agent_ = &agent; }

 private:
  std::string status() const;
  awaitable<std::string> stacks();

  const ControlPlace& place_;
  const JobStatus about_;
  const LocalRunner& runner_;
  Health& health_;
  const Agent* agent_ = nullptr;  // null until there is one
  FileDescriptor list_;
  std::unique_ptr<ControlServer> server_;  // null: the run cannot be reached
};

// Of what all nodes gave: {"text": ..., "nodes": [{"group_rank": ..., "evidence": ...}], "missing": [...]}.
std::string stacks_json(const Gathered& gathered);

}  // namespace cpprun::launcher
