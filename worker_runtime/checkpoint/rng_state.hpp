// The states of the random generators that a rank draws from: CPU's default generator, and the device's own.
#pragma once

#include <c10/core/Device.h>

#include <vector>

#include "worker_runtime/checkpoint/state_dict.hpp"

namespace cpprun::worker {

// "cpu", and "cuda" where the device is one; u8 tensors, byte for byte what torch.get_rng_state() gives.
std::vector<NamedTensor> rng_state(c10::Device device);

// Throws ConfigError for states that the generators do not take; changes nothing.
void check_rng_state(c10::Device device, const std::vector<NamedTensor>& states);

// Gives the generators these states; a generator without one keeps its own.
void set_rng_state(c10::Device device, const std::vector<NamedTensor>& states);

}  // namespace cpprun::worker
