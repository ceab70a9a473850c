#include "launcher/process/child_process.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace cpprun::launcher {
namespace {

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const std::string& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// The agent's handlers must not run in the child: they would write into the agent's own pipes.
void drop_handlers() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_DFL &&
        action.sa_handler != SIG_IGN) {
      ::signal(signal, SIG_DFL);
    }
  }
}

// Only async-signal-safe calls from here on: this is the child, a copy of a process at an arbitrary point.
[[noreturn]] void become(const ProcessSpec& spec, char* const* argv, char* const* environment, pid_t agent,
                         int error_fd) {
  ::setsid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != agent) ::_exit(EXIT_FAILURE);  // the agent died before the line above
  // Moved out of the way first, so that no dup2 below overwrites a descriptor still to be used.
  const int in = ::fcntl(spec.stdin_fd, F_DUPFD_CLOEXEC, 3);
  const int out = ::fcntl(spec.stdout_fd, F_DUPFD_CLOEXEC, 3);
  const int err = ::fcntl(spec.stderr_fd, F_DUPFD_CLOEXEC, 3);
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  drop_handlers();
  ::signal(SIGPIPE, SIG_DFL);
  ::signal(SIGXFSZ, SIG_DFL);
  ::sigprocmask(SIG_SETMASK, &spec.signal_mask, nullptr);
  if (spec.open_files) ::setrlimit(RLIMIT_NOFILE, &*spec.open_files);
  if (spec.umask) ::umask(*spec.umask);
  // The system call itself: the C library's wrapper wants its own type, which ends at 1024 CPUs.
  const bool bound = spec.affinity.empty() ||
                     ::syscall(SYS_sched_setaffinity, 0, spec.affinity.size() * sizeof(unsigned long),
                               spec.affinity.data()) == 0;
  if (bound) ::execve(spec.executable.c_str(), argv, environment);
  const int cause = errno;
  if (::write(error_fd, &cause, sizeof cause) < 0) {
    // Nobody left to tell; the exit code still says that exec failed.
  }
  ::_exit(cause == ENOENT || cause == ENOTDIR ? 127 : 126);
}

}  // namespace

StartedProcess start_process(const ProcessSpec& spec) {
  int error_pipe[2];
  if (::pipe2(error_pipe, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot start a worker: pipe2");
  }
  const std::vector<char*> argv = pointers(spec.argv);
  const std::vector<char*> environment = pointers(spec.environment);
  const pid_t agent = ::getpid();
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, &before);
  const pid_t pid = ::fork();
  if (pid == 0) become(spec, argv.data(), environment.data(), agent, error_pipe[1]);
  const int cause = errno;
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  ::close(error_pipe[1]);
  if (pid < 0) {
    ::close(error_pipe[0]);
    throw std::system_error(cause, std::generic_category(), "cannot start a worker: fork");
  }
  return {pid, error_pipe[0]};
}

}  // namespace cpprun::launcher
