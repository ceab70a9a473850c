// A fake clock and what is to happen by it, and dice that fall the same for the same seed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <queue>
#include <random>
#include <vector>

namespace cpprun::rendezvous::walks {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;
using std::chrono::milliseconds;
using std::chrono::seconds;

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}

  // 0 to n - 1.
  int below(int n) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(n)); }
  int between(int least, int most) { return least + below(most - least + 1); }
  bool chance(double p) { return static_cast<double>(engine_() >> 11) * 0x1.0p-53 < p; }
  Duration span(Duration least, Duration most) {
    return least + Duration(static_cast<std::int64_t>(
                       engine_() % static_cast<std::uint64_t>((most - least).count() + 1)));
  }

 private:
  std::mt19937_64 engine_;
};

class Timeline {
 public:
  TimePoint now() const { return now_; }

  // Things of one time happen in the order in which they were planned.
  void at(TimePoint when, std::function<void()> what) {
    plan_.push({when < now_ ? now_ : when, ++planned_, std::move(what)});
  }
  void after(Duration span, std::function<void()> what) { at(now_ + span, std::move(what)); }

  // Does the next thing that is due by `limit`; false if there is none.
  bool step(TimePoint limit) {
    if (plan_.empty() || plan_.top().when > limit) {
      now_ = limit;
      return false;
    }
    const std::function<void()> what = std::move(const_cast<Planned&>(plan_.top()).what);
    now_ = plan_.top().when;
    plan_.pop();
    what();
    return true;
  }

 private:
  struct Planned {
    TimePoint when;
    std::uint64_t number;
    std::function<void()> what;
    bool operator<(const Planned& other) const {
      return when != other.when ? when > other.when : number > other.number;
    }
  };

  TimePoint now_{std::chrono::hours(24)};
  std::uint64_t planned_ = 0;
  std::priority_queue<Planned> plan_;
};

// One deadline that moves; what it does is the owner's, who outlives the timeline's plans.
class Alarm {
 public:
  Alarm(Timeline& time, std::function<void()> what) : time_(time), what_(std::move(what)) {}
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  void set(TimePoint when) {
    if (armed_ && when == when_) return;
    armed_ = true;
    when_ = when;
    const std::uint64_t mine = ++settings_;
    time_.at(when, [this, mine] {
      if (mine != settings_ || !armed_) return;
      armed_ = false;
      what_();
    });
  }
  void clear() { armed_ = false; }

 private:
  Timeline& time_;
  std::function<void()> what_;
  std::uint64_t settings_ = 0;
  bool armed_ = false;
  TimePoint when_;
};

}  // namespace cpprun::rendezvous::walks
