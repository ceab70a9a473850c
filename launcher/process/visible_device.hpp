// --virtual-local-rank: every worker sees one device and is told that it is local rank 0. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "worker_runtime/contract/worker_env.hpp"

namespace cpprun::launcher {

// The device lists that the workers would inherit; nothing where unset.
struct DeviceLists {
  std::optional<std::string> cuda;  // CUDA_VISIBLE_DEVICES
  std::optional<std::string> hip;   // HIP_VISIBLE_DEVICES; one that is not empty goes before the other
};

// For each local rank the variables that take the place of those that the others get: LOCAL_RANK=0, and the
// list's entry at the real local rank as the only visible device; without a list, device number <local rank>.
// Throws std::invalid_argument with a sentence when the list is too short.
std::vector<worker::Variables> one_device_each(int local_world_size, const DeviceLists& lists);

}  // namespace cpprun::launcher
