#include "launcher/health/resource_evidence.hpp"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/health/memory_groups.hpp"
#include "launcher/report/verdict_rules.hpp"

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMachineCounter = "/proc/vmstat";
constexpr int kMostKernelRecords = 2'000;  // of one look; each is a call
constexpr std::size_t kMostKernelLines = 64;
constexpr int kMostEntries = 2'000;  // of a folder of cores

// What is worth keeping of the kernel's log.
bool is_of_interest(const std::string& line) {
  for (const char* glob : {"Out of memory", "oom-kill", "oom_reaper", "Killed process", "segfault at",
                           "traps: ", "general protection", "NVRM: ", "Xid", "I/O error", "EXT4-fs error",
                           "XFS*error", "Machine check", "Hardware Error", "nfs: server*not responding"}) {
    if (occurs(glob, line)) return true;
  }
  return false;
}

// A file system whose server may not answer; asking it could stop the whole agent.
bool is_remote(const std::string& type) {
  for (const char* glob : {"nfs", "cifs", "smb", "fuse", "lustre", "gpfs", "ceph", "9p", "beegfs", "afs"}) {
    if (occurs(glob, type)) return true;
  }
  return false;
}

// The type of the file system that is mounted nearest above `path`.
std::string type_at(const std::string& path) {
  std::ifstream mounts("/proc/self/mountinfo");
  std::string best;
  std::string type;
  for (std::string line; std::getline(mounts, line);) {
    const std::size_t dash = line.find(" - ");
    if (dash == std::string::npos) continue;
    std::istringstream before(line);
    std::string word, mounted_at;
    before >> word >> word >> word >> word >> mounted_at;
    const bool above = mounted_at == "/" || path == mounted_at || path.rfind(mounted_at + "/", 0) == 0;
    if (!above || mounted_at.size() < best.size()) continue;
    best = mounted_at;
    type = line.substr(dash + 3, line.find(' ', dash + 3) - dash - 3);
  }
  return type;
}

std::string first_line(const char* path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// core(5): what is not known here, such as the time, becomes a star.
std::string core_name(const std::string& pattern, pid_t pid, int signal) {
  std::string name;
  bool with_pid = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      name += pattern[i];
      continue;
    }
    const char what = pattern[++i];
    with_pid = with_pid || what == 'p';
    name += what == '%'   ? "%"
            : what == 'p' ? std::to_string(pid)
            : what == 's' ? std::to_string(signal)
                          : "*";
  }
  const bool append = !with_pid && first_line("/proc/sys/kernel/core_uses_pid") == "1";
  return append ? name + "." + std::to_string(pid) : name;
}

}  // namespace

ResourceEvidence::ResourceEvidence(std::vector<std::string> places) : places_(std::move(places)) {}

ResourceEvidence::~ResourceEvidence() {
  if (kernel_log_ >= 0) ::close(kernel_log_);
}

void ResourceEvidence::begin() {
  kills_before_.clear();
  kernel_lines_.clear();
  machine_kills_before_ = oom_kills_in(kMachineCounter);
  watch(::getpid());
  if (kernel_log_ < 0) kernel_log_ = ::open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (kernel_log_ >= 0) ::lseek(kernel_log_, 0, SEEK_END);
}

void ResourceEvidence::watch(pid_t pid) {
  for (const std::string& file : oom_counters_of(pid)) {
    if (kills_before_.count(file) == 0) kills_before_[file] = oom_kills_in(file);
  }
}

// The kernel gives one record a read: "6,1234,5678901,-;the line", and lines of details that begin with a
// space.
void ResourceEvidence::read_kernel_log() {
  char record[8 * 1024];
  for (int i = 0; kernel_log_ >= 0 && i < kMostKernelRecords; ++i) {
    const ssize_t n = ::read(kernel_log_, record, sizeof record);
    if (n < 0 && (errno == EPIPE || errno == EINTR)) continue;  // some were overwritten: those behind follow
    if (n <= 0) return;
    std::string line(record, static_cast<std::size_t>(n));
    line.erase(std::min(line.find('\n'), line.size()));
    line.erase(0, line.find(';') + 1);
    if (is_of_interest(line) && kernel_lines_.size() < kMostKernelLines) kernel_lines_.push_back(line);
  }
}

NodeEvidence ResourceEvidence::look() {
  read_kernel_log();
  NodeEvidence evidence;
  evidence.kernel_lines = kernel_lines_;
  evidence.machine_oom_kills = oom_kills_in(kMachineCounter) - machine_kills_before_;
  for (const auto& [file, before] : kills_before_) {
    // A process may be counted by its group and by one above it.
    evidence.group_oom_kills = std::max(evidence.group_oom_kills, oom_kills_in(file) - before);
  }
  for (const std::string& place : places_) {
    struct statvfs about {};
    if (is_remote(type_at(place)) || ::statvfs(place.c_str(), &about) != 0) continue;
    const std::uint64_t block = about.f_frsize;
    evidence.file_systems.push_back({place, about.f_bavail * block, about.f_blocks * block});
  }
  return evidence;
}

std::string core_dump_of(pid_t pid, const ExitStatus& status, const std::string& folder) {
  const Signaled* signaled = std::get_if<Signaled>(&status);
  if (!signaled || !signaled->core) return "";
  const std::string pattern = first_line("/proc/sys/kernel/core_pattern");
  if (!pattern.empty() && pattern[0] == '|') return "given to " + pattern.substr(1, pattern.find(' ') - 1);
  const fs::path wanted = fs::path(folder) / core_name(pattern, pid, signaled->signal);
  const std::string glob = wanted.filename().string();
  std::error_code error;
  if (glob.find('*') == std::string::npos) return fs::exists(wanted, error) ? wanted.string() : "";
  int left = kMostEntries;
  for (fs::directory_iterator entry(wanted.parent_path(), error), end; !error && entry != end && left-- > 0;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (occurs(glob, name) && name.find(std::to_string(pid)) != std::string::npos)
      return entry->path().string();
  }
  return "";
}

}  // namespace cpprun::launcher
