// --hang-detection: after what a worker counts as hanging. Pure.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

namespace cpprun::launcher {

// How long each kind of standstill may last; without a value it is not looked for. The first four need a
// worker that writes its progress page.
struct HangLimits {
  using Duration = std::chrono::milliseconds;

  std::optional<Duration> startup;  // from a worker's start to its first progress
  std::optional<Duration> step;     // without progress, for every worker alike ...
  bool learn_step = false;  // ... or, in place of it, learned from the steps seen: the longest * factor
  double step_factor = 0;
  Duration step_floor{0};                    // a learned limit is never below it
  std::optional<Duration> heartbeat;         // without a heartbeat, after the first
  std::map<std::string, Duration> sections;  // in a section of that name
  std::optional<Duration> silence;  // in which no worker of this node writes, sends, receives or computes
  std::optional<Duration> stuck;    // of a worker in uninterruptible sleep that reads and writes nothing

  bool any() const {
    return startup || step || learn_step || heartbeat || !sections.empty() || silence || stuck;
  }
};

// What is no setting of --hang-detection; the sentence says what would be.
struct HangLimitsError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// "off"; "on", the defaults; or settings, such as "silence=60,step=auto,section.evaluate=600", with or
// without a leading "on": startup, step, heartbeat, silence, stuck and section.NAME take seconds or "off",
// step also "auto"; step_factor takes a number, step_floor seconds. Throws HangLimitsError.
HangLimits parse_hang_limits(const std::string& text);

// The limits that are set, as they may be given: "silence=600,step=auto".
std::string to_text(const HangLimits& limits);

// TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT, torchrun's name for `stuck`: a positive number of seconds.
// Null, and whatever else it says, is no limit.
std::optional<HangLimits::Duration> stuck_limit(const char* text);

}  // namespace cpprun::launcher
