#include "launcher/process/process_tree.hpp"

#include <dirent.h>
#include <unistd.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "launcher/process/small_file.hpp"

namespace cpprun::launcher {
namespace {

// Children by the kernel's own list; nothing where the kernel was built without it.
std::optional<std::vector<pid_t>> listed_children(pid_t pid) {
  const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
  DIR* folder = ::opendir(tasks.c_str());
  if (!folder) return std::vector<pid_t>{};
  std::vector<pid_t> children;
  bool supported = true;
  while (const dirent* entry = ::readdir(folder)) {
    if (entry->d_name[0] == '.') continue;
    const std::string path = tasks + "/" + entry->d_name + "/children";
    const std::string text = read_small_file(path);
    if (text.empty() && ::access(path.c_str(), F_OK) != 0 && ::access(tasks.c_str(), F_OK) == 0 &&
        ::access((tasks + "/" + entry->d_name).c_str(), F_OK) == 0) {
      supported = false;
    }
    const char* at = text.c_str();
    char* end = nullptr;
    for (long child = std::strtol(at, &end, 10); end != at; child = std::strtol(at, &end, 10)) {
      children.push_back(static_cast<pid_t>(child));
      at = end;
    }
  }
  ::closedir(folder);
  if (!supported) return std::nullopt;
  return children;
}

// The slow way: one pass over all processes of the machine.
std::multimap<pid_t, pid_t> scan_parents() {
  std::multimap<pid_t, pid_t> by_parent;
  DIR* folder = ::opendir("/proc");
  if (!folder) return by_parent;
  while (const dirent* entry = ::readdir(folder)) {
    const pid_t pid = static_cast<pid_t>(std::atol(entry->d_name));
    if (pid <= 0) continue;
    if (const std::optional<ProcessStat> stat = read_stat(pid)) by_parent.emplace(stat->parent, pid);
  }
  ::closedir(folder);
  return by_parent;
}

}  // namespace

std::optional<ProcessStat> read_stat(pid_t pid) {
  const std::string text = read_small_file("/proc/" + std::to_string(pid) + "/stat");
  // The command name stands in parentheses and may itself hold any character: what counts is the last one.
  const std::size_t close = text.rfind(')');
  if (close == std::string::npos) return std::nullopt;
  ProcessStat stat{};
  const int fields =
      std::sscanf(text.c_str() + close + 1,
                  " %c %d %d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64,
                  &stat.state, &stat.parent, &stat.group, &stat.started);
  if (fields != 4) return std::nullopt;
  return stat;
}

std::vector<ProcessEntry> descendants(pid_t root) {
  std::vector<ProcessEntry> found;
  std::optional<std::multimap<pid_t, pid_t>> scanned;
  std::vector<pid_t> open{root};
  for (std::size_t next = 0; next < open.size(); ++next) {
    std::vector<pid_t> children;
    std::optional<std::vector<pid_t>> listed;
    if (!scanned) listed = listed_children(open[next]);
    if (listed) {
      children = std::move(*listed);
    } else {
      if (!scanned) scanned = scan_parents();
      const auto [first, last] = scanned->equal_range(open[next]);
      for (auto entry = first; entry != last; ++entry) children.push_back(entry->second);
    }
    for (const pid_t child : children) {
      const std::optional<ProcessStat> stat = read_stat(child);
      if (!stat) continue;
      found.push_back({child, stat->group, stat->state == 'Z' || stat->state == 'X'});
      open.push_back(child);
    }
  }
  return found;
}

}  // namespace cpprun::launcher
