// What became of an agent's workers, and what the agent then wants of the round. Pure.
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
  bool timed_out = false;      // it gave up waiting for others, which still stand where it waited for them
};
struct StopRequested {
  int signal;
};
using GroupEvent = std::variant<GroupSucceeded, GroupFailed, StopRequested, rendezvous::RoundEnd,
                                rendezvous::RendezvousLost>;

// How the round is to end after a worker failed, or after the node was told to stop. `who`: begins the
// sentence, "node 1 (hostB)", or empty where there is only one. What it costs and whether it is the last word
// is for the rendezvous to say, save where a restart cannot help. `cause` is what the other agents report.
rendezvous::RoundEnd end_by_failure(const std::string& who, const GroupFailed& failed, std::string cause);
rendezvous::RoundEnd end_by_stop(const std::string& who, const StopRequested& stop);

}  // namespace cpprun::launcher
