// What an agent does after something happened to its group or to the round. Pure.
#pragma once

#include <string>
#include <variant>

#include "launcher/report/failure_report.hpp"
#include "rendezvous/rendezvous_handler.hpp"

namespace cpprun::launcher {

struct Succeeded {};
struct Failed {
  FailureReport report;
};
struct StoppedBy {
  int signal;
};
using RunResult = std::variant<Succeeded, Failed, StoppedBy>;

// All workers of this node ended well, or one failed.
struct GroupSucceeded {};
struct GroupFailed {
  std::string what;            // the failure noticed first, in a line
  std::string why_no_restart;  // empty: a restart may help
};
struct StopRequested {
  int signal;
};
using GroupEvent = std::variant<GroupSucceeded, GroupFailed, StopRequested, rendezvous::RoundEnd,
                                rendezvous::NodeLost, rendezvous::RendezvousLost>;

enum class Next {
  Finish,   // the exit barrier, then the good end
  Restart,  // all workers of all nodes
  Fail,     // for good
  Stop,     // as the user wished
  GiveUp,   // without a rendezvous nothing can be agreed on
};

struct RestartDecision {
  Next next;
  bool charge_budget;  // the restart counts against --max-restarts
  std::string reason;
};

// `restarts_left` is the job's.
RestartDecision decide_restart(const GroupEvent& event, int restarts_left);

}  // namespace cpprun::launcher
