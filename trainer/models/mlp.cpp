#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <numeric>

#include "trainer/models/models.hpp"

namespace cpprun::trainer {

std::shared_ptr<Model> make_model(const MlpConfig& config, const std::vector<std::int64_t>& input_shape,
                                  std::int64_t classes) {
  torch::nn::Sequential layers;
  if (input_shape.size() > 1) layers->push_back(torch::nn::Flatten());
  std::int64_t width =
      std::accumulate(input_shape.begin(), input_shape.end(), std::int64_t{1}, std::multiplies<>());
  for (const int hidden : config.hidden) {
    layers->push_back(torch::nn::Linear(width, hidden));
    layers->push_back(torch::nn::ReLU());
    if (config.dropout > 0) layers->push_back(torch::nn::Dropout(config.dropout));
    width = hidden;
  }
  layers->push_back(torch::nn::Linear(width, classes));
  return layers.ptr();
}

}  // namespace cpprun::trainer
