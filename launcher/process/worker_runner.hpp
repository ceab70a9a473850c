// The seam between the agent's decisions and real processes.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "launcher/report/failure_report.hpp"
#include "rendezvous/async/tokens.hpp"
#include "worker_runtime/contract/worker_env.hpp"

namespace cpprun::launcher {

// The workers of this node in one job-wide start.
struct Attempt {
  int number;                              // counts starts, equal on all nodes; names the log folder
  std::vector<worker::WorkerEnv> workers;  // in the order of local ranks; error_file is set by the runner
  std::string node_address;                // as the other nodes reach it
};

class WorkerRunner {
 public:
  virtual ~WorkerRunner() = default;

  // Starts the workers; none may be left from before. Throws std::system_error when the system refuses.
  virtual void start(const Attempt& attempt) = 0;

  // Returns when all workers have ended well (nothing) or one has failed (the root cause so far).
  // Cancel-safe.
  virtual awaitable<std::optional<WorkerFailure>> ended() = 0;

  // Sends `signal` to every process of the workers, waits up to `grace`, kills what is left, and shows what
  // they still had to say. Returns when none is alive, or when it had to abandon some (see abandoned()). May
  // be cancelled and called again, with another signal or grace.
  virtual awaitable<void> stop(int signal, std::chrono::milliseconds grace) = 0;

  // The workers of the last start that did not end well; empty if all did. After stop().
  virtual std::vector<WorkerFailure> failures() = 0;

  // Processes that even SIGKILL did not end (uninterruptible sleep in the kernel).
  virtual bool abandoned() const = 0;
};

}  // namespace cpprun::launcher
