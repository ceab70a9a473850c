// The reader's side of the progress page, by which a worker says how far it is (cpprun_progress.h has the
// writer's side and the layout). Nothing in a page is to be trusted: a worker may write anything there.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace cpprun::worker {

inline constexpr std::size_t kProgressPageSize = 4096;

// Other values are those of newer workers.
enum class Phase : std::uint32_t {
  Starting,
  Training,
  Evaluating,
  Checkpointing,
  Compiling,
  Waiting,
  Finishing,
};

// "training"; "phase 17" for one that is not known.
std::string to_text(Phase phase);

// What a page said at one moment. Times are CLOCK_MONOTONIC of the worker's host, never before its start.
struct ProgressReading {
  using TimePoint = std::chrono::steady_clock::time_point;

  std::uint32_t writer = 0;  // pid of the process that writes, as it knows itself
  // Makes the writer append its Python stacks to the page's file + ".stacks"; a real-time signal, or 0: none
  // was registered. Whether the process still has a handler for it must be looked up before it is sent.
  int python_stacks_signal = 0;
  Phase phase = Phase::Starting;
  TimePoint phase_since{};
  std::uint64_t heartbeats = 0;
  std::optional<TimePoint> last_heartbeat;
  std::optional<std::int64_t> step;
  std::optional<std::int64_t> collective;  // sequence number of the last that was begun
  std::optional<TimePoint> last_progress;  // of step, phase, section or collective; heartbeats are none
  std::string section;                     // empty: in none
  TimePoint section_since{};               // when it was entered
  std::string message;                     // one printable line, may be empty
  TimePoint message_since{};

  bool operator==(const ProgressReading&) const = default;
};

// Reads a page of kProgressPageSize bytes, aligned as for std::uint64_t, that a worker may be writing; in a
// copy, texts may be torn (see texts_unchanged). Nothing where no worker has ever opened it. Never throws but
// std::bad_alloc.
std::optional<ProgressReading> read_progress(const void* bytes);

// Whether a copy that was taken after `earlier` was and before `later` holds its texts whole.
bool texts_unchanged(const void* earlier, const void* later);

// "step 1200, training, section 'forward' for 12.3 s, last progress 14.0 s ago, message '...'", seen at
// `now`.
std::string to_text(const ProgressReading& reading, ProgressReading::TimePoint now);

// The same for programs: one JSON object, whose keys are in README.md beside this file.
std::string to_json(const ProgressReading& reading, ProgressReading::TimePoint now);

}  // namespace cpprun::worker
