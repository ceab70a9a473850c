// What kind of failure it was, by which evidence, and what to do about it. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cpprun::launcher {

struct WorkerFailure;
class VerdictRules;

enum class FailureClass {
  Unknown,
  Exception,
  ImportError,
  ExecFailure,
  ExitCode,
  Signal,
  SegmentationFault,
  Abort,
  OutOfMemory,
  DiskFull,
  KilledExternally,
  AddressInUse,
  Hang,
  Timeout,
  PeerFailure,
  NodeLost,
  StoreLost,
  CheckpointCorrupt,
  GpuError,
};

// "import_error", as in failure.json and in rules.
const char* class_name(FailureClass cls);
std::optional<FailureClass> class_called(const std::string& name);

// The failure says that somebody else was missing: where another has a cause of its own, this one only
// follows from it.
bool may_follow_from_another(FailureClass cls);

struct Verdict {
  FailureClass cls = FailureClass::Unknown;
  std::vector<std::string> evidence;  // the strongest first; a line each
  std::string advice;                 // what to do, in a sentence or two
  double confidence = 0;              // 0 to 1
};

struct FileSystemSpace {
  std::string path;  // of something on it that the job uses
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

// What a node's kernel and file systems tell of the time of an attempt.
struct NodeEvidence {
  std::int64_t group_oom_kills = 0;       // in the memory cgroups of the agent and of its workers
  std::int64_t machine_oom_kills = 0;     // on the whole machine, by whatever limit
  std::vector<std::string> kernel_lines;  // of the kernel's log, about memory, faults, GPUs and disks
  std::vector<FileSystemSpace> file_systems;
};

// By the first rule that fits. `rules` end with one that fits everything: the class is Unknown only where the
// user's own rules say so.
Verdict judge(const WorkerFailure& failure, const NodeEvidence& node, const VerdictRules& rules);

}  // namespace cpprun::launcher
