// The table of rules by which a verdict is found: conf/verdict_rules.json, which is built into the program,
// behind the user's own. Pure.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "launcher/report/verdict.hpp"

namespace cpprun::launcher {

// A file that is no table of rules; the sentence names the file, the rule and the key.
struct VerdictRuleError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// Something that is known of a failure, beside its status and its words.
enum class Fact {
  StoppedByAgent,    // after the job's end had begun
  Hang,              // the agent ended it for that
  ExecError,         // the program could not be started
  ErrorRecord,       // the worker left one
  OomKill,           // the kernel killed it, or one in its memory cgroup, for want of memory
  MachineOomKill,    // the kernel killed somebody on this machine for that
  DiskFull,          // a file system of the job has no space
  SharedMemoryFull,  // the same of /dev/shm
  Signaled           // ended by a signal, whichever
};

// What must hold, each thing that is named. Within a list one is enough.
struct RuleCondition {
  std::vector<int> exit_codes;
  std::vector<int> signals;
  std::vector<std::string> exec_errors;  // names: "ENOENT"
  std::vector<Fact> facts;               // all of them
  // Globs, which must occur within one line ("*" stands for anything):
  std::vector<std::string> words;  // of the error's own statement; without one, of the last lines of stderr
  std::vector<std::string> stderr_lines;  // of the end of stderr
  std::vector<std::string> kernel_lines;  // of the kernel's log since the attempt's start
};

struct VerdictRule {
  std::string name;
  FailureClass cls = FailureClass::Unknown;
  RuleCondition when;
  double confidence = 0;
  std::string evidence;  // with ${line}, ${error}, ${exit_code}, ${signal}, ${exec_error}, ${disk}, ${pid}
  std::string advice;
};

class VerdictRules {
 public:
  VerdictRules() = default;

  // `file` is its name in sentences. Throws VerdictRuleError.
  static VerdictRules parse(const std::string& text, const std::string& file);
  static const VerdictRules& built_in();

  // These first, then `others`.
  VerdictRules before(const VerdictRules& others) const;
  const std::vector<VerdictRule>& all() const { return rules_; }

 private:
  std::vector<VerdictRule> rules_;
};

// Whether `glob` occurs in `line`; "*" in it stands for any characters. Time: length of the line times the
// number of pieces between the stars, at most.
bool occurs(const std::string& glob, const std::string& line);

}  // namespace cpprun::launcher
