// A worker whose rank 1 alone meets an example that is no number, in its second batch. Ends with an error
// where the ranks' parameters differ afterwards. Run by trainer_one_bad_batch.py.
#include <ATen/ATen.h>
#include <torch/nn/modules/container/sequential.h>

#include <chrono>
#include <limits>

#include "trainer/datasets/dataset.hpp"
#include "trainer/trainer.hpp"
#include "worker_runtime/collectives.hpp"
#include "worker_runtime/process_group.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace {

using namespace cpprun;

int run(const std::string& config_file) {
  const trainer::TrainConfig config = trainer::load_config(config_file, {});
  trainer::Dataset dataset = trainer::load_dataset(std::get<trainer::SyntheticConfig>(config.data));
  const worker::WorkerEnv env = worker::from_environment();
  worker::ProcessGroup group(env, worker::choose_device(env), std::chrono::seconds(60));
  const worker::DistributedSampler of_rank_1(
      dataset.train.size(), 2, 1, {.shuffle = true, .seed = config.shuffle_seed, .drop_last = true});
  const std::int64_t bad = of_rank_1.indices(0).at(static_cast<std::size_t>(config.batch_size));
  dataset.train.inputs[bad].fill_(std::numeric_limits<float>::quiet_NaN());
  {
    trainer::Trainer trainer(config, dataset, group, /*restarted=*/false);
    trainer.train();
    trainer.close();
    for (const at::Tensor& parameter : trainer.model().parameters()) {
      const at::Tensor least = parameter.detach().clone();
      const at::Tensor most = parameter.detach().clone();
      worker::all_reduce(group, least, worker::ReduceOp::Min);
      worker::all_reduce(group, most, worker::ReduceOp::Max);
      if (!at::equal(least, most)) throw std::runtime_error("the ranks' parameters differ");
    }
  }
  group.close();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return worker::recorded_main([&] { return run(argc > 1 ? argv[1] : ""); });
}
