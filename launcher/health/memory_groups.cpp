#include "launcher/health/memory_groups.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

struct Hierarchy {
  std::string mounted_at;
  std::string root;  // the group that is mounted there
  bool unified = false;
};

// Those that count memory, from this process's mounts.
std::vector<Hierarchy> hierarchies() {
  std::vector<Hierarchy> found;
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line.substr(0, dash));
    std::istringstream after(line.substr(dash + 3));
    std::string id, parent, device, type, source, options;
    Hierarchy hierarchy;
    before >> id >> parent >> device >> hierarchy.root >> hierarchy.mounted_at;
    after >> type >> source >> options;
    hierarchy.unified = type == "cgroup2";
    const std::vector<std::string> words = split(options, ',');
    const bool memory = std::find(words.begin(), words.end(), "memory") != words.end();
    if (hierarchy.unified || (type == "cgroup" && memory)) found.push_back(std::move(hierarchy));
  }
  return found;
}

// A container sees its own group at the mount's root, and /proc names the group as the host does or as "/".
std::string folder_of(const Hierarchy& hierarchy, std::string group) {
  if (hierarchy.root != "/" && group.rfind(hierarchy.root, 0) == 0) group.erase(0, hierarchy.root.size());
  std::error_code error;
  const std::string folder = hierarchy.mounted_at + "/" + group;
  return std::filesystem::is_directory(folder, error) ? folder : hierarchy.mounted_at;
}

}  // namespace

std::vector<std::string> oom_counters_of(pid_t pid) {
  std::vector<std::string> files;
  const std::vector<Hierarchy> all = hierarchies();
  std::ifstream groups("/proc/" + std::to_string(pid) + "/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/group", "0::/group"
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::vector<std::string> controllers = split(line.substr(first + 1, second - first - 1), ',');
    const bool unified = controllers == std::vector<std::string>{""};
    const bool memory = std::find(controllers.begin(), controllers.end(), "memory") != controllers.end();
    for (const Hierarchy& hierarchy : all) {
      if (hierarchy.unified ? !unified : !memory) continue;
      files.push_back(folder_of(hierarchy, line.substr(second + 1)) +
                      (unified ? "/memory.events" : "/memory.oom_control"));
    }
  }
  return files;
}

std::int64_t oom_kills_in(const std::string& file) {
  std::ifstream counts(file);
  for (std::string line; std::getline(counts, line);) {
    if (line.rfind("oom_kill ", 0) == 0) return std::strtoll(line.c_str() + 9, nullptr, 10);
  }
  return 0;
}

}  // namespace cpprun::launcher
