#include "worker_runtime/parallel/distributed_data_parallel.hpp"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/nn/module.h>

#include <limits>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <unordered_set>

#include "worker_runtime/collectives.hpp"
#include "worker_runtime/error_text.hpp"
#include "worker_runtime/process_group.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker {
namespace {

constexpr std::size_t kBroadcastBuffer = std::size_t{250} << 20;  // bytes, as in Python

// Each tensor once, in order: a module registered under two names shares its parameters.
std::vector<at::Tensor> distinct(const std::vector<at::Tensor>& tensors) {
  std::unordered_set<const c10::TensorImpl*> seen;
  std::vector<at::Tensor> result;
  for (const at::Tensor& tensor : tensors) {
    if (tensor.defined() && seen.insert(tensor.unsafeGetTensorImpl()).second) {
      result.push_back(tensor);
    }
  }
  return result;
}

std::vector<at::Tensor> trainable(const torch::nn::Module& module) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& parameter : distinct(module.parameters())) {
    if (parameter.requires_grad()) {
      result.push_back(parameter);
    }
  }
  return result;
}

// Names by the parameter's index, which the Reducer puts into its errors.
std::unordered_map<std::size_t, std::string> names_of(const torch::nn::Module& module,
                                                      const std::vector<at::Tensor>& parameters) {
  std::unordered_map<const c10::TensorImpl*, std::string> name_of;
  for (const auto& item : module.named_parameters()) {
    name_of.emplace(item.value().unsafeGetTensorImpl(), item.key());
  }
  std::unordered_map<std::size_t, std::string> names;
  for (std::size_t index = 0; index < parameters.size(); ++index) {
    names.emplace(index, name_of.at(parameters[index].unsafeGetTensorImpl()));
  }
  return names;
}

struct BucketCaps {
  std::int64_t first = 0;
  std::int64_t rest = 0;
  std::vector<std::size_t> initial;  // limits of the first assignment
};

// Python's rule. Where buckets are rebuilt after the first backward, in the order in which gradients came,
// the first assignment is one bucket: the order of definition is only a guess, and rank-dependent unused
// parameters would mix bucket reductions up with other collectives.
BucketCaps bucket_caps(const DistributedDataParallelOptions& options) {
  BucketCaps caps;
  caps.rest =
      options.bucket_cap_mb ? std::int64_t{*options.bucket_cap_mb} << 20 : c10d::kDefaultBucketBytesCap;
  caps.first = options.bucket_cap_mb ? caps.rest : c10d::kDefaultFirstBucketBytes;
  if (options.static_graph || !options.find_unused_parameters) {
    caps.initial = {static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max())};
  } else if (caps.first < caps.rest) {
    caps.initial = {static_cast<std::size_t>(caps.first), static_cast<std::size_t>(caps.rest)};
  } else {
    caps.initial = {static_cast<std::size_t>(caps.rest)};
  }
  return caps;
}

}  // namespace

struct GradientReducer::Impl {
  std::shared_ptr<torch::nn::Module> module;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  DistributedDataParallelOptions options;
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
  bool buffers_may_differ = true;          // the last forward synchronised gradients, so steps were taken
  bool static_graph_hook_pending = false;  // until the first synchronised forward

  void build();
  void broadcast_states();
  void broadcast_buffers();
};

void GradientReducer::Impl::broadcast_states() {
  std::vector<at::Tensor> states;
  for (const at::Tensor& tensor : distinct(module->parameters())) {
    states.push_back(tensor.detach());
  }
  for (const at::Tensor& tensor : distinct(module->buffers())) {
    states.push_back(tensor.detach());
  }
  c10d::broadcast_coalesced(group, states, kBroadcastBuffer, 0);
}

// The calls and their order are Python's DistributedDataParallel.__init__, so that C++ and Python ranks meet.
void GradientReducer::Impl::build() {
  const std::vector<at::Tensor> parameters = trainable(*module);
  c10d::verify_params_across_processes(group, parameters, std::nullopt);
  broadcast_states();

  const BucketCaps caps = bucket_caps(options);
  const std::vector<bool> expect_sparse(parameters.size(), false);
  std::vector<std::vector<std::size_t>> buckets = std::get<0>(
      c10d::compute_bucket_assignment_by_size(parameters, caps.initial, expect_sparse, {}, std::nullopt));
  // Gradients come roughly in the reverse order of definition.
  std::reverse(buckets.begin(), buckets.end());
  reducer = std::make_shared<c10d::Reducer>(
      parameters, std::move(buckets), group, expect_sparse, caps.rest, options.find_unused_parameters,
      options.gradient_as_bucket_view, names_of(*module, parameters), caps.first,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
      /*bucket_bytes_cap_list=*/std::vector<std::int64_t>{});
  logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  const c10::Device device = parameters.front().device();
  const std::vector<int> device_ids = device.is_cpu() ? std::vector<int>{} : std::vector<int>{device.index()};
  logger->set_construction_data_and_log(module->name(), device_ids, device.is_cpu() ? -1 : device.index(),
                                        options.broadcast_buffers, /*has_sync_bn=*/false,
                                        options.static_graph);
  if (options.static_graph) {
    reducer->set_static_graph();
    logger->set_static_graph();
    static_graph_hook_pending = true;
  }
}

