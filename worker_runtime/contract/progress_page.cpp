#include "worker_runtime/contract/progress_page.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>

#include "worker_runtime/contract/cpprun_progress.h"
#include "worker_runtime/contract/printable_text.hpp"

namespace cpprun::worker {
namespace {

using Page = cpprun_progress_page;
using TimePoint = ProgressReading::TimePoint;

// What the Python module writes by offset, too.
static_assert(sizeof(Page) <= kProgressPageSize && kProgressPageSize == CPPRUN_PROGRESS_PAGE_SIZE);
static_assert(offsetof(Page, pid) == 12 && offsetof(Page, phase) == 16 && offsetof(Page, heartbeats) == 24);
static_assert(offsetof(Page, step) == 40 && offsetof(Page, phase_since) == 64);
static_assert(offsetof(Page, section_count) == 72 && offsetof(Page, section) == 128);
static_assert(offsetof(Page, message) == 512 && sizeof(cpprun_message_entry) == 512);

constexpr std::array kPhases = {"starting",  "training", "evaluating", "checkpointing",
                                "compiling", "waiting",  "finishing"};
constexpr int kTries = 16;  // to see a text that its writer does not change meanwhile
constexpr int kFirstRealTimeSignal = 32;
constexpr int kLastRealTimeSignal = 64;

template <typename Number>
Number load(const Number& field) {
  return __atomic_load_n(&field, __ATOMIC_RELAXED);
}

std::optional<TimePoint> time_of(std::int64_t nanoseconds) {
  if (nanoseconds <= 0) return std::nullopt;
  return TimePoint(std::chrono::duration_cast<TimePoint::duration>(std::chrono::nanoseconds(nanoseconds)));
}

struct Text {
  std::string text;
  TimePoint since{};
};

// The writer's side is cpprun_progress_write_().
template <typename Entry>
Text newest_text(const Entry (&entries)[2], const std::uint64_t& counter) {
  for (int tries = 0; tries < kTries; ++tries) {
    const std::uint64_t number = __atomic_load_n(&counter, __ATOMIC_ACQUIRE);
    if (number == 0) return {};
    const Entry& entry = entries[number % 2];
    const std::int64_t since = load(entry.since);
    std::array<char, sizeof entry.text> bytes;
    for (std::size_t i = 0; i < std::size(entry.text); ++i) {
      const std::uint64_t word = load(entry.text[i]);
      std::memcpy(bytes.data() + i * sizeof word, &word, sizeof word);
    }
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    if (load(counter) != number) continue;
    const std::size_t size =
        static_cast<std::size_t>(std::find(bytes.begin(), bytes.end(), '\0') - bytes.begin());
    return {printable(std::string_view(bytes.data(), size)), time_of(since).value_or(TimePoint{})};
  }
  return {};
}

double seconds_between(TimePoint then, TimePoint now) {
  // A worker's clock may be behind by a tick, and its page may hold anything.
  return std::max(0.0, std::chrono::duration<double>(now - then).count());
}

std::string seconds_text(TimePoint then, TimePoint now) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds_between(then, now));
  return text;
}

}  // namespace

std::string to_text(Phase phase) {
  const std::uint32_t number = static_cast<std::uint32_t>(phase);
  return number < kPhases.size() ? kPhases[number] : "phase " + std::to_string(number);
}

std::optional<ProgressReading> read_progress(const void* bytes) {
  const Page& page = *static_cast<const Page*>(bytes);
  if (__atomic_load_n(&page.magic, __ATOMIC_ACQUIRE) != CPPRUN_PROGRESS_MAGIC) return std::nullopt;
  if (load(page.version) != CPPRUN_PROGRESS_VERSION) return std::nullopt;
  ProgressReading reading;
  reading.writer = load(page.pid);
  const std::uint32_t signal = load(page.python_stacks_signal);
  if (signal >= kFirstRealTimeSignal && signal <= kLastRealTimeSignal) {
    reading.python_stacks_signal = static_cast<int>(signal);
  }
  reading.phase = static_cast<Phase>(load(page.phase));
  reading.phase_since = time_of(load(page.phase_since)).value_or(TimePoint{});
  reading.heartbeats = load(page.heartbeats);
  reading.last_heartbeat = time_of(load(page.last_heartbeat));
  const std::int64_t step = load(page.step);
  if (step >= 0) reading.step = step;
  const std::int64_t collective = load(page.collective);
  if (collective >= 0) reading.collective = collective;
  reading.last_progress = time_of(load(page.last_progress));
  Text section = newest_text(page.section, page.section_count);
  reading.section = std::move(section.text);
  reading.section_since = section.since;
  Text message = newest_text(page.message, page.message_count);
  reading.message = std::move(message.text);
  reading.message_since = message.since;
  return reading;
}

bool texts_unchanged(const void* earlier, const void* later) {
  const Page& before = *static_cast<const Page*>(earlier);
  const Page& after = *static_cast<const Page*>(later);
  return before.section_count == after.section_count && before.message_count == after.message_count;
}

std::string to_text(const ProgressReading& reading, TimePoint now) {
  std::string text = reading.step ? "step " + std::to_string(*reading.step) : "no step yet";
  text += ", " + to_text(reading.phase);
  if (!reading.section.empty()) {
    text += ", section '" + reading.section + "' for " + seconds_text(reading.section_since, now);
  }
  if (reading.collective) text += ", collective " + std::to_string(*reading.collective);
  text += reading.last_progress ? ", last progress " + seconds_text(*reading.last_progress, now) + " ago"
                                : ", no progress yet";
  if (reading.last_heartbeat) {
    text += ", last heartbeat " + seconds_text(*reading.last_heartbeat, now) + " ago";
  }
  if (!reading.message.empty()) text += ", message '" + reading.message + "'";
  return text;
}

std::string to_json(const ProgressReading& reading, TimePoint now) {
  using nlohmann::json;
  const auto number = [](const std::optional<std::int64_t>& value) {
    return value ? json(*value) : json(nullptr);
  };
  const auto age = [now](const std::optional<TimePoint>& then) {
    return then ? json(seconds_between(*then, now)) : json(nullptr);
  };
  const bool in_section = !reading.section.empty();
  const bool spoke = !reading.message.empty();
  return json{
      {"pid", reading.writer},
      {"step", number(reading.step)},
      {"phase", to_text(reading.phase)},
      {"phase_seconds", seconds_between(reading.phase_since, now)},
      {"section", in_section ? json(reading.section) : json(nullptr)},
      {"section_seconds", in_section ? age(reading.section_since) : json(nullptr)},
      {"collective", number(reading.collective)},
      {"last_progress_seconds", age(reading.last_progress)},
      {"heartbeats", reading.heartbeats},
      {"last_heartbeat_seconds", age(reading.last_heartbeat)},
      {"message", spoke ? json(reading.message) : json(nullptr)},
      {"message_seconds", spoke ? age(reading.message_since) : json(nullptr)},
  }
      .dump();
}

}  // namespace cpprun::worker
