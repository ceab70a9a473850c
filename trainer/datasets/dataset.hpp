// What a run trains on and is judged by: classification examples in memory.
#pragma once

#include <cstdint>
#include <vector>

#include "trainer/train_config.hpp"
#include "worker_runtime/data/data_loader.hpp"

namespace cpprun::trainer {

// Both sets have inputs f32 [n, features] or [n, channels, height, width] and targets i64 [n], each target
// below `classes`, on the CPU. Either may be empty; the trainer says so.
struct Dataset {
  worker::TensorDataset train;
  worker::TensorDataset val;
  std::int64_t classes = 0;
  int shift = 0;  // pixels by which training images may be moved; see random_shift

  // The shape of one example.
  std::vector<std::int64_t> input_shape() const { return train.inputs.sizes().slice(1).vec(); }
};

// The same examples on every rank for the same config. Throws worker::ConfigError for files that are missing
// or not as they should be.
Dataset load_dataset(const SyntheticConfig& config);
Dataset load_dataset(const IdxConfig& config);

// Moves each image of [b, c, h, w] by its own whole number of pixels, -pixels..pixels in both directions,
// filling with zeros. Draws from torch's default generator, whose state checkpoints hold.
at::Tensor random_shift(const at::Tensor& images, int pixels);

}  // namespace cpprun::trainer
