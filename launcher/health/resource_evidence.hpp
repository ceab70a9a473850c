// What the kernel and the file systems of this node tell of an attempt: kills for want of memory, lines of
// the kernel's log, free space, core dumps. What may not be read is left out without a word.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/process/exit_status.hpp"
#include "launcher/report/verdict.hpp"

namespace cpprun::launcher {

class ResourceEvidence {
 public:
  // `places`: files or folders on the file systems that the job uses.
  explicit ResourceEvidence(std::vector<std::string> places);
  ~ResourceEvidence();
  ResourceEvidence(const ResourceEvidence&) = delete;
  ResourceEvidence& operator=(const ResourceEvidence&) = delete;

  // An attempt begins: what was before does not count.
  void begin();
  // A process of it, while it lives: its memory cgroups count too.
  void watch(pid_t pid);
  // Since begin(). A few file reads, each bounded; file systems of the network, which could hang, are not
  // asked.
  NodeEvidence look();

 private:
  void read_kernel_log();

  std::vector<std::string> places_;
  std::map<std::string, std::int64_t> kills_before_;  // by the file that counts them
  std::int64_t machine_kills_before_ = 0;
  std::vector<std::string> kernel_lines_;
  int kernel_log_ = -1;
};

// Where the kernel put the core of a process that was started in `folder`, or the program that it piped it
// to; empty where it wrote none or it is not found.
std::string core_dump_of(pid_t pid, const ExitStatus& status, const std::string& folder);

}  // namespace cpprun::launcher
