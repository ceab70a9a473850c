#include "trainer/replica.hpp"

#include <torch/csrc/autograd/generated/variable_factories.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/optimizer.h>

#include <algorithm>

#include "trainer/optimizer.hpp"
#include "worker_runtime/parallel/distributed_data_parallel.hpp"
#include "worker_runtime/process_group.hpp"

namespace cpprun::trainer {

Replica::Replica(const TrainConfig& config, const Dataset& dataset, const worker::ProcessGroup& group)
    : shift_(dataset.shift) {
  torch::manual_seed(static_cast<std::uint64_t>(config.seed));
  model_ = std::visit(
      [&dataset](const auto& model) { return make_model(model, dataset.input_shape(), dataset.classes); },
      config.model);
  model_->to(group.device().device);
  worker::DistributedDataParallelOptions options;
  options.gradient_as_bucket_view = true;
  parallel_ = std::make_unique<worker::DistributedDataParallel<Model>>(model_, group, options);
  optimizer_ = make_optimizer(config.optimizer, model_->parameters());
  settle_buckets(dataset.train, config.batch_size);
  torch::manual_seed(static_cast<std::uint64_t>(config.seed) + static_cast<std::uint64_t>(group.rank()));
}

Replica::~Replica() = default;

// The reducer sorts its buckets anew after its first backward, and with them the order in which many ranks'
// gradients are added. That first backward is spent here, on nothing, so that a resumed run adds in the order
// of one that was never interrupted.
void Replica::settle_buckets(const worker::TensorDataset& examples, std::int64_t batch_size) {
  const std::int64_t count = std::min(batch_size, examples.size());
  begin_update();
  add({examples.inputs.narrow(0, 0, count), examples.targets.narrow(0, 0, count)}, /*reduce=*/true);
  abandon_update();
}

void Replica::begin_update() {
  worker::zero_grad(*model_);
  buffers_before_.clear();
  for (const at::Tensor& buffer : model_->buffers()) buffers_before_.push_back(buffer.clone());
}

double Replica::add(const worker::Batch& batch, bool reduce) {
  if (!reduce) {
    const worker::NoSync local_only = parallel_->no_sync();
    return add_gradients(batch);
  }
  return add_gradients(batch);
}

double Replica::add_gradients(const worker::Batch& batch) {
  const at::Tensor inputs = shift_ > 0 ? random_shift(batch.inputs, shift_) : batch.inputs;
  const at::Tensor logits = parallel_->forward(inputs);
  const at::Tensor loss = at::cross_entropy_loss(logits, batch.targets, {}, at::Reduction::Sum);
  loss.backward();
  return loss.item<double>();
}

void Replica::finish_update(double factor, double clip_norm, double learning_rate) {
  for (const at::Tensor& parameter : model_->parameters()) {
    if (parameter.grad().defined()) parameter.grad().mul_(factor);
  }
  if (clip_norm > 0) torch::nn::utils::clip_grad_norm_(model_->parameters(), clip_norm);
  set_learning_rate(*optimizer_, learning_rate);
  optimizer_->step();
}

void Replica::abandon_update() {
  worker::zero_grad(*model_);
  const std::vector<at::Tensor> buffers = model_->buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(buffers_before_[i]);
}

}  // namespace cpprun::trainer
