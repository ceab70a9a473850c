#include "worker_runtime/checkpoint/rng_state.hpp"

#include <ATen/Context.h>

#include <mutex>
#include <string>
#include <utility>

#include "worker_runtime/error_text.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker {
namespace {

std::vector<std::pair<std::string, at::Generator>> generators(c10::Device device) {
  std::vector<std::pair<std::string, at::Generator>> result{
      {"cpu", at::globalContext().defaultGenerator(c10::Device(c10::DeviceType::CPU))}};
  if (!device.is_cpu()) {
    result.emplace_back("cuda", at::globalContext().defaultGenerator(device));
  }
  return result;
}

const at::Tensor* find(const std::vector<NamedTensor>& states, const std::string& name) {
  for (const NamedTensor& state : states) {
    if (state.name == name) {
      return &state.tensor;
    }
  }
  return nullptr;
}

}  // namespace

std::vector<NamedTensor> rng_state(c10::Device device) {
  std::vector<NamedTensor> result;
  for (auto& [name, generator] : generators(device)) {
    const std::lock_guard<std::mutex> lock(generator.mutex());
    result.push_back({name, generator.get_state()});
  }
  return result;
}

void check_rng_state(c10::Device device, const std::vector<NamedTensor>& states) {
  for (auto& [name, generator] : generators(device)) {
    const at::Tensor* state = find(states, name);
    if (state == nullptr) {
      continue;
    }
    try {
      generator.clone().set_state(*state);
    } catch (const std::exception& error) {
      throw ConfigError("the random generator '" + name +
                        "' does not take its saved state: " + error_text(error));
    }
  }
}

void set_rng_state(c10::Device device, const std::vector<NamedTensor>& states) {
  for (auto& [name, generator] : generators(device)) {
    if (const at::Tensor* state = find(states, name)) {
      const std::lock_guard<std::mutex> lock(generator.mutex());
      generator.set_state(*state);
    }
  }
}

}  // namespace cpprun::worker
