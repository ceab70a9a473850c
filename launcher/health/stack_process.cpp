#include "launcher/health/stack_process.hpp"

#include <algorithm>
#include <optional>
#include <vector>

#include "launcher/process/process_tree.hpp"
#include "launcher/process/small_file.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

// Wrappers in wrappers, such as a shell that runs a tracer that runs the script.
constexpr int kMostWrappers = 4;

std::string proc_file(pid_t pid, const char* name) {
  return trim(read_small_file("/proc/" + std::to_string(pid) + "/" + name));
}

// Not by /proc/<pid>/syscall: a process that is stuck in exec holds up its readers.
bool waits_for_a_child(pid_t pid) {
  return proc_file(pid, "wchan") == "do_wait";
}

// Nothing where it has none or several.
std::optional<pid_t> only_child(pid_t pid) {
  std::optional<pid_t> child;
  for (const ProcessEntry& entry : descendants(pid)) {
    const std::optional<ProcessStat> stat = read_stat(entry.pid);
    if (entry.zombie || !stat || stat->parent != pid) continue;
    if (child) return std::nullopt;
    child = entry.pid;
  }
  return child;
}

bool lives_below(pid_t worker, pid_t pid) {
  const std::vector<ProcessEntry> below = descendants(worker);
  return std::any_of(below.begin(), below.end(),
                     [pid](const ProcessEntry& entry) { return entry.pid == pid && !entry.zombie; });
}

pid_t awaited_by(pid_t worker) {
  pid_t pid = worker;
  for (int wrappers = 0; wrappers < kMostWrappers && waits_for_a_child(pid); ++wrappers) {
    const std::optional<pid_t> child = only_child(pid);
    if (!child) break;
    pid = *child;
  }
  return pid;
}

}  // namespace

StackProcess process_that_works(pid_t worker, pid_t writer) {
  StackProcess process;
  process.pid = worker;
  if (writer == worker) return process;
  process.pid = writer > 0 && lives_below(worker, writer) ? writer : awaited_by(worker);
  if (process.pid == worker) return process;
  process.note =
      "it runs below the worker's " + proc_file(worker, "comm") + " (pid " + std::to_string(worker) + ")";
  return process;
}

}  // namespace cpprun::launcher
