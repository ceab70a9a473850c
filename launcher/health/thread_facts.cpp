#include "launcher/health/thread_facts.hpp"

#include <dirent.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>

#include "launcher/process/small_file.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

constexpr std::size_t kSmallFile = 64 * 1024;
constexpr std::size_t kMostKernelFrames = 64;

std::string task_file(pid_t pid, pid_t tid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/task/" + std::to_string(tid) + "/" + name;
}

// Lines such as "[<0>] futex_wait_queue+0x60/0x90": the function alone.
std::vector<std::string> kernel_functions(const std::string& text) {
  std::vector<std::string> functions;
  for (const std::string& line : split(text, '\n')) {
    const std::size_t begin = line.find("] ");
    if (begin == std::string::npos || functions.size() == kMostKernelFrames) continue;
    functions.push_back(line.substr(begin + 2, line.find('+') - begin - 2));
  }
  return functions;
}

// The letter behind the command's name, which may itself hold any character.
char state_in(const std::string& stat) {
  const std::size_t close = stat.rfind(')');
  return close != std::string::npos && close + 2 < stat.size() ? stat[close + 2] : '\0';
}

// The value of a line such as "TracerPid:\t0".
std::string field(const std::string& status, const std::string& name) {
  const std::size_t at = status.find("\n" + name + ":");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + name.size() + 2;
  return trim(status.substr(begin, status.find('\n', begin) - begin));
}

}  // namespace

std::vector<pid_t> thread_ids(pid_t pid, std::size_t most) {
  std::vector<pid_t> ids;
  DIR* folder = ::opendir(("/proc/" + std::to_string(pid) + "/task").c_str());
  if (!folder) return ids;
  while (const dirent* entry = ::readdir(folder)) {
    const pid_t tid = static_cast<pid_t>(std::atol(entry->d_name));
    if (tid > 0 && ids.size() < most) ids.push_back(tid);
  }
  ::closedir(folder);
  std::stable_partition(ids.begin(), ids.end(), [pid](pid_t tid) { return tid == pid; });
  return ids;
}

ThreadFacts read_thread(pid_t pid, pid_t tid) {
  ThreadFacts facts;
  facts.tid = tid;
  facts.name = trim(read_small_file(task_file(pid, tid, "comm"), kSmallFile));
  facts.state = state_in(read_small_file(task_file(pid, tid, "stat"), kSmallFile));
  facts.wchan = read_small_file(task_file(pid, tid, "wchan"), kSmallFile);
  if (facts.wchan == "0") facts.wchan.clear();
  facts.kernel = kernel_functions(read_small_file(task_file(pid, tid, "stack"), kSmallFile));
  return facts;
}

std::optional<KernelEntry> read_kernel_entry(pid_t pid, pid_t tid) {
  // "<number> <six arguments> <stack pointer> <pc>", "-1 <stack pointer> <pc>" or "running".
  const std::vector<std::string> words =
      split(trim(read_small_file(task_file(pid, tid, "syscall"), kSmallFile)), ' ');
  if (words.size() < 3) return std::nullopt;
  KernelEntry entry;
  entry.stack_pointer = std::strtoull(words[words.size() - 2].c_str(), nullptr, 16);
  entry.pc = std::strtoull(words.back().c_str(), nullptr, 16);
  if (entry.pc == 0 || entry.stack_pointer == 0) return std::nullopt;
  return entry;
}

ProcessStatus read_status(pid_t pid) {
  const std::string text = read_small_file("/proc/" + std::to_string(pid) + "/status", kSmallFile);
  ProcessStatus status;
  status.tracer = static_cast<pid_t>(std::atol(field(text, "TracerPid").c_str()));
  status.caught_signals = std::strtoull(field(text, "SigCgt").c_str(), nullptr, 16);
  return status;
}

}  // namespace cpprun::launcher
