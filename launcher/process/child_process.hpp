// Starts one worker process.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <csignal>
#include <optional>
#include <string>
#include <vector>

namespace cpprun::launcher {

struct ProcessSpec {
  std::string executable;                // path, already looked up
  std::vector<std::string> argv;         // argv[0] first
  std::vector<std::string> environment;  // "NAME=value"
  int stdin_fd = 0;                      // borrowed; duplicated into the child
  int stdout_fd = 1;
  int stderr_fd = 2;
  sigset_t signal_mask;                 // for the child
  std::vector<unsigned long> affinity;  // CPUs, as sched_setaffinity(2) takes them; empty: as inherited
  std::optional<rlimit> open_files;     // its RLIMIT_NOFILE; without: as inherited
  std::optional<mode_t> umask;          // without: as inherited
};

struct StartedProcess {
  pid_t pid;
  // Read end of a pipe that closes at a successful exec, or holds the errno of a failed one and then the
  // child exits 127 (not found) or 126. Non-blocking; owned by the caller.
  int exec_error_fd;
};

// The child leads a session (and group) of its own, dies with this thread (parent-death signal SIGKILL), has
// SIGPIPE and SIGXFSZ at their defaults, and no open file above 2. Throws std::system_error when the system
// refuses to fork or to open a pipe; returns without waiting for the exec.
StartedProcess start_process(const ProcessSpec& spec);

}  // namespace cpprun::launcher
