// This worker's membership in its job: the default process group of torch.distributed, built so that C++ and
// Python ranks of one job meet (same store keys, same group name), over Gloo on the CPU and NCCL on CUDA.
#pragma once

#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>

#include "worker_runtime/contract/worker_env.hpp"
#include "worker_runtime/device.hpp"

namespace c10d {
class ProcessGroup;
class Store;
}  // namespace c10d

namespace cpprun::worker {

// Owns the store client, the c10d group and its registration under the name "0". One a process at a time.
// Everything that communicates (DistributedDataParallel, checkpoints) must be gone before it.
class ProcessGroup {
 public:
  // Joins the group of env.world_size ranks; returns when all of them have joined. The store is the agent's
  // where env.use_agent_store says so, otherwise rank 0 serves it at env.master_addr:master_port; a job of
  // one rank needs no store and opens no port. `timeout` limits the joining and is each collective's default
  // limit. Throws CollectiveError where the store cannot be reached or a rank is missing when it ends.
  ProcessGroup(const WorkerEnv& env, const WorkerDevice& device, std::chrono::milliseconds timeout);

  // Leaves without waiting for anybody; right after an error. See close() for the good end.
  ~ProcessGroup();

  ProcessGroup(const ProcessGroup&) = delete;
  ProcessGroup& operator=(const ProcessGroup&) = delete;

  // The good end: waits for all ranks (so that the rank that serves the store does not take it away from
  // others), then leaves. Throws CollectiveError when a rank does not come. Nothing else may be called after.
  void close();

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  const WorkerDevice& device() const { return device_; }
  std::chrono::milliseconds timeout() const { return timeout_; }

  // LibTorch's own object, for what collectives.hpp does not offer.
  const c10::intrusive_ptr<c10d::ProcessGroup>& c10d_group() const { return group_; }

 private:
  void leave() noexcept;

  int rank_;
  int world_size_;
  WorkerDevice device_;
  std::chrono::milliseconds timeout_;
  c10::intrusive_ptr<c10d::Store> store_;
  c10::intrusive_ptr<c10d::ProcessGroup> group_;
};

}  // namespace cpprun::worker
