// A request to stop, from a launcher (SIGTERM) or a person (SIGINT).
#pragma once

#include <csignal>

namespace cpprun::trainer {

// While it lives, the first SIGTERM or SIGINT is only noted, so that the ranks can agree on the update after
// which they stop; a second one has its usual effect, for a rank that waits in vain for the others. One at a
// time in a process; handlers are put back at the end.
class StopSignal {
 public:
  StopSignal();
  ~StopSignal();
  StopSignal(const StopSignal&) = delete;
  StopSignal& operator=(const StopSignal&) = delete;

  // The signal's number, or 0 while there was none.
  int received() const;

 private:
  struct sigaction old_term_;
  struct sigaction old_interrupt_;
};

}  // namespace cpprun::trainer
