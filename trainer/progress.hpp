// What a person sees of a running job, on standard output, rank 0 only: on a terminal one line that is
// redrawn under the lines that stay; elsewhere a plain line now and then.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace cpprun::trainer {

// Where the run is after an update.
struct ProgressSample {
  int epoch = 0;  // from 0
  int epochs = 1;
  std::int64_t step = 0;  // updates done, of the whole run
  std::int64_t total_steps = 1;
  double loss = 0;  // mean over the update's examples of all ranks
  double learning_rate = 0;
  double examples_per_second = 0;  // of all ranks
};

// Pure. "step 120/690  epoch 5/30  loss 0.1234  lr 0.0021  3214 ex/s"; epochs count from 1 here, as a
// person does.
std::string progress_text(const ProgressSample& sample);

// Pure. The same after a bar, cut to `columns` so that a redrawn line never wraps.
std::string progress_line(const ProgressSample& sample, int columns);

class ProgressDisplay {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `shown` is false on the ranks that print nothing. Away from a terminal every `log_every`th step gets a
  // line; none for 0.
  ProgressDisplay(bool shown, int log_every);
  ~ProgressDisplay();
  ProgressDisplay(const ProgressDisplay&) = delete;
  ProgressDisplay& operator=(const ProgressDisplay&) = delete;

  void step(const ProgressSample& sample, TimePoint now);

  // A line that stays.
  void line(const std::string& text);

 private:
  void write(const std::string& text);

  bool shown_;
  bool terminal_;
  int log_every_;
  bool drawn_ = false;  // the redrawn line is on the screen
  TimePoint drawn_at_{};
};

}  // namespace cpprun::trainer
