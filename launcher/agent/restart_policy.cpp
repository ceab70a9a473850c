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
    return restart_or_fail(failed.what);
  }
  RestartDecision operator()(const StopRequested& stop) const {
    // Nobody can send us SIGKILL and have us live: it stands for the end of the guardian.
    return {Next::Stop, false,
            stop.signal == SIGKILL ? "cpprun was killed; ending its workers"
                                   : "received " + signal_name(stop.signal)};
  }
  // Another agent has decided already, for all.
  RestartDecision operator()(const rendezvous::RoundEnd& end) const {
    return {end.final ? Next::Fail : Next::Restart, end.charged, end.sentence};
  }
  RestartDecision operator()(const rendezvous::NodeLost& lost) const { return restart_or_fail(lost.what); }
  RestartDecision operator()(const rendezvous::RendezvousLost& lost) const {
    return {Next::GiveUp, false, "the rendezvous was lost: " + lost.reason};
  }

  RestartDecision restart_or_fail(const std::string& what) const {
    if (restarts_left <= 0) return {Next::Fail, true, what + "; no restarts left"};
    return {Next::Restart, true,
            what + "; restarting all workers, " + std::to_string(restarts_left - 1) +
                (restarts_left == 2 ? " restart left" : " restarts left")};
  }
};

}  // namespace

RestartDecision decide_restart(const GroupEvent& event, int restarts_left) {
  return std::visit(Decide{restarts_left}, event);
}

}  // namespace cpprun::launcher
