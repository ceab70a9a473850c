#include "launcher/agent/restart_policy.hpp"

#include <csignal>

namespace cpprun::launcher {
namespace {

struct Decide {
  int restarts_left;

  RestartDecision operator()(const GroupSucceeded&) const {
    return {Next::Finish, false, "all workers ended well"};
  }
  RestartDecision operator()(const GroupFailed& failed) const {
    if (!failed.why_no_restart.empty()) {
      return {Next::Fail, false, failed.what + "; " + failed.why_no_restart + ", so it is not restarted"};
    }
    if (restarts_left > 0) {
      return {Next::Restart, true,
              failed.what + "; restarting all workers, " + std::to_string(restarts_left - 1) +
                  (restarts_left == 2 ? " restart left" : " restarts left")};
    }
    return {Next::Fail, false, failed.what + "; no restarts left"};
  }
  RestartDecision operator()(const StopRequested& stop) const {
    // Nobody can send us SIGKILL and have us live: it stands for the end of the guardian.
    return {Next::Stop, false,
            stop.signal == SIGKILL ? "cpprun was killed; ending its workers"
                                   : "received " + signal_name(stop.signal)};
  }
  RestartDecision operator()(const rendezvous::MembershipChanged& change) const {
    return {Next::Restart, false, std::to_string(change.waiting) + " node(s) wait to join"};
  }
  RestartDecision operator()(const rendezvous::RendezvousLost& lost) const {
    return {Next::Restart, false, "the rendezvous was lost: " + lost.reason};
  }
};

}  // namespace

RestartDecision decide_restart(const GroupEvent& event, int restarts_left) {
  return std::visit(Decide{restarts_left}, event);
}

}  // namespace cpprun::launcher
