// DistributedDataParallel: the same model on every rank, gradients averaged over the ranks while backward
// still runs. A thin owner of LibTorch's c10d::Reducer (buckets, overlap), in the order of calls that
// torch.nn.parallel.DistributedDataParallel makes, so that both behave alike. Li et al., VLDB 2020,
// arXiv 2006.15704.
//
//   DistributedDataParallel<Cnn> ddp(model, group);
//   zero_grad(*model);
//   loss_of(ddp.forward(images)).backward();      // .grad now holds the mean over ranks
//   { auto guard = ddp.no_sync(); loss_of(ddp.forward(more)).backward(); }   // only adds up locally
//
// Rules, as in Python: move the model to its device before wrapping; build the optimizer from the wrapped
// module's parameters; all ranks run the same number of synchronising forwards; for evaluation call module()
// itself, which communicates nothing.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace cpprun::worker {

class ProcessGroup;

// Names and defaults of Python's constructor.
struct DistributedDataParallelOptions {
  // Rank 0's buffers (batch norm's running statistics) overwrite the others' before each forward that follows
  // a synchronised one.
  bool broadcast_buffers = true;
  // Size of a gradient bucket in MiB, at least 1. Unset: 25, and 1 for the first, which is ready last.
  std::optional<int> bucket_cap_mb;
  // Needed where some parameters take no part in some forwards: costs a walk through the graph each time.
  bool find_unused_parameters = false;
  // Gradients are views of the buckets: saves one copy of all gradients. Use our zero_grad with it, not the
  // optimizer's, which detaches and fails on views.
  bool gradient_as_bucket_view = false;
  // Promises that the graph never changes: unused parameters are then found once.
  bool static_graph = false;
};

// The part of DistributedDataParallel that does not depend on the module's type.
class GradientReducer {
 public:
  // Collective. Checks that parameters have equal shapes and dtypes on all ranks, gives all ranks rank 0's
  // parameters and buffers, and hooks into the autograd graph. Throws ConfigError for a module without
  // trainable parameters or a bucket cap below 1, and CollectiveError where ranks differ.
  GradientReducer(std::shared_ptr<torch::nn::Module> module, const ProcessGroup& group,
                  const DistributedDataParallelOptions& options);
  ~GradientReducer();
  GradientReducer(const GradientReducer&) = delete;
  GradientReducer& operator=(const GradientReducer&) = delete;

  void before_forward();
  at::Tensor after_forward(at::Tensor output);  // the output to use for the loss

  // Bytes of each bucket, in the order of their reduction; after the second forward, as rebuilt.
  std::vector<std::int64_t> bucket_sizes() const;

  // True outside of no_sync: the next forward and backward reduce gradients.
  bool require_sync = true;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// While it lives, forward and backward only add to the local gradients; the next synchronising pass reduces
// the sum. Both forward and backward must lie inside. Guards nest.
class NoSync {
 public:
  explicit NoSync(bool& require_sync) : require_sync_(require_sync), before_(require_sync) {
    require_sync = false;
  }
  ~NoSync() { require_sync_ = before_; }
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  bool& require_sync_;
  bool before_;
};

// `Module` derives from torch::nn::Module and has `at::Tensor forward(...)`.
template <class Module>
class DistributedDataParallel {
 public:
  // Collective; see GradientReducer. `group` must outlive this object.
  DistributedDataParallel(std::shared_ptr<Module> module, const ProcessGroup& group,
                          const DistributedDataParallelOptions& options = {})
      : module_(std::move(module)), reducer_(module_, group, options) {}

  template <class... Inputs>
  at::Tensor forward(Inputs&&... inputs) {
    reducer_.before_forward();
    return reducer_.after_forward(module_->forward(std::forward<Inputs>(inputs)...));
  }

  [[nodiscard]] NoSync no_sync() { return NoSync(reducer_.require_sync); }

  Module& module() const { return *module_; }
  std::vector<std::int64_t> bucket_sizes() const { return reducer_.bucket_sizes(); }

 private:
  std::shared_ptr<Module> module_;
  GradientReducer reducer_;
};

// Clears the gradients of all parameters: to no tensor at all (an optimizer then skips the parameter), or to
// zeros in place. Works with gradient_as_bucket_view, unlike torch::optim::Optimizer::zero_grad.
void zero_grad(torch::nn::Module& module, bool set_to_none = true);

}  // namespace cpprun::worker
