#include "launcher/health/process_states.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "launcher/process/process_tree.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostThreads = 64;  // of one process
constexpr char kLeftOut[] = "further processes are left out\n";

// The first line of a small file of /proc; empty where it cannot be read.
std::string first_line(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  char buffer[256];
  const ssize_t n = ::read(fd, buffer, sizeof buffer);
  ::close(fd);
  const std::string text(buffer, n < 0 ? 0 : static_cast<std::size_t>(n));
  return text.substr(0, text.find('\n'));
}

// "S" of "123 (name) S 1 ...": the name may hold anything, even a parenthesis.
std::string state_of(const std::string& stat) {
  const std::size_t close = stat.rfind(')');
  return close == std::string::npos || close + 2 >= stat.size() ? "?" : stat.substr(close + 2, 1);
}

std::vector<int> threads_of(pid_t pid) {
  std::vector<int> threads;
  std::error_code gone;
  fs::directory_iterator tasks(fs::path("/proc") / std::to_string(pid) / "task", gone);
  while (!gone && tasks != fs::directory_iterator()) {
    if (const std::optional<int> thread = whole_number(tasks->path().filename().string()))
      threads.push_back(*thread);
    tasks.increment(gone);
  }
  std::sort(threads.begin(), threads.end());
  return threads;
}

std::string process_text(pid_t pid) {
  const fs::path folder = fs::path("/proc") / std::to_string(pid);
  const std::vector<int> threads = threads_of(pid);
  std::string text = "  process " + std::to_string(pid) + " " + first_line(folder / "comm") + "\n";
  for (std::size_t i = 0; i < std::min(threads.size(), kMostThreads); ++i) {
    const fs::path task = folder / "task" / std::to_string(threads[i]);
    const std::string wchan = first_line(task / "wchan");
    text += "    thread " + std::to_string(threads[i]) + " " + state_of(first_line(task / "stat")) + " " +
            (wchan.empty() || wchan == "0" ? "-" : wchan) + " " + first_line(task / "comm") + "\n";
  }
  if (threads.size() > kMostThreads)
    text += "    and " + std::to_string(threads.size() - kMostThreads) + " threads more\n";
  return text;
}

}  // namespace

std::string process_states(const std::vector<WorkerProcess>& workers, std::size_t most_bytes) {
  std::string text;
  for (const WorkerProcess& worker : workers) {
    std::string paragraph =
        "rank " + std::to_string(worker.global_rank) + " (pid " + std::to_string(worker.pid) + ")\n";
    paragraph += process_text(worker.pid);
    for (const ProcessEntry& below : descendants(worker.pid)) paragraph += process_text(below.pid);
    if (text.size() + paragraph.size() + sizeof kLeftOut > most_bytes) return text + kLeftOut;
    text += paragraph;
  }
  return text;
}

}  // namespace cpprun::launcher
