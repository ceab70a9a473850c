// One rank's replica of the model: its module, wrapped for gradient reduction, and its optimizer. All
// replicas hold the same weights at all times.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "trainer/datasets/dataset.hpp"
#include "trainer/models/models.hpp"
#include "trainer/train_config.hpp"
#include "worker_runtime/data/data_loader.hpp"

namespace torch::optim {
class Optimizer;
}
namespace cpprun::worker {
class ProcessGroup;
template <class Module>
class DistributedDataParallel;
}  // namespace cpprun::worker

namespace cpprun::trainer {

class Replica {
 public:
  // Collective. Start weights come from config.seed; torch's default generator is left at seed + rank, for
  // dropout and shifts. `group` must outlive the replica.
  Replica(const TrainConfig& config, const Dataset& dataset, const worker::ProcessGroup& group);
  ~Replica();
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  Model& model() const { return *model_; }
  torch::optim::Optimizer& optimizer() const { return *optimizer_; }

  // An update: begin, add each batch of the window, then finish or abandon.
  void begin_update();

  // Adds the gradients of the batch's summed loss and returns that loss. The window's last batch, and only
  // that, has `reduce`: the sums of all ranks are then averaged.
  double add(const worker::Batch& batch, bool reduce);

  // Scales the gradients by `factor`, clips their norm (0: not) and takes the optimizer's step.
  void finish_update(double factor, double clip_norm, double learning_rate);

  // Leaves parameters and buffers as they were at begin_update.
  void abandon_update();

 private:
  double add_gradients(const worker::Batch& batch);
  void settle_buckets(const worker::TensorDataset& examples, std::int64_t batch_size);

  int shift_;
  std::shared_ptr<Model> model_;
  std::unique_ptr<worker::DistributedDataParallel<Model>> parallel_;
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<at::Tensor> buffers_before_;  // batch norm's statistics, which forward changes
};

}  // namespace cpprun::trainer
