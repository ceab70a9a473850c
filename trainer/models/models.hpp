// The models: plain sequences of layers, built layer by layer in the order of the Python twin given with
// each, so that the same seed gives the same start weights and a weights file loads in Python under the same
// names ("0.weight", "0.bias", ...).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/train_config.hpp"

namespace torch::nn {
class SequentialImpl;
}

namespace cpprun::trainer {

// Takes f32 [b, ...] to logits f32 [b, classes].
using Model = torch::nn::SequentialImpl;

// `input_shape` is one example's, without the batch.
//   nn.Sequential([nn.Flatten() if the input has more than one dimension],
//                 for h in hidden: nn.Linear(_, h), nn.ReLU(), [nn.Dropout(dropout) if > 0]
//                 nn.Linear(_, classes))
std::shared_ptr<Model> make_model(const MlpConfig& config, const std::vector<std::int64_t>& input_shape,
                                  std::int64_t classes);

// For input_shape [c, h, w]; throws worker::ConfigError where the images are too small for the pooling.
//   nn.Sequential(for i, c in enumerate(channels): nn.Conv2d(_, c, 3, padding=1), nn.BatchNorm2d(c),
//   nn.ReLU(),
//                                                  [nn.MaxPool2d(2) for i < 2]
//                 nn.Flatten(), nn.Dropout(dropout), nn.Linear(_, hidden), nn.ReLU(),
//                 nn.Linear(hidden, classes))
std::shared_ptr<Model> make_model(const CnnConfig& config, const std::vector<std::int64_t>& input_shape,
                                  std::int64_t classes);

}  // namespace cpprun::trainer
