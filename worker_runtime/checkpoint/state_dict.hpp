// A module's parameters and buffers by their dotted names ("fc1.weight"), as in Python's state_dict.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace cpprun::worker {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// Parameters, then buffers, in the order of registration. The tensors share the module's storage (no copy,
// detached from autograd).
std::vector<NamedTensor> state_dict(const torch::nn::Module& module);

// Copies the tensors into the module's, in place. Names, shapes and dtypes must match exactly, except that a
// "module." before every name (a wrapped model's) is taken off. Throws ConfigError with one sentence that
// names the first difference, and then changes nothing. `source` names the origin in that sentence.
void load_state_dict(torch::nn::Module& module, const std::vector<NamedTensor>& tensors,
                     const std::string& source);

}  // namespace cpprun::worker
