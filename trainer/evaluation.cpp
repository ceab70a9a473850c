#include "trainer/evaluation.hpp"

#include <torch/csrc/autograd/generated/variable_factories.h>
#include <torch/nn/modules/container/sequential.h>

#include "worker_runtime/collectives.hpp"
#include "worker_runtime/process_group.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::trainer {
namespace {

std::vector<std::int64_t> strided_shard(std::int64_t size, const worker::ProcessGroup& group) {
  std::vector<std::int64_t> indices;
  for (std::int64_t i = group.rank(); i < size; i += group.world_size()) indices.push_back(i);
  return indices;
}

}  // namespace

Evaluation evaluate(Model& model, const worker::TensorDataset& examples, std::int64_t batch_size,
                    const worker::ProcessGroup& group) {
  if (examples.size() == 0) throw worker::ConfigError("validation set is empty");
  const torch::NoGradGuard no_grad;
  model.eval();
  const std::vector<at::Tensor> buffers = model.buffers();
  if (!buffers.empty()) worker::broadcast(group, buffers);

  const worker::DataLoader loader(examples, strided_shard(examples.size(), group), batch_size);
  enum { kLoss, kCorrect, kCount, kTotals };
  const at::Tensor totals =
      torch::zeros({kTotals}, at::TensorOptions(group.device().device).dtype(torch::kFloat64));
  for (std::int64_t number = 0; number < loader.size(); ++number) {
    const worker::Batch batch = loader.batch(number);
    const at::Tensor logits = model.forward(batch.inputs);
    totals[kLoss] +=
        torch::cross_entropy_loss(logits, batch.targets, {}, at::Reduction::Sum).to(torch::kFloat64);
    totals[kCorrect] += logits.argmax(1).eq(batch.targets).sum();
    totals[kCount] += batch.targets.numel();
  }
  worker::all_reduce(group, totals);
  const at::Tensor sums = totals.cpu();
  const double count = sums[kCount].item<double>();
  return Evaluation{.count = static_cast<std::int64_t>(count),
                    .correct = static_cast<std::int64_t>(sums[kCorrect].item<double>()),
                    .loss = sums[kLoss].item<double>() / count};
}

}  // namespace cpprun::trainer
