#include "worker_runtime/checkpoint/state_dict.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "worker_runtime/checkpoint/manifest.hpp"
#include "worker_runtime/checkpoint/safetensors.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker {
namespace {

const std::string kWrapperPrefix = "module.";

std::vector<NamedTensor> without_wrapper_prefix(std::vector<NamedTensor> tensors) {
  const bool wrapped = std::all_of(tensors.begin(), tensors.end(), [](const NamedTensor& named) {
    return named.name.starts_with(kWrapperPrefix);
  });
  if (wrapped) {
    for (NamedTensor& named : tensors) {
      named.name.erase(0, kWrapperPrefix.size());
    }
  }
  return tensors;
}

}  // namespace

std::vector<NamedTensor> state_dict(const torch::nn::Module& module) {
  std::vector<NamedTensor> result;
  for (const auto& item : module.named_parameters()) {
    if (item.value().defined()) {
      result.push_back({item.key(), item.value().detach()});
    }
  }
  for (const auto& item : module.named_buffers()) {
    if (item.value().defined()) {
      result.push_back({item.key(), item.value().detach()});
    }
  }
  return result;
}

void load_state_dict(torch::nn::Module& module, const std::vector<NamedTensor>& tensors,
                     const std::string& source) {
  const at::NoGradGuard no_grad;
  const std::vector<NamedTensor> targets = state_dict(module);
  std::vector<NamedTensor> sources = tensors;
  std::optional<std::string> difference = first_difference(tensor_specs(sources), tensor_specs(targets));
  if (difference) {
    sources = without_wrapper_prefix(std::move(sources));
    difference = first_difference(tensor_specs(sources), tensor_specs(targets));
  }
  if (difference) {
    throw ConfigError(source + " is of another model: " + *difference);
  }
  std::unordered_map<std::string, at::Tensor> by_name;
  for (const NamedTensor& named : sources) {
    by_name.emplace(named.name, named.tensor);
  }
  for (const NamedTensor& target : targets) {
    at::Tensor(target.tensor).copy_(by_name.at(target.name));
  }
}

}  // namespace cpprun::worker
