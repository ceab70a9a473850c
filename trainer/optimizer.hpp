// The optimizers of a config, with torch.optim's arithmetic, options and defaults.
#pragma once

#include <memory>
#include <vector>

#include "trainer/train_config.hpp"

namespace at {
class Tensor;
}
namespace torch::optim {
class Optimizer;
}

namespace cpprun::trainer {

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const OptimizerConfig& config,
                                                        const std::vector<at::Tensor>& parameters);

// The configured rate, which a schedule's factor scales.
double base_learning_rate(const OptimizerConfig& config);

void set_learning_rate(torch::optim::Optimizer& optimizer, double rate);

}  // namespace cpprun::trainer
