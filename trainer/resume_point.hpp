// How far a run is, and what a checkpoint must have in common with a run to be carried on by it: the text
// that a checkpoint holds as its progress. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace cpprun::trainer {

// What fixes the order of the examples: were one of these another, "batch 3 of epoch 2" would mean other
// examples.
struct RunIdentity {
  std::int64_t seed = 0;
  std::int64_t shuffle_seed = 0;
  std::int64_t batch_size = 0;
  std::int64_t accumulation_steps = 0;
  std::int64_t processes = 0;
  std::int64_t train_examples = 0;
};

// The next batch to train on is `batch` (from 0) of what `epoch` (from 0) has behind its first `used`
// examples; `step` updates are done. A run whose epoch equals its config's epochs is finished.
struct ResumePoint {
  RunIdentity identity;
  int epoch = 0;
  std::int64_t used = 0;  // of the epoch's order, by earlier numbers of processes
  std::int64_t batch = 0;
  std::int64_t step = 0;
  std::int64_t schedule_step = 0;  // `step`, as a run of this number of processes would count it
};

// Batches of one process in `examples` (of all processes), and updates.
std::int64_t batches(const RunIdentity& run, std::int64_t examples);
std::int64_t updates(const RunIdentity& run, std::int64_t examples);

// The run goes on with another number of processes: the epoch behind the examples that all processes together
// have used, the schedule at the same share of the run.
ResumePoint with_processes(const ResumePoint& saved, std::int64_t processes);

std::string to_json(const ResumePoint& point);

// Throws worker::ConfigError for a text that is no such point.
ResumePoint parse_resume_point(const std::string& text);

// The first difference as half a sentence ("seed 1 instead of 2"), or nothing where both are equal but for
// the number of processes.
std::optional<std::string> first_difference(const RunIdentity& saved, const RunIdentity& here);

}  // namespace cpprun::trainer
