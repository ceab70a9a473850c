// How many workers this machine has room for.
#pragma once

#include <string>
#include <vector>

namespace cpprun::launcher {

// CPUs that this process may run on.
int count_cpus();

// NVIDIA GPUs that a worker would see: the driver's list, cut down by CUDA_VISIBLE_DEVICES (`visible`; null
// if unset). 0 without the driver.
int count_gpus(const char* visible);

}  // namespace cpprun::launcher
