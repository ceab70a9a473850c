// The metrics file: one JSON object a line, appended whole, so that it can be read while a job runs.
//   {"kind":"step","step":12,"epoch":0,"loss":1.09,"lr":0.001,"examples":32,"seconds":0.41}
//   {"kind":"eval","step":12,"epoch":0,"val_n":101,"loss":1.11,"acc":0.33}
// `step` counts updates done, `epoch` from 0, `examples` those of the update on all ranks, `seconds` since
// this process began to train. A loss that is no finite number is null.
#pragma once

#include <cstdint>
#include <string>

namespace cpprun::trainer {

struct StepRecord {
  std::int64_t step = 0;
  int epoch = 0;
  double loss = 0;
  double learning_rate = 0;
  std::int64_t examples = 0;
  double seconds = 0;
};

struct EvalRecord {
  std::int64_t step = 0;
  int epoch = 0;
  std::int64_t count = 0;
  double loss = 0;
  double accuracy = 0;
};

// Pure. The lines of `text` that a run resumed after `step` updates, in epoch `epoch`, has already behind it:
// what a killed run wrote beyond its last checkpoint is left out, as is a line that was cut short.
std::string kept_lines(const std::string& text, std::int64_t step, int epoch);

class MetricsFile {
 public:
  // No path: records go nowhere (the ranks other than 0, or a run without metrics). Otherwise the file is
  // begun with the lines that a run resumed at `step` and `epoch` keeps; none of an earlier run's for step 0.
  // Throws std::system_error naming the file.
  MetricsFile(std::string path, std::int64_t step, int epoch);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void append(const StepRecord& record);
  void append(const EvalRecord& record);

 private:
  void append_line(const std::string& line);

  std::string path_;
  int fd_ = -1;
};

}  // namespace cpprun::trainer
