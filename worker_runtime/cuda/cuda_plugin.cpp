#include "worker_runtime/cuda/cuda_plugin.hpp"

#include <c10/cuda/CUDAFunctions.h>

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace cpprun::worker {
namespace {

class TorchCuda : public CudaPlugin {
 public:
  int device_count() const override { return c10::cuda::device_count(); }

  void set_device(int index) override { c10::cuda::set_device(static_cast<c10::DeviceIndex>(index)); }

  void synchronize(int index) const override {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(index));
    c10::cuda::device_synchronize();
  }

  c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                      int world_size, int index,
                                                      std::chrono::milliseconds timeout) override {
    const c10::intrusive_ptr<c10d::ProcessGroupNCCL::Options> options =
        c10d::ProcessGroupNCCL::Options::create();
    options->timeout = timeout;
    const c10::intrusive_ptr<c10d::ProcessGroupNCCL> backend =
        c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, world_size, options);
    backend->setBoundDeviceId(c10::Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(index)));
    return backend;
  }
};

}  // namespace
}  // namespace cpprun::worker

extern "C" __attribute__((visibility("default"))) cpprun::worker::CudaPlugin* cpprun_worker_cuda_plugin() {
  static cpprun::worker::TorchCuda plugin;
  return &plugin;
}
