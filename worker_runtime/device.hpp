// Which device this worker computes on, decided before LibTorch looks for CUDA itself: the CPU libraries are
// all that a worker links, and the CUDA part is a module opened only where there is a GPU to use.
#pragma once

#include <c10/core/Device.h>

#include <optional>
#include <string>

#include "worker_runtime/contract/worker_env.hpp"

namespace cpprun::worker {

class CudaPlugin;

// A device chosen for this process. A value; the plug-in, once opened, stays until the process ends.
struct WorkerDevice {
  c10::Device device{c10::DeviceType::CPU};  // cpu, or cuda:<index>, which is then the current device
  CudaPlugin* cuda = nullptr;                // null on the CPU

  // Waits until all work queued on the device is done; nothing to wait for on the CPU.
  void synchronize() const;
};

// What the machine and the user say about GPUs, as far as it can be known without CUDA.
struct GpuSurroundings {
  bool use_cpu = false;                             // USE_CPU=1
  std::optional<std::string> cuda_visible_devices;  // the variable's value, empty meaning "none"
  int gpus = 0;                                     // GPUs that the driver shows on this machine
};

// Pure. The CUDA index for a worker with this local rank, or nothing for the CPU. Throws ConfigError where
// GPUs are to be used and this local rank has none of its own.
std::optional<int> decide_cuda_index(const GpuSurroundings& surroundings, int local_rank);

// Reads the surroundings and decides: the CPU when USE_CPU=1, when the machine has no GPU, or (with a
// warning) when this build has no CUDA module or CUDA finds no usable device; else the GPU of the local rank,
// made current. Call it once and before any Torch call that asks for CUDA (torch::cuda::is_available(),
// .to("cuda")): LibTorch settles on the first such call whether CUDA exists.
WorkerDevice choose_device(const WorkerEnv& env);

}  // namespace cpprun::worker
