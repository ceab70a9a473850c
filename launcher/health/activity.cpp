#include "launcher/health/activity.hpp"

#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <string>

#include "launcher/health/thread_facts.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/small_file.hpp"

namespace cpprun::launcher {
namespace {

constexpr std::chrono::milliseconds kComputed{1};

std::string in_proc(pid_t pid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

// The number behind "name:" of a table of lines; 0 where there is none.
std::uint64_t field(const std::string& text, const char* name) {
  const std::size_t at = text.find(name);
  return at == std::string::npos ? 0 : std::strtoull(text.c_str() + at + std::strlen(name), nullptr, 10);
}

// By the process's own clock: /proc/<pid>/stat counts in hundredths of a second.
std::chrono::nanoseconds cpu_time(pid_t pid) {
  clockid_t clock{};
  timespec time{};
  if (::clock_getcpuclockid(pid, &clock) != 0 || ::clock_gettime(clock, &time) != 0) return {};
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

std::optional<ProcessActivity> read_activity(pid_t pid) {
  const std::string stat = read_small_file(in_proc(pid, "stat"));
  const std::size_t close = stat.rfind(')');
  if (close == std::string::npos) return std::nullopt;
  ProcessActivity activity;
  const int fields = std::sscanf(stat.c_str() + close + 1, " %c %*d %*d %*d %*d %*d %*u %" SCNu64,
                                 &activity.state, &activity.page_faults);
  if (fields != 2) return std::nullopt;
  activity.cpu_time = cpu_time(pid);
  activity.traced = read_status(pid).tracer != 0;
  const std::string io = read_small_file(in_proc(pid, "io"));
  activity.read = field(io, "rchar:");
  activity.written = field(io, "wchar:");
  return activity;
}

bool ChildrenActivity::busy(pid_t pid) {
  const bool first = known_.count(pid) == 0;
  std::map<pid_t, std::chrono::nanoseconds>& before = known_[pid];
  std::map<pid_t, std::chrono::nanoseconds> now;
  bool busy = false;
  for (const ProcessEntry& entry : descendants(pid)) {
    if (entry.zombie) continue;
    const std::chrono::nanoseconds time = cpu_time(entry.pid);
    const auto known = before.find(entry.pid);
    busy = busy || known == before.end() || time - known->second >= kComputed;
    now.emplace(entry.pid, time);
  }
  before = std::move(now);
  return busy && !first;
}

}  // namespace cpprun::launcher
