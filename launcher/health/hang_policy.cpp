#include "launcher/health/hang_policy.hpp"

#include <algorithm>
#include <cstdio>
#include <tuple>

namespace cpprun::launcher {
namespace {

using Duration = HangLimits::Duration;
using std::chrono::milliseconds;

// More between two looks than this: the agent did not run, and saw nothing.
constexpr milliseconds kLongestGap{5000};
constexpr milliseconds kShortestInterval{25};
constexpr milliseconds kShortestWindow{500};
constexpr milliseconds kLongestWindow{5000};
constexpr int kStepsToLearn = 5;
// A worker is quiet whose rate of computing is below this part of the highest that it had.
constexpr double kQuietShare = 0.02;
constexpr double kLeastRate = 0.001;  // of a core
// Reads below it are those of a thread that waits for something to do.
constexpr std::uint64_t kFewBytes = 1024;  // a window
// A loop that gets nowhere touches no new memory; a computation does, again and again.
constexpr double kFewFaults = 20;  // a second
// A loop that gets nowhere comes by the same few frames again and again.
constexpr int kSamplesToTell = 16;
constexpr std::size_t kMostFrames = 3;
constexpr milliseconds kCloserInterval{200};

std::string seconds(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", static_cast<double>(duration.count()) / 1000);
  return text;
}

std::string past(const std::string& what, Duration waited, Duration limit, const std::string& why = "") {
  return what + " for " + seconds(waited) + " (limit " + seconds(limit) + why + ")";
}

double rate_of(std::uint64_t count, Duration window) {
  return static_cast<double>(count) * 1000 / static_cast<double>(std::max<std::int64_t>(1, window.count()));
}

bool stopped(const WorkerLook& look) {
  return look.state == 'T';
}

bool wrote_or_read(const WorkerLook& before, const WorkerLook& now) {
  return now.written != before.written || now.read - before.read >= kFewBytes ||
         now.socket_bytes != before.socket_bytes;
}

}  // namespace

std::optional<Hang> HangPolicy::observe(const std::vector<WorkerLook>& workers, TimePoint now) {
  advance(workers, now);
  for (const WorkerLook& look : workers) {
    Record& record = records_[look.local_rank];
    if (record.pid != look.pid) {
      record = Record();
      record.pid = look.pid;
      record.started = record.moved_at = record.beat_at = clock_;
      record.last = look;
      quiet_since_.reset();
      told_ = false;
    }
    update(record, look);
  }
  if (wants_activity()) watch_activity(workers);
  if (told_ || workers.empty()) return std::nullopt;
  std::optional<Hang> hang = find_hang(workers);
  told_ = hang.has_value();
  return hang;
}

void HangPolicy::advance(const std::vector<WorkerLook>& workers, TimePoint now) {
  const bool debugged =
      std::any_of(workers.begin(), workers.end(), [](const WorkerLook& look) { return look.traced; });
  const bool all_stopped = !workers.empty() && std::all_of(workers.begin(), workers.end(), stopped);
  if (last_look_ && !debugged && !all_stopped) {
    const Duration gap = std::chrono::duration_cast<Duration>(now - *last_look_);
    clock_ += std::min<Duration>(gap, kLongestGap);
  }
  last_look_ = now;
}

void HangPolicy::update(Record& record, const WorkerLook& look) {
  if (look.progress) {
    const WorkerLook::Progress& now = *look.progress;
    const WorkerLook::Progress before = record.progress.value_or(WorkerLook::Progress());
    if (now.heartbeats != before.heartbeats) record.beat_at = clock_;
    if (now.section != before.section || now.section_entered != before.section_entered)
      record.section_at = clock_;
    record.progressed = record.progressed || now.moved != before.moved;
    if (now.begun) time_step(record, now);
    record.progress = now;
  }
  record.children_busy = record.children_busy || look.children_busy;
  if (look.stack_pointer) {
    record.stack_pointers.insert(*look.stack_pointer);
    ++record.samples;
  }
  const bool sleeps_deep = look.state == 'D' && !wrote_or_read(record.last, look);
  if (!sleeps_deep)
    record.stuck_since.reset();
  else if (!record.stuck_since)
    record.stuck_since = clock_;
}

void HangPolicy::time_step(Record& record, const WorkerLook::Progress& progress) const {
  record.paused_since = record.paused_since || progress.pausing;
  const bool first = !record.progress || !record.progress->begun;
  if (!first && progress.moved == record.progress->moved) {
    if (progress.pausing) record.moved_at = clock_;
    return;
  }
  const std::int64_t steps = first ? 0 : progress.step - record.progress->step;
  if (steps > 0 && !record.paused_since) {
    record.longest_step = std::max<Duration>(record.longest_step, (clock_ - record.moved_at) / steps);
    record.steps_timed = static_cast<int>(std::min<std::int64_t>(kStepsToLearn, record.steps_timed + steps));
  }
  record.moved_at = clock_;
  record.paused_since = progress.pausing;
}

void HangPolicy::measure(Record& record, const WorkerLook& look, Duration window) const {
  const double rate =
      rate_of(static_cast<std::uint64_t>((look.cpu_time - record.last.cpu_time).count()), window) / 1e9;
  record.learned_rate = std::max(record.learned_rate, rate);
  const bool computes = rate > std::max(kLeastRate, kQuietShare * record.learned_rate);
  const bool same_memory = rate_of(look.page_faults - record.last.page_faults, window) < kFewFaults;
  const bool same_frames = record.stack_pointers.size() <= kMostFrames;
  // From computing to waiting, or back: something went on.
  const bool changed = record.busy != computes;
  record.busy = computes;
  record.quiet = !changed && !record.progressed && !wrote_or_read(record.last, look) &&
                 !record.children_busy && (!computes || (same_memory && same_frames));
  record.children_busy = record.progressed = false;
  record.last = look;
}

void HangPolicy::watch_activity(const std::vector<WorkerLook>& workers) {
  const Duration window = clock_ - window_start_;
  const Duration limit =
      std::min(limits_.silence.value_or(Duration::max()), limits_.stuck.value_or(Duration::max()));
  if (window < std::clamp<Duration>(limit / 8, kShortestWindow, kLongestWindow)) return;
  bool all_quiet = !workers.empty();
  for (const WorkerLook& look : workers) {
    Record& record = records_[look.local_rank];
    measure(record, look, window);
    all_quiet = all_quiet && record.quiet;
  }
  if (!all_quiet) {
    quiet_since_.reset();
    for (auto& [rank, record] : records_) {
      record.stack_pointers.clear();
      record.samples = 0;
    }
  } else if (!quiet_since_) {
    quiet_since_ = window_start_;
  }
  window_start_ = clock_;
}

bool HangPolicy::wants_closer_look() const {
  return limits_.silence && quiet_since_ && clock_ - *quiet_since_ >= *limits_.silence / 2;
}

void HangPolicy::forgive() {
  quiet_since_.reset();
  told_ = false;
}

HangPolicy::Duration HangPolicy::interval() const {
  const bool by_page =
      limits_.startup || limits_.step || limits_.learn_step || limits_.heartbeat || !limits_.sections.empty();
  if (wants_closer_look()) return kCloserInterval;
  Duration longest = kLongestWindow;
  if (by_page) longest = milliseconds(500);
  for (const std::optional<Duration>& limit : {limits_.silence, limits_.stuck}) {
    if (limit) longest = std::min<Duration>(longest, std::max<Duration>(*limit / 8, kShortestInterval));
  }
  return longest;
}

std::optional<HangPolicy::Duration> HangPolicy::step_limit(const Record& record) const {
  if (!limits_.learn_step) return limits_.step;
  if (record.steps_timed < kStepsToLearn) return std::nullopt;
  const double learned = static_cast<double>(record.longest_step.count()) * limits_.step_factor;
  return std::max<Duration>(limits_.step_floor, milliseconds(static_cast<std::int64_t>(learned)));
}

std::optional<Hang> HangPolicy::hang_by_page(const WorkerLook& look, const Record& record) const {
  const Duration silent = clock_ - record.beat_at;
  if (limits_.heartbeat && record.progress && record.progress->heartbeats > 0 &&
      silent >= *limits_.heartbeat) {
    return Hang{HangKind::Heartbeat, look.local_rank, past("gave no heartbeat", silent, *limits_.heartbeat)};
  }
  const bool begun = record.progress && record.progress->begun;
  if (!begun) {
    const Duration waited = clock_ - record.started;
    if (!limits_.startup || waited < *limits_.startup) return std::nullopt;
    return Hang{HangKind::Startup, look.local_rank,
                past("has not reported any progress since its start", waited, *limits_.startup)};
  }
  const WorkerLook::Progress& progress = *record.progress;
  if (const auto section = limits_.sections.find(progress.section); section != limits_.sections.end()) {
    const Duration waited = clock_ - record.section_at;
    if (waited >= section->second) {
      return Hang{HangKind::Section, look.local_rank,
                  past("has been in section '" + progress.section + "'", waited, section->second)};
    }
  }
  const std::optional<Duration> limit = step_limit(record);
  const Duration waited = clock_ - record.moved_at;
  if (!limit || progress.pausing || waited < *limit) return std::nullopt;
  const std::string why = limits_.learn_step ? "; its longest step took " + seconds(record.longest_step) : "";
  return Hang{HangKind::Step, look.local_rank, past("made no progress", waited, *limit, why)};
}

std::optional<Hang> HangPolicy::find_hang(const std::vector<WorkerLook>& workers) const {
  for (const WorkerLook& look : workers) {
    const Record& record = records_.at(look.local_rank);
    if (limits_.stuck && record.stuck_since && clock_ - *record.stuck_since >= *limits_.stuck) {
      return Hang{HangKind::Stuck, look.local_rank,
                  past("is in uninterruptible sleep", clock_ - *record.stuck_since, *limits_.stuck)};
    }
    std::optional<Hang> hang = hang_by_page(look, record);
    if (!hang) continue;
    // A collective stops all of its ranks: the one that is behind, or cannot run, is what they wait for.
    if (hang->kind == HangKind::Step) hang->local_rank = suspect(workers, hang->local_rank);
    return hang;
  }
  if (!limits_.silence || !quiet_since_ || clock_ - *quiet_since_ < *limits_.silence) return std::nullopt;
  const bool all_told = std::all_of(workers.begin(), workers.end(), [this](const WorkerLook& look) {
    const Record& record = records_.at(look.local_rank);
    return !record.busy || record.samples >= kSamplesToTell;
  });
  if (!all_told) return std::nullopt;
  const int rank = suspect(workers, workers.front().local_rank);
  return Hang{HangKind::Silence, rank,
              "hangs: for " + seconds(clock_ - *quiet_since_) + " (limit " + seconds(*limits_.silence) +
                  ") no worker here wrote, sent, received or computed anything new"};
}

int HangPolicy::suspect(const std::vector<WorkerLook>& workers, int otherwise) const {
  // Cannot run; else spins while the others wait; else is behind them.
  const auto place = [this](const WorkerLook& look) {
    const Record& record = records_.at(look.local_rank);
    const WorkerLook::Progress progress = record.progress.value_or(WorkerLook::Progress());
    return std::tuple(!stopped(look) && look.state != 'D', !(record.quiet && record.busy), progress.step,
                      progress.collective);
  };
  const WorkerLook* first = &workers.front();
  bool alike = true;
  for (const WorkerLook& look : workers) {
    alike = alike && place(look) == place(*first);
    if (place(look) < place(*first)) first = &look;
  }
  return alike ? otherwise : first->local_rank;
}

}  // namespace cpprun::launcher
