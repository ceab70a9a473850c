#include "launcher/process/exit_status.hpp"

#include <sys/wait.h>

#include <csignal>
#include <cstring>

#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

std::string without_prefix(const std::string& name) {
  return name.rfind("SIG", 0) == 0 ? name.substr(3) : name;
}

}  // namespace

ExitStatus decode_wait_status(int status) {
  if (WIFSIGNALED(status)) return Signaled{WTERMSIG(status), WCOREDUMP(status) != 0};
  return Exited{WEXITSTATUS(status)};
}

bool succeeded(const ExitStatus& status) {
  const Exited* exited = std::get_if<Exited>(&status);
  return exited && exited->code == 0;
}

std::string signal_name(int signal) {
  if (const char* name = ::sigabbrev_np(signal)) return std::string("SIG") + name;
  if (signal >= SIGRTMIN && signal <= SIGRTMAX) return "SIGRTMIN+" + std::to_string(signal - SIGRTMIN);
  return "signal " + std::to_string(signal);
}

int signal_number(const std::string& name) {
  const std::string wanted = without_prefix(name);
  for (int signal = 1; signal < SIGRTMIN; ++signal) {
    const char* abbreviation = ::sigabbrev_np(signal);
    if (abbreviation && wanted == abbreviation) return signal;
  }
  if (wanted == "IO") return SIGIO;  // the same as SIGPOLL, and the commoner name
  if (wanted.rfind("RTMIN+", 0) == 0) {
    const int offset = whole_number(wanted.substr(6)).value_or(-1);
    return offset >= 0 && SIGRTMIN + offset <= SIGRTMAX ? SIGRTMIN + offset : 0;
  }
  const int number = whole_number(wanted).value_or(0);
  return number > 0 && number <= SIGRTMAX ? number : 0;
}

std::string describe(const ExitStatus& status) {
  if (const Exited* exited = std::get_if<Exited>(&status)) return "exit code " + std::to_string(exited->code);
  const Signaled& signaled = std::get<Signaled>(status);
  return signal_name(signaled.signal) + (signaled.core ? " (core dumped)" : "");
}

}  // namespace cpprun::launcher
