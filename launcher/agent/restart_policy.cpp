#include "launcher/agent/restart_policy.hpp"

#include <csignal>
#include <utility>

namespace cpprun::launcher {

rendezvous::RoundEnd end_by_failure(const std::string& who, const GroupFailed& failed, std::string cause) {
  rendezvous::RoundEnd end;
  end.charged = failed.why_no_restart.empty();
  end.final = !end.charged;
  end.sentence = who.empty() ? failed.what : who + ": " + failed.what;
  if (end.final) end.sentence += "; " + failed.why_no_restart + ", so it is not restarted";
  end.cause = std::move(cause);
  return end;
}

rendezvous::RoundEnd end_by_stop(const std::string& who, const StopRequested& stop) {
  rendezvous::RoundEnd end;
  // SIGKILL stands for the end of the guardian.
  end.sentence = who + (stop.signal == SIGKILL ? ": its cpprun was killed"
                                               : " was stopped by " + signal_name(stop.signal));
  return end;
}

}  // namespace cpprun::launcher
