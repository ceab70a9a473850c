#include "trainer/optimizer.hpp"

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

namespace cpprun::trainer {
namespace {

using Parameters = std::vector<at::Tensor>;

template <class Options, class Config>
Options adam_options(const Config& config) {
  return Options(config.lr)
      .betas({config.beta1, config.beta2})
      .eps(config.eps)
      .weight_decay(config.weight_decay);
}

std::unique_ptr<torch::optim::Optimizer> make(const AdamWConfig& config, const Parameters& parameters) {
  return std::make_unique<torch::optim::AdamW>(parameters, adam_options<torch::optim::AdamWOptions>(config));
}

std::unique_ptr<torch::optim::Optimizer> make(const AdamConfig& config, const Parameters& parameters) {
  return std::make_unique<torch::optim::Adam>(parameters, adam_options<torch::optim::AdamOptions>(config));
}

std::unique_ptr<torch::optim::Optimizer> make(const SgdConfig& config, const Parameters& parameters) {
  return std::make_unique<torch::optim::SGD>(parameters, torch::optim::SGDOptions(config.lr)
                                                             .momentum(config.momentum)
                                                             .nesterov(config.nesterov)
                                                             .weight_decay(config.weight_decay));
}

}  // namespace

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerConfig& config,
                                                        const Parameters& parameters) {
  return std::visit([&parameters](const auto& chosen) { return make(chosen, parameters); }, config);
}

double base_learning_rate(const OptimizerConfig& config) {
  return std::visit([](const auto& chosen) { return chosen.lr; }, config);
}

void set_learning_rate(torch::optim::Optimizer& optimizer, double rate) {
  for (torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) group.options().set_lr(rate);
}

}  // namespace cpprun::trainer
