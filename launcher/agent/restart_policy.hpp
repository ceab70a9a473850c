// What an agent does after something happened to its group. Pure.
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
using GroupEvent = std::variant<GroupSucceeded, GroupFailed, StopRequested, rendezvous::MembershipChanged,
                                rendezvous::RendezvousLost>;

enum class Next { Finish, Restart, Fail, Stop };

struct RestartDecision {
  Next next;
  bool charge_budget;  // the restart counts against --max-restarts
  std::string reason;
};

RestartDecision decide_restart(const GroupEvent& event, int restarts_left);

}  // namespace cpprun::launcher
