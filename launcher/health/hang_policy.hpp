// When the workers of this node hang, and which of them is the likely cause. Pure.
//
// All limits run on a clock that stands still while nothing could move for a good reason: while a debugger is
// attached to a worker, while all workers are stopped (SIGSTOP), and while this agent itself did not run.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launcher/health/hang_limits.hpp"

namespace cpprun::launcher {

// What one look at a live worker found. Counters run from its start.
struct WorkerLook {
  // From its progress page.
  struct Progress {
    bool begun = false;  // it has reported progress, not heartbeats alone
    std::uint64_t heartbeats = 0;
    std::int64_t step = 0;
    std::uint64_t collective = 0;
    std::uint64_t moved = 0;  // another value after each progress
    bool pausing = false;     // in a phase that takes the time it takes: compiling, evaluating, saving
    std::string section;      // empty: in none
    std::uint64_t section_entered = 0;  // another value each time
  };

  int local_rank = 0;
  pid_t pid = 0;
  std::optional<Progress> progress;  // of a worker that has opened its page
  char state = 'S';                  // the kernel's letter
  bool traced = false;               // a debugger is attached
  std::chrono::nanoseconds cpu_time{0};
  std::uint64_t written = 0;       // bytes, to whatever file, pipe or terminal
  std::uint64_t read = 0;          // bytes, likewise
  std::uint64_t socket_bytes = 0;  // sent and received by TCP
  std::uint64_t page_faults = 0;
  // Of a closer look alone.
  bool children_busy = false;                  // a process below it computes, or is new
  std::optional<std::uint64_t> stack_pointer;  // of its main thread
};

enum class HangKind { Startup, Step, Section, Heartbeat, Silence, Stuck };

struct Hang {
  HangKind kind;
  int local_rank;    // the likely cause, or the first of those that stand still
  std::string what;  // "made no progress for 61 s (limit 60 s)"
};

class HangPolicy {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Duration = HangLimits::Duration;

  explicit HangPolicy(HangLimits limits) : limits_(std::move(limits)) {}

  // `workers` are all that live; each pid starts anew. After a hang was told, nothing more until a worker is
  // replaced.
  std::optional<Hang> observe(const std::vector<WorkerLook>& workers, TimePoint now);

  // Activity counts: a limit of silence or of uninterruptible sleep is set.
  bool wants_activity() const { return limits_.silence || limits_.stuck; }

  // The workers have been still for half of the limit: the next looks are to be closer ones.
  bool wants_closer_look() const;

  // What looked like a hang was none.
  void forgive();

  // How often to look, so that no limit is passed by more than 1 s with a page, 5 s without.
  Duration interval() const;

 private:
  struct Record {
    pid_t pid = 0;
    Duration started{0};
    std::optional<WorkerLook::Progress> progress;
    Duration moved_at{0};
    bool paused_since = false;  // in a pausing phase at some look since the last progress
    Duration longest_step{0};
    int steps_timed = 0;
    Duration beat_at{0};
    Duration section_at{0};
    std::optional<Duration> stuck_since;
    WorkerLook last;  // at the start of the present window of activity
    double learned_rate = 0;
    bool children_busy = false;  // in the present window
    bool progressed = false;     // likewise, as its page says; heartbeats are no progress
    bool quiet = false;
    bool busy = false;  // quiet, but computing
    std::set<std::uint64_t> stack_pointers;
    int samples = 0;
  };

  void advance(const std::vector<WorkerLook>& workers, TimePoint now);
  void update(Record& record, const WorkerLook& look);
  void time_step(Record& record, const WorkerLook::Progress& progress) const;
  void measure(Record& record, const WorkerLook& look, Duration window) const;
  void watch_activity(const std::vector<WorkerLook>& workers);
  std::optional<Duration> step_limit(const Record& record) const;
  std::optional<Hang> find_hang(const std::vector<WorkerLook>& workers) const;
  std::optional<Hang> hang_by_page(const WorkerLook& look, const Record& record) const;
  int suspect(const std::vector<WorkerLook>& workers, int otherwise) const;

  HangLimits limits_;
  std::optional<TimePoint> last_look_;
  Duration clock_{0};
  Duration window_start_{0};
  std::optional<Duration> quiet_since_;
  std::map<int, Record> records_;  // by local rank
  bool told_ = false;
};

}  // namespace cpprun::launcher
