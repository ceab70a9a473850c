#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

#include "trainer/models/models.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::trainer {

std::shared_ptr<Model> make_model(const CnnConfig& config, const std::vector<std::int64_t>& input_shape,
                                  std::int64_t classes) {
  constexpr std::size_t kPooledBlocks = 2;
  std::int64_t channels = input_shape.at(0);
  std::int64_t height = input_shape.at(1);
  std::int64_t width = input_shape.at(2);
  torch::nn::Sequential layers;
  for (std::size_t block = 0; block < config.channels.size(); ++block) {
    const int next = config.channels[block];
    layers->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(channels, next, 3).padding(1)));
    layers->push_back(torch::nn::BatchNorm2d(next));
    layers->push_back(torch::nn::ReLU());
    channels = next;
    if (block >= kPooledBlocks) continue;
    layers->push_back(torch::nn::MaxPool2d(2));
    height /= 2;
    width /= 2;
  }
  if (height == 0 || width == 0) {
    throw worker::ConfigError("\"model.type\" \"cnn\" halves the images' sides twice: images of " +
                              std::to_string(input_shape[1]) + " x " + std::to_string(input_shape[2]) +
                              " pixels are too small, use \"mlp\"");
  }
  layers->push_back(torch::nn::Flatten());
  layers->push_back(torch::nn::Dropout(config.dropout));
  layers->push_back(torch::nn::Linear(channels * height * width, config.hidden));
  layers->push_back(torch::nn::ReLU());
  layers->push_back(torch::nn::Linear(config.hidden, classes));
  return layers.ptr();
}

}  // namespace cpprun::trainer
