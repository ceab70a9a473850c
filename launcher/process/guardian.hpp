// Two processes watch each other, so that none of a job's processes outlives its launcher: the guardian,
// which is the process the user started, and the agent, its child, which does the work. Both are child
// subreapers.
//
//   agent killed     -> every process below it, of any depth or session, comes to the guardian, which kills
//                       them all, removes the agent's temporary folders, says what happened, and exits 128+N
//   guardian killed  -> the agent's guardian pipe ends; being a subreaper itself it ends everything below it
//
// The guardian is the agent's parent and not its child because the kernel gives orphans to an ancestor only:
// a child could not find what a dead agent left behind.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <string>

#include "launcher/ctl/running_jobs.hpp"
#include "launcher/process/exit_status.hpp"

namespace cpprun::launcher {

struct Guardianship {
  // Removed by the guardian when the agent did not live to do so; may be empty.
  std::string temporary_folder;
  // Removed by it in any case, should the agent not have been able to; may be empty.
  std::string progress_folder;
  std::string timer_file;  // a FIFO
  ControlPlace control;
  // Called when the agent was ended by a signal and so leaves no report; may be null.
  std::function<void(pid_t agent, const ExitStatus& status)> agent_ended;
};

// What the agent gets from its guardian.
struct AgentSeat {
  int guardian_pipe;       // readable (at its end) when the guardian is gone; owned by the agent
  sigset_t original_mask;  // the signal mask that the user's process was started with, for the workers
  mode_t original_umask;   // likewise; without the owner's bits it is ours
};

// Forks. In the child runs `agent` and leaves the process with its result. In the parent passes every signal
// on to the agent and returns the code to exit with. Signals are blocked from before the fork: the agent
// unblocks those it handles. What both make they may read and remove, whatever the umask takes from others.
// Must be called before any thread is started. Throws std::system_error when the system refuses.
int run_guarded(const Guardianship& guardianship, const std::function<int(const AgentSeat&)>& agent);

}  // namespace cpprun::launcher
