// Why a group of workers failed: for people on stderr, for programs as failure.json. Pure.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/agent/rank_assignment.hpp"
#include "launcher/process/exit_status.hpp"
#include "launcher/report/node_words.hpp"
#include "launcher/report/verdict.hpp"
#include "worker_runtime/contract/error_record.hpp"
#include "worker_runtime/contract/progress_page.hpp"

namespace cpprun::launcher {

struct WorkerFailure {
  WorkerRanks ranks{};
  pid_t pid = 0;
  ExitStatus status;
  bool ended = true;              // else the agent counts it as failed, and `status` means nothing yet
  int exec_error = 0;             // errno of a failed exec, else 0
  bool stopped_by_agent = false;  // ended after the agent had told it to
  std::string condemned;          // why the agent counted it as failed; empty: it failed by itself
  bool stuck = false;             // condemned for its uninterruptible sleep
  std::chrono::system_clock::time_point when;
  std::chrono::steady_clock::time_point moment;     // the same, by the clock of its progress page
  std::optional<worker::ProgressReading> progress;  // the last it said; nothing if it said none
  std::uint64_t batch = 0;                          // noticed together with others of the same number
  std::optional<worker::ErrorRecord> record;
  std::string error_file;  // empty if the worker left none; without `record` it is none that can be read
  std::string stderr_tail;
  std::string core_dump;             // its path, or the program that the kernel gave it to; empty: none known
  std::int64_t peak_memory_kib = 0;  // most resident memory of the process; 0: not known
  Verdict verdict;                   // Unknown until somebody has judged
};

struct FailureReport;

// Why another agent ended the attempt for all nodes, as it told them.
struct JobCause {
  std::string sentence;  // one line
  std::string text;    // of the boxed report; empty where no worker is to blame (a node was lost or stopped)
  std::string record;  // as `root_cause` in failure.json; empty likewise
  FailureClass cls = FailureClass::NodeLost;  // where no worker is to blame

  static JobCause of(const FailureReport& report);
  // This node has lost the run: its leader, or the store that the run is led by.
  static JobCause lost_rendezvous(const std::string& sentence);
  // This node's agent was ended, by somebody else.
  static JobCause lost_agent(const std::string& sentence);
  std::string to_json() const;
  // Of text that is none, a cause with `sentence` alone.
  static JobCause from_json(const std::string& text, const std::string& sentence);
};

struct FailureReport {
  std::string name;         // of the program
  std::string interpreter;  // empty for a program that runs by itself
  std::string host;
  std::string run_id;
  int attempt = 0;
  std::vector<WorkerFailure> failures{};  // of this node; not empty unless the cause lies elsewhere
  std::optional<JobCause> elsewhere{};    // the root cause, where another agent reported it
  std::vector<NodeWords> lost_nodes{};    // what those said last, as far as it is known
  std::optional<NodeWords> first_node{};  // what node 0 says of itself, where that is another
};

// The first failure that the agent did not cause itself and that has a cause of its own. One that says that
// somebody else was missing (may_follow_from_another) comes behind the others, whenever it was noticed. Among
// those noticed at the same moment: one that died by a signal of its own, then the earliest error record,
// then the lowest local rank. `failures` is not empty.
const WorkerFailure& root_cause(const std::vector<WorkerFailure>& failures);

// The worker recorded that its configuration is wrong (exit code 2): starting it again would not help.
bool refused_configuration(const WorkerFailure& failure);

// Why starting the workers again would not help after this failure; empty where it may.
std::string why_no_restart(const WorkerFailure& failure);

// One line: what happened, in the worker's own words where it left some.
std::string failure_message(const WorkerFailure& failure);

// "rank 1 (local_rank 1, pid 26677): exit code 7".
std::string summary(const WorkerFailure& failure);

// The boxed report in torchrun's layout, with the root cause's verdict and last lines of stderr; ends with a
// newline.
std::string to_text(const FailureReport& report);

// The content of failure.json; its schema is in launcher/README.md.
std::string to_json(const FailureReport& report);

}  // namespace cpprun::launcher
