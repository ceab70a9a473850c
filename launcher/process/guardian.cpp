#include "launcher/process/guardian.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>

#include "launcher/health/timer_server.hpp"
#include "launcher/process/exit_status.hpp"
#include "launcher/process/patient_write.hpp"
#include "launcher/process/process_tree.hpp"

namespace cpprun::launcher {
namespace {

// How long the guardian insists before it gives up on processes that SIGKILL does not end (uninterruptible
// sleep in the kernel).
constexpr int kKillLimitSeconds = 10;
constexpr std::chrono::milliseconds kLastWordsPatience{1000};

[[noreturn]] void refuse(const char* call) {
  throw std::system_error(errno, std::generic_category(), std::string("cannot start the agent: ") + call);
}

sigset_t passed_on() {
  sigset_t set;
  ::sigfillset(&set);
  // Faults of our own, the terminal's job control, and what cannot be caught stay with the kernel.
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS, SIGTSTP, SIGTTIN,
                           SIGTTOU, SIGCONT, SIGPIPE}) {
    ::sigdelset(&set, signal);
  }
  return set;
}

// Kills all that is below this process until nothing is left. False when something could not be ended.
bool end_descendants() {
  timespec start;
  ::clock_gettime(CLOCK_MONOTONIC, &start);
  for (;;) {
    for (const ProcessEntry& entry : descendants(::getpid())) {
      if (!entry.zombie) ::kill(entry.pid, SIGKILL);
    }
    while (::waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    if (::waitpid(-1, nullptr, WNOHANG) < 0 && errno == ECHILD) return true;
    timespec now;
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec - start.tv_sec > kKillLimitSeconds) return false;
    // Woken by the next death, or after a moment in which a new process may have been forked.
    sigset_t child;
    ::sigemptyset(&child);
    ::sigaddset(&child, SIGCHLD);
    const timespec moment{0, 20'000'000};
    ::sigtimedwait(&child, nullptr, &moment);
  }
}

void remove_all(const std::string& folder) {
  std::error_code ignored;
  if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
}

int end_of_agent(const Guardianship& guardianship, pid_t agent, const ExitStatus& status) {
  const bool all_ended = end_descendants();
  leave(guardianship.control);
  remove_all(guardianship.progress_folder);  // an agent at its limit of open files cannot
  if (!guardianship.timer_file.empty()) remove_timer_file(guardianship.timer_file);
  if (const Exited* exited = std::get_if<Exited>(&status)) return exited->code;
  std::string text = "cpprun: the agent (pid " + std::to_string(agent) + ") was ended by " +
                     describe(status) + "; its workers were killed";
  if (!all_ended) text += ", but some of them are in uninterruptible sleep and had to be abandoned";
  write_patiently(STDERR_FILENO, text + "\n", kLastWordsPatience);
  if (guardianship.agent_ended) guardianship.agent_ended(agent, status);
  remove_all(guardianship.temporary_folder);
  return 128 + std::get<Signaled>(status).signal;
}

int guard(const Guardianship& guardianship, pid_t agent) {
  const sigset_t set = passed_on();
  for (;;) {
    const int signal = ::sigwaitinfo(&set, nullptr);
    if (signal < 0) continue;
    if (signal != SIGCHLD) {
      ::kill(agent, signal);
      ::kill(agent, SIGCONT);  // a stopped agent could not act on it
      continue;
    }
    int status = 0;
    for (pid_t ended = ::waitpid(-1, &status, WNOHANG); ended > 0; ended = ::waitpid(-1, &status, WNOHANG)) {
      if (ended == agent) return end_of_agent(guardianship, agent, decode_wait_status(status));
    }
  }
}

}  // namespace

int run_guarded(const Guardianship& guardianship, const std::function<int(const AgentSeat&)>& agent) {
  // With an inherited SIG_IGN the kernel would reap our children behind our back.
  ::signal(SIGCHLD, SIG_DFL);
  AgentSeat seat;
  int guardian_pipe[2];
  if (::pipe2(guardian_pipe, O_CLOEXEC) != 0) refuse("pipe2");
  const sigset_t set = passed_on();
  if (::sigprocmask(SIG_BLOCK, &set, &seat.original_mask) != 0) refuse("sigprocmask");
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) refuse("prctl(PR_SET_CHILD_SUBREAPER)");
  seat.original_umask = ::umask(0);
  ::umask(seat.original_umask & ~mode_t{S_IRWXU});
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) refuse("fork");
  if (child == 0) {
    ::close(guardian_pipe[1]);
    seat.guardian_pipe = guardian_pipe[0];
    // A session of its own: what a terminal sends to the user's process comes once, through the guardian.
    ::setsid();
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // not inherited
    ::prctl(PR_SET_NAME, "cpprun-agent");
    std::exit(agent(seat));
  }
  ::close(guardian_pipe[0]);
  return guard(guardianship, child);
}

}  // namespace cpprun::launcher
