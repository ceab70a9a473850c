// The timers that workers set themselves (torch's FileTimerClient): parts of a program that must be over by a
// certain time. Pure.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace cpprun::launcher {

// One line that a worker wrote to the timer file.
struct TimerRequest {
  pid_t pid = 0;
  std::string scope;      // names the part; one timer for each
  double expiration = 0;  // seconds since 1970; negative: the part is over
  int signal = 0;         // to end the process with; 0 or less: none
};

// {"version": 1, "pid": 123, "scope_id": "x", "expiration_time": 1795973885.5, "signal": 9}; nothing for any
// other text.
std::optional<TimerRequest> parse_timer_request(const std::string& line);

struct ExpiredTimer {
  pid_t pid = 0;
  std::uint64_t process_started = 0;  // tells the process that set the timer from a later one of the same pid
  std::string scope;
  int signal = 0;
};

class TimerTable {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Sets, moves or removes a timer. `wall` is the time of day in seconds since 1970, `now` the same moment by
  // the clock that nobody sets: later jumps of the time of day change nothing.
  void take(const TimerRequest& request, std::uint64_t process_started, double wall, TimePoint now);

  // When the next timer expires; the clock's last moment without any.
  TimePoint next() const;

  // One process whose time is over, by the first of its expired timers that has a signal. All its timers are
  // removed, without such a timer too. Nothing when there is none (any more).
  std::optional<ExpiredTimer> take_expired(TimePoint now);

 private:
  struct Timer {
    TimePoint expires;
    std::uint64_t process_started;
    int signal;
  };
  std::map<std::pair<pid_t, std::string>, Timer> timers_;
};

}  // namespace cpprun::launcher
