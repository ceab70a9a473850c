// cpprun-train: parse -> record errors -> build the parts -> train -> close.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <optional>
#include <variant>

#include "trainer/command_line.hpp"
#include "trainer/datasets/dataset.hpp"
#include "trainer/optimizer.hpp"
#include "trainer/thread_waiting.hpp"
#include "trainer/train_config.hpp"
#include "trainer/trainer.hpp"
#include "worker_runtime/contract/worker_env.hpp"
#include "worker_runtime/device.hpp"
#include "worker_runtime/log.hpp"
#include "worker_runtime/process_group.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace {

using namespace cpprun;

int run(int argc, char** argv) {
  const std::optional<trainer::CommandLine> line = trainer::parse_command_line(argc, argv);
  if (!line) return 0;
  const trainer::TrainConfig config = trainer::load_config(line->config_file, line->overrides);
  if (!line->print_config) trainer::wait_without_spinning(argv);
  // Without a launcher this is a job of one process.
  const worker::WorkerEnv env = worker::launched() ? worker::from_environment() : worker::WorkerEnv{};
  if (line->print_config || env.rank == 0) std::puts(trainer::to_json(config).c_str());
  std::fflush(stdout);  // whatever happens to this process next
  if (line->print_config) return 0;

  worker::start_log(env.rank);
  if (env.rank == 0 && trainer::base_learning_rate(config.optimizer) == 0) {
    worker::log_warning("\"optimizer.lr\" is 0: the run will leave the weights as they are");
  }
  trainer::Dataset dataset =
      std::visit([](const auto& data) { return trainer::load_dataset(data); }, config.data);
  const worker::WorkerDevice device = worker::choose_device(env);
  const std::chrono::duration<double> timeout(config.collective_timeout_seconds);
  worker::ProcessGroup group(env, device, std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
  trainer::Outcome outcome = trainer::Outcome::Finished;
  {
    trainer::Trainer trainer(config, std::move(dataset), group, /*restarted=*/env.restart_count > 0);
    outcome = trainer.train();
    trainer.close();
  }
  group.close();
  // As a shell reports a process that the signal ended.
  return outcome == trainer::Outcome::Stopped ? 128 + SIGTERM : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return worker::recorded_main([&] { return run(argc, argv); });
}
