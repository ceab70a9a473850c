// How a process ended. Decoded once, from the kernel's own words, and never again guessed from a number.
#pragma once

#include <string>
#include <variant>

namespace cpprun::launcher {

struct Exited {
  int code = 0;
};
struct Signaled {
  int signal = 0;
  bool core = false;  // a core file was written
};
using ExitStatus = std::variant<Exited, Signaled>;

// From the status word of waitpid(2); the process must have ended (not stopped or continued).
ExitStatus decode_wait_status(int status);

bool succeeded(const ExitStatus& status);

// "SIGKILL"; "SIGRTMIN+3"; "signal 99" where the number has no name.
std::string signal_name(int signal);

// The number of "SIGTERM", "TERM" or "15"; 0 where there is none such.
int signal_number(const std::string& name);

// "exit code 7", "SIGSEGV (core dumped)".
std::string describe(const ExitStatus& status);

}  // namespace cpprun::launcher
