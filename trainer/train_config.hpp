// What a training run is told: a JSON file, then `--set key=value` overrides in their order, read strictly.
// README.md beside this file lists every key; the defaults are the initialisers below.
//
// Paths that a run reads (data.dir) are relative to the config file's folder, so that a config and its data
// can be moved together; paths that it writes are relative to the current folder.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace cpprun::trainer {

struct MlpConfig {
  std::vector<int> hidden = {128};  // widths between input and classes; empty: one linear layer
  double dropout = 0;               // after each hidden layer, in [0, 1)
};

struct CnnConfig {
  std::vector<int> channels = {32, 64};  // one 3x3 block each; the first two halve height and width
  int hidden = 128;                      // width of the layer before the classes
  double dropout = 0.3;                  // before that layer, in [0, 1)
};

// Gaussian examples labelled by a random linear teacher, split into training and validation examples.
struct SyntheticConfig {
  std::int64_t seed = 7;
  std::int64_t train_examples = 128;
  std::int64_t val_examples = 101;
  int features = 8;
  int classes = 3;
};

// A folder with the four files of MNIST, in its IDX format and under its names.
struct IdxConfig {
  std::string dir;
  int shift = 0;  // training images are moved at random by up to so many pixels each way
};

struct AdamWConfig {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 1e-2;  // apart from the gradient (Loshchilov & Hutter, arXiv 1711.05101)
};

struct AdamConfig {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // added to the gradient
};

struct SgdConfig {
  double lr = 1e-2;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
};

struct ConstantSchedule {};

struct LinearWarmupSchedule {
  std::int64_t warmup_steps = 100;
  double start_factor = 1.0 / 3;  // of the learning rate, at the first step
};

struct CosineSchedule {
  std::int64_t warmup_steps = 0;  // linear, from start_factor
  double start_factor = 1.0 / 3;
  double min_factor = 0;  // of the learning rate, at the end
};

struct OneCycleSchedule {
  double pct_start = 0.3;         // the share of the steps in which the rate rises
  double div_factor = 25;         // the rate starts at lr / div_factor
  double final_div_factor = 1e4;  // and ends at that start / final_div_factor
};

using ModelConfig = std::variant<MlpConfig, CnnConfig>;
using DataConfig = std::variant<SyntheticConfig, IdxConfig>;
using OptimizerConfig = std::variant<AdamWConfig, AdamConfig, SgdConfig>;
using ScheduleConfig = std::variant<ConstantSchedule, LinearWarmupSchedule, CosineSchedule, OneCycleSchedule>;

enum class Resume {
  Auto,  // go on with an unfinished run; begin anew after a finished one
  Never  // always begin anew
};

struct CheckpointConfig {
  std::string dir;               // empty: no checkpoints
  std::int64_t every_steps = 0;  // 0: at the end of each epoch only
  int keep = 2;                  // the newest so many stay
  Resume resume = Resume::Auto;
};

struct TrainConfig {
  std::int64_t seed = 0;          // of the start weights; dropout and shifts use seed + rank
  std::int64_t shuffle_seed = 0;  // of the order of the examples; as `seed` where not given
  int epochs = 1;
  int batch_size = 32;                      // of one process
  int accumulation_steps = 1;               // batches of one process in an update
  double clip_norm = 0;                     // largest norm of an update's gradient; 0: no limit
  int log_every = 50;                       // steps between lines where there is no terminal; 0: none
  double collective_timeout_seconds = 120;  // limit of any wait for the other ranks
  ModelConfig model;
  DataConfig data;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  CheckpointConfig checkpoint;
  std::string metrics_file;  // JSON lines; empty: none
  std::string weights_file;  // the trained weights, safetensors; empty: none
};

// Reads `file` and applies the overrides: a dotted key, "=", and a JSON value (what is no JSON is a string).
// Throws worker::ConfigError naming the file or key, what is wrong and what would be right.
TrainConfig load_config(const std::string& file, const std::vector<std::string>& overrides);

// The same from a text, with `folder` for relative paths. load_config is this and a file read.
TrainConfig parse_config(const std::string& text, const std::string& folder,
                         const std::vector<std::string>& overrides);

// Every key with its value, as JSON that parse_config reads back to the same values.
std::string to_json(const TrainConfig& config);

}  // namespace cpprun::trainer
