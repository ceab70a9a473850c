// What the worker runtime asks of CUDA and NCCL. Implemented in a module of its own,
// libcpprun_worker_cuda.so, which links torch_cuda; opening it makes CUDA known to LibTorch. Nothing else of
// the project links CUDA.
#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>

namespace c10d {
class Backend;
class Store;
}  // namespace c10d

namespace cpprun::worker {

class CudaPlugin {
 public:
  virtual ~CudaPlugin() = default;

  virtual int device_count() const = 0;           // 0 where the driver does not answer
  virtual void set_device(int index) = 0;         // for the calling thread
  virtual void synchronize(int index) const = 0;  // waits for all work queued on the device

  // An NCCL backend for c10d::ProcessGroup; `store` is prefixed for this backend already. The communicator is
  // bound to cuda:<index>; `timeout` is that of each collective.
  virtual c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                              int rank, int world_size, int index,
                                                              std::chrono::milliseconds timeout) = 0;
};

// The module's one exported function: `extern "C" CudaPlugin* cpprun_worker_cuda_plugin()`. The object is the
// module's own and lives as long as the process.
using CudaPluginFunction = CudaPlugin* (*)();
inline constexpr const char* kCudaPluginSymbol = "cpprun_worker_cuda_plugin";
inline constexpr const char* kCudaPluginFile = "libcpprun_worker_cuda.so";

}  // namespace cpprun::worker
