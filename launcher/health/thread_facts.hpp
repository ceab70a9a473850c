// What /proc tells of a process's threads without stopping it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cpprun::launcher {

struct ThreadFacts {
  pid_t tid = 0;
  std::string name;
  char state = '\0';                // the kernel's letter; 0 for a thread that is gone
  std::string wchan;                // the kernel's function in which it sleeps, where the kernel tells
  std::vector<std::string> kernel;  // its stack in the kernel, innermost first; for root only
  std::string note;                 // why it has no frames; else empty
};

// The main thread first; empty for a process that is gone. At most `most`.
std::vector<pid_t> thread_ids(pid_t pid, std::size_t most);
ThreadFacts read_thread(pid_t pid, pid_t tid);

// Where a thread that sleeps in the kernel came from; nothing for one that runs.
struct KernelEntry {
  std::uint64_t stack_pointer = 0;
  std::uint64_t pc = 0;
};
std::optional<KernelEntry> read_kernel_entry(pid_t pid, pid_t tid);

struct ProcessStatus {
  pid_t tracer = 0;                  // the debugger that traces it; 0: none
  std::uint64_t caught_signals = 0;  // bit n-1: it has a handler for signal n
};
ProcessStatus read_status(pid_t pid);

}  // namespace cpprun::launcher