// The buffers' version counters stay: a forward that saved a buffer for its backward has not been invalidated
// by a broadcast that other ranks' equal forwards have seen as well.
void GradientReducer::Impl::broadcast_buffers() {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> buffers = distinct(module->buffers());
  if (buffers.empty()) {
    return;
  }
  std::vector<std::uint32_t> versions;
  for (const at::Tensor& buffer : buffers) {
    versions.push_back(buffer.unsafeGetTensorImpl()->version_counter().current_version());
  }
  c10d::broadcast_coalesced(group, buffers, kBroadcastBuffer, 0);
  for (std::size_t index = 0; index < buffers.size(); ++index) {
    c10::VariableVersion counter = buffers[index].unsafeGetTensorImpl()->version_counter();
    counter.set_version(versions[index]);
  }
}

GradientReducer::GradientReducer(std::shared_ptr<torch::nn::Module> module, const ProcessGroup& group,
                                 const DistributedDataParallelOptions& options)
    : impl_(std::make_unique<Impl>()) {
  if (options.bucket_cap_mb && *options.bucket_cap_mb < 1) {
    throw ConfigError("bucket_cap_mb must be at least 1 (MiB), not " +
                      std::to_string(*options.bucket_cap_mb));
  }
  if (trainable(*module).empty()) {
    throw ConfigError(
        "DistributedDataParallel needs a model with at least one parameter that requires gradients");
  }
  impl_->module = std::move(module);
  impl_->group = group.c10d_group();
  impl_->options = options;
  try {
    impl_->build();
  } catch (const c10::Error& error) {
    throw CollectiveError("DistributedDataParallel on rank " + std::to_string(group.rank()) + " of " +
                          std::to_string(group.world_size()) +
                          " (the model must be the same on all ranks): " + error_text(error));
  }
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::before_forward() {
  const bool gradients = at::GradMode::is_enabled();
  if (gradients && require_sync) {
    impl_->logger->set_runtime_stats_and_log();
    impl_->reducer->prepare_for_forward();
  }
  if (gradients) {
    impl_->reducer->rebuild_buckets();  // acts once, before the second forward, also under no_sync
  }
  if (impl_->options.broadcast_buffers && impl_->buffers_may_differ) {
    impl_->broadcast_buffers();
  }
}

at::Tensor GradientReducer::after_forward(at::Tensor output) {
  impl_->buffers_may_differ = at::GradMode::is_enabled() && require_sync;
  if (!impl_->buffers_may_differ) {
    return output;
  }
  const bool search_graph = impl_->options.find_unused_parameters && !impl_->options.static_graph;
  impl_->reducer->prepare_for_backward(search_graph ? std::vector<at::Tensor>{output}
                                                    : std::vector<at::Tensor>{});
  if (impl_->static_graph_hook_pending && output.requires_grad()) {
    // In its first iteration a static graph is still unknown: all buckets are reduced when backward is done,
    // by a callback that can only be queued from within backward.
    impl_->static_graph_hook_pending = false;
    output.register_hook([weak = std::weak_ptr<c10d::Reducer>(impl_->reducer),
                          queued = std::make_shared<bool>(false)](const at::Tensor&) {
      if (std::exchange(*queued, true)) {
        return;
      }
      torch::autograd::Engine::get_default_engine().queue_callback([weak] {
        if (const std::shared_ptr<c10d::Reducer> reducer = weak.lock()) {
          reducer->delay_all_reduce();
        }
      });
    });
  }
  return output;
}

std::vector<std::int64_t> GradientReducer::bucket_sizes() const {
  return impl_->logger->get_bucket_sizes();
}

void zero_grad(torch::nn::Module& module, bool set_to_none) {
  const at::NoGradGuard no_grad;
  for (at::Tensor parameter : module.parameters()) {
    at::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) {
      continue;
    }
    if (set_to_none) {
      gradient = at::Tensor();
    } else {
      gradient.zero_();
    }
  }
}

}  // namespace cpprun::worker
