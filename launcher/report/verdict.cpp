#include "launcher/report/verdict.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <system_error>
#include <utility>

#include "launcher/report/failure_report.hpp"
#include "launcher/report/testimony.hpp"
#include "launcher/report/verdict_rules.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

constexpr std::pair<FailureClass, const char*> kNames[] = {
    {FailureClass::Unknown, "unknown"},
    {FailureClass::Exception, "exception"},
    {FailureClass::ImportError, "import_error"},
    {FailureClass::ExecFailure, "exec_failure"},
    {FailureClass::ExitCode, "exit_code"},
    {FailureClass::Signal, "signal"},
    {FailureClass::SegmentationFault, "segmentation_fault"},
    {FailureClass::Abort, "abort"},
    {FailureClass::OutOfMemory, "out_of_memory"},
    {FailureClass::DiskFull, "disk_full"},
    {FailureClass::KilledExternally, "killed_externally"},
    {FailureClass::AddressInUse, "address_in_use"},
    {FailureClass::Hang, "hang"},
    {FailureClass::Timeout, "timeout"},
    {FailureClass::PeerFailure, "peer_failure"},
    {FailureClass::NodeLost, "node_lost"},
    {FailureClass::StoreLost, "store_lost"},
    {FailureClass::CheckpointCorrupt, "checkpoint_corrupt"},
    {FailureClass::GpuError, "gpu_error"},
};

// A file system with less than this is full: a log line may still fit, a file does not.
constexpr std::uint64_t kFull = 256 * 1024;
constexpr std::size_t kLongestEvidence = 400;
constexpr std::size_t kMostKernelLines = 4;

bool is_full(const FileSystemSpace& space) {
  return space.total_bytes > 0 && space.free_bytes < kFull;
}

// As a whole number, wherever it stands.
bool names_pid(const std::string& line, pid_t pid) {
  const std::string digits = std::to_string(pid);
  const auto is_digit = [&](std::size_t at) {
    return at < line.size() && line[at] >= '0' && line[at] <= '9';
  };
  for (std::size_t at = line.find(digits); at != std::string::npos; at = line.find(digits, at + 1)) {
    const bool before = at > 0 && is_digit(at - 1);
    if (!before && !is_digit(at + digits.size())) return true;
  }
  return false;
}

std::string shortened(const std::string& line) {
  if (line.size() <= kLongestEvidence) return line;
  return line.substr(0, kLongestEvidence) + "...";
}

// Everything that rules ask of one failure.
class Case {
 public:
  Case(const WorkerFailure& failure, const NodeEvidence& node)
      : failure_(failure), node_(node), said_(testimony_of(failure)) {
    for (const std::string& line : node.kernel_lines) {
      if (names_pid(line, failure.pid)) kernel_lines_.push_back(line);
    }
  }

  // The line that fitted, or empty text where no words were asked for; nothing: the rule does not fit.
  std::optional<std::string> fit(const RuleCondition& when) const {
    if (!fits_status(when)) return std::nullopt;
    for (const Fact fact : when.facts) {
      if (!holds(fact)) return std::nullopt;
    }
    std::optional<std::string> line("");
    for (const auto& [globs, lines] :
         {std::pair(&when.words, &said_.statement), std::pair(&when.stderr_lines, &said_.stderr_lines),
          std::pair(&when.kernel_lines, &node_.kernel_lines)}) {
      if (globs->empty()) continue;
      line = first_with(*globs, *lines);
      if (!line) return std::nullopt;
    }
    return line;
  }

  Verdict conclude(const VerdictRule& rule, const std::string& line) const {
    Verdict verdict{rule.cls, {}, rule.advice, rule.confidence};
    const std::string text = trim(shortened(substitute(rule.evidence, values(line))));
    if (!text.empty()) verdict.evidence.push_back(text);
    add_further(verdict.evidence);
    if (rule.cls == FailureClass::OutOfMemory && failure_.peak_memory_kib > 0) {
      verdict.evidence.push_back(
          "most memory that it used: " + std::to_string(failure_.peak_memory_kib / 1024) + " MiB");
    }
    return verdict;
  }

 private:
  bool fits_status(const RuleCondition& when) const {
    const Exited* exited = std::get_if<Exited>(&failure_.status);
    const Signaled* signaled = std::get_if<Signaled>(&failure_.status);
    const auto among = [](const auto& list, const auto& value) {
      return std::find(list.begin(), list.end(), value) != list.end();
    };
    if (!when.exit_codes.empty() && !(exited && among(when.exit_codes, exited->code))) return false;
    if (!when.signals.empty() && !(signaled && among(when.signals, signaled->signal))) return false;
    return when.exec_errors.empty() || (failure_.exec_error != 0 && among(when.exec_errors, exec_error()));
  }

