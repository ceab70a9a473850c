// An optimizer's state keyed by parameter names, so that it means the same in another process: LibTorch
// itself keys it by addresses. Adam, AdamW and SGD.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker_runtime/checkpoint/state_dict.hpp"

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
class OptimizerOptions;
class OptimizerParamState;
}  // namespace torch::optim

namespace cpprun::worker {

struct OptimizerState {
  std::string options;               // JSON: {"type": "AdamW", "groups": [{"parameters": [...], "lr": ...}]}
  std::vector<NamedTensor> tensors;  // "fc1.weight/exp_avg", "fc1.weight/step" (i64), ...
};

// Tensors share the optimizer's storage. Throws ConfigError for an optimizer of another kind, or one with a
// parameter that is none of the model's.
OptimizerState optimizer_state(const torch::nn::Module& model, const torch::optim::Optimizer& optimizer);

// A saved state on its way into an optimizer: the constructor checks all of it and changes nothing, apply()
// cannot fail. Learning rates and the other options become the saved ones.
class OptimizerRestore {
 public:
  // Throws ConfigError with half a sentence that names the first difference (kind of optimizer, groups,
  // parameters, shapes).
  OptimizerRestore(const torch::nn::Module& model, torch::optim::Optimizer& optimizer,
                   const OptimizerState& saved);
  ~OptimizerRestore();
  void apply();

 private:
  torch::optim::Optimizer& optimizer_;
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options_;  // one a group
  // The state of each parameter, by LibTorch's key: the address of its TensorImpl.
  std::vector<std::pair<void*, std::unique_ptr<torch::optim::OptimizerParamState>>> states_;
};

}  // namespace cpprun::worker