  std::string exec_error() const {
    const char* name = ::strerrorname_np(failure_.exec_error);
    return name ? name : std::to_string(failure_.exec_error);
  }

  bool killed_for_memory() const {
    return std::any_of(kernel_lines_.begin(), kernel_lines_.end(), [](const std::string& line) {
      return occurs("Killed process", line) || occurs("Out of memory", line);
    });
  }

  const FileSystemSpace* full_file_system(bool shared_memory) const {
    for (const FileSystemSpace& space : node_.file_systems) {
      if (is_full(space) && (space.path == "/dev/shm") == shared_memory) return &space;
    }
    return nullptr;
  }

  bool holds(Fact fact) const {
    switch (fact) {
      case Fact::StoppedByAgent:
        return failure_.stopped_by_agent;
      case Fact::Hang:
        return !failure_.condemned.empty();
      case Fact::ExecError:
        return failure_.exec_error != 0;
      case Fact::ErrorRecord:
        return failure_.record.has_value();
      case Fact::OomKill:
        return node_.group_oom_kills > 0 || killed_for_memory();
      case Fact::MachineOomKill:
        return node_.machine_oom_kills > 0;
      case Fact::DiskFull:
        return full_file_system(false) != nullptr;
      case Fact::SharedMemoryFull:
        return full_file_system(true) != nullptr;
      case Fact::Signaled:
        return std::holds_alternative<Signaled>(failure_.status);
    }
    return false;
  }

  std::optional<std::string> first_with(const std::vector<std::string>& globs,
                                        const std::vector<std::string>& lines) const {
    std::vector<std::string> wanted;
    wanted.reserve(globs.size());
    for (const std::string& glob : globs) {
      wanted.push_back(substitute(glob, {{"pid", std::to_string(failure_.pid)}}));
    }
    for (const std::string& line : lines) {
      for (const std::string& glob : wanted) {
        if (occurs(glob, line)) return trim(line);
      }
    }
    return std::nullopt;
  }

  std::map<std::string, std::string> values(const std::string& line) const {
    const Exited* exited = std::get_if<Exited>(&failure_.status);
    const FileSystemSpace* full = full_file_system(false);
    return {
        {"line", line},
        {"error", said_.error},
        {"exit_code", exited ? std::to_string(exited->code) : ""},
        {"signal", exited ? "" : signal_name(std::get<Signaled>(failure_.status).signal)},
        {"exec_error", failure_.exec_error == 0 ? "" : std::generic_category().message(failure_.exec_error)},
        {"condemned", failure_.condemned},
        {"disk", full ? full->path : ""},
        {"pid", std::to_string(failure_.pid)},
    };
  }

  // What supports the verdict or helps to go on, beside the rule's own sentence.
  void add_further(std::vector<std::string>& evidence) const {
    const auto add = [&](std::string line) {
      if (std::find(evidence.begin(), evidence.end(), line) == evidence.end())
        evidence.push_back(std::move(line));
    };
    if (failure_.stopped_by_agent) return;
    if (!said_.error.empty() && (evidence.empty() || !occurs_plainly(said_.error, evidence.front())))
      add("its last word: " + shortened(said_.error));
    std::size_t lines = 0;
    for (const std::string& line : kernel_lines_) {
      if (++lines <= kMostKernelLines) add("kernel: " + shortened(line));
    }
    if (node_.group_oom_kills > 0)
      add("the kernel killed " + std::to_string(node_.group_oom_kills) +
          " process(es) of the job's memory cgroup for want of memory");
    for (const FileSystemSpace& space : node_.file_systems) {
      if (is_full(space)) add("no space left at " + space.path);
    }
    if (!failure_.core_dump.empty()) add("core dump: " + failure_.core_dump);
  }

  static bool occurs_plainly(const std::string& part, const std::string& text) {
    return text.find(shortened(part)) != std::string::npos;
  }

  const WorkerFailure& failure_;
  const NodeEvidence& node_;
  Testimony said_;
  std::vector<std::string> kernel_lines_;  // those that name the worker
};

}  // namespace

const char* class_name(FailureClass cls) {
  for (const auto& [known, name] : kNames) {
    if (known == cls) return name;
  }
  return "unknown";
}

std::optional<FailureClass> class_called(const std::string& name) {
  for (const auto& [cls, known] : kNames) {
    if (name == known) return cls;
  }
  return std::nullopt;
}

bool may_follow_from_another(FailureClass cls) {
  return cls == FailureClass::PeerFailure || cls == FailureClass::StoreLost || cls == FailureClass::Timeout;
}

Verdict judge(const WorkerFailure& failure, const NodeEvidence& node, const VerdictRules& rules) {
  const Case facts(failure, node);
  for (const VerdictRule& rule : rules.all()) {
    if (const std::optional<std::string> line = facts.fit(rule.when)) return facts.conclude(rule, *line);
  }
  return {};
}

}  // namespace cpprun::launcher
