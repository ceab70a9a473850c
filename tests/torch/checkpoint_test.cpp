// Training checkpoints: bitwise resumption, damage, other models, failing disks, killed writers.
#include <ATen/ops/dropout.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <random>

#include "tests/torch/worker_processes.hpp"
#include "worker_runtime/checkpoint/checkpoint_folder.hpp"
#include "worker_runtime/checkpoint/safetensors.hpp"
#include "worker_runtime/checkpoint/training_checkpoint.hpp"
#include "worker_runtime/collectives.hpp"
#include "worker_runtime/process_group.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker::test {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::chrono::seconds kLimit{60};

struct Net : torch::nn::Module {
  explicit Net(std::int64_t width = 6) {
    first = register_module("first", torch::nn::Linear(4, width));
    norm = register_module("norm", torch::nn::BatchNorm1d(width));
    second = register_module("second", torch::nn::Linear(width, 2));
  }
  at::Tensor forward(const at::Tensor& x) { return second(at::dropout(norm(first(x)), 0.5, is_training())); }
  torch::nn::Linear first{nullptr}, second{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

std::unique_ptr<torch::optim::Optimizer> make_optimizer(const std::string& kind, const Net& net) {
  using namespace torch::optim;
  if (kind == "Adam") {
    return std::make_unique<Adam>(net.parameters(), AdamOptions(0.01).amsgrad(true).weight_decay(0.1));
  }
  if (kind == "SGD") {
    return std::make_unique<SGD>(net.parameters(), SGDOptions(0.001).momentum(0.9).nesterov(true));
  }
  if (kind == "plain SGD") {
    return std::make_unique<SGD>(net.parameters(), SGDOptions(0.001));
  }
  std::vector<OptimizerParamGroup> groups;  // two groups with options of their own
  groups.emplace_back(net.first->parameters());
  std::vector<at::Tensor> rest = net.second->parameters();
  for (const at::Tensor& parameter : net.norm->parameters()) {
    rest.push_back(parameter);
  }
  groups.emplace_back(rest, std::make_unique<AdamWOptions>(AdamWOptions(0.003).weight_decay(0.2)));
  return std::make_unique<AdamW>(groups, AdamWOptions(0.02));
}

// A training of its own; data and dropout come from the process's generator.
struct Trial {
  explicit Trial(std::uint64_t seed, const std::string& kind = "AdamW") {
    at::manual_seed(seed);
    net = std::make_shared<Net>();
    optimizer = make_optimizer(kind, *net);
  }
  void steps(int count) {
    for (int step = 0; step < count; ++step) {
      net->zero_grad();
      net->forward(at::randn({5, 4})).square().sum().backward();
      optimizer->step();
      torch::optim::OptimizerOptions& options = optimizer->param_groups()[0].options();
      options.set_lr(options.get_lr() * 0.9);  // a schedule
    }
  }
  TrainingState state() { return {*net, *optimizer}; }
  std::shared_ptr<Net> net;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
};

bool same(const torch::nn::Module& a, const torch::nn::Module& b) {
  const std::vector<NamedTensor> left = state_dict(a);
  const std::vector<NamedTensor> right = state_dict(b);
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (left[i].name != right[i].name || !at::equal(left[i].tensor, right[i].tensor)) {
      return false;
    }
  }
  return left.size() == right.size();
}

Net copy_of(const Net& net) {
  Net copy;
  load_state_dict(copy, state_dict(net), "the copy");
  return copy;
}

// The group of this test process alone.
ProcessGroup alone() {
  return ProcessGroup(WorkerEnv{}, {}, kLimit);
}

std::string refusal(const std::function<void()>& call) {
  try {
    call();
    return "(accepted)";
  } catch (const ConfigError& error) {
    return error.what();
  }
}

class Resume : public testing::TestWithParam<std::string> {};

TEST_P(Resume, IsBitwiseExact) {
  const ProcessGroup group = alone();
  const TemporaryFolder folder;
  Trial whole(1, GetParam());
  whole.steps(3);
  TrainingCheckpoint(group, folder.path(), 2).save(3, whole.state(), R"({"epoch": 1})");
  whole.steps(3);
  const at::Tensor next_draw = at::rand({3});

  Trial resumed(99, GetParam());
  resumed.steps(1);  // leaves other state behind in optimizer and generator
  const std::optional<RestoredCheckpoint> restored =
      TrainingCheckpoint(group, folder.path(), 2).restore_latest(resumed.state());
  ASSERT_TRUE(restored);
  EXPECT_EQ(restored->step, 3);
  EXPECT_EQ(restored->world_size, 1);
  EXPECT_TRUE(restored->rng_restored);
  EXPECT_EQ(restored->progress, R"({"epoch": 1})");
  resumed.steps(3);
  EXPECT_TRUE(same(*whole.net, *resumed.net));
  EXPECT_TRUE(at::equal(at::rand({3}), next_draw));
}

INSTANTIATE_TEST_SUITE_P(TrainingCheckpoint, Resume, testing::Values("AdamW", "Adam", "SGD", "plain SGD"),
                         [](const auto& info) {
                           return info.param == "plain SGD" ? "plainSGD" : info.param;
                         });

TEST(TrainingCheckpoint, BeforeTheFirstStepHasNoOptimizerState) {
  const ProcessGroup group = alone();
  const TemporaryFolder folder;
  TrainingCheckpoint checkpoint(group, folder.path(), 1);
  Trial fresh(1);
  EXPECT_FALSE(checkpoint.restore_latest(fresh.state())) << "an empty directory has nothing to restore";
  checkpoint.save(0, fresh.state(), "");
  Trial other(2);
  other.steps(2);
  ASSERT_TRUE(checkpoint.restore_latest(other.state()));
  EXPECT_TRUE(other.optimizer->state().empty());
  fresh.steps(2);
  checkpoint.restore_latest(other.state());
  other.steps(2);
}

TEST(TrainingCheckpoint, KeepsTheNewest) {
  const ProcessGroup group = alone();
  const TemporaryFolder folder;
  fs::create_directories(folder.path() / "step-77.unfinished" / "inner");
  TrainingCheckpoint checkpoint(group, folder.path(), 2);
  EXPECT_FALSE(fs::exists(folder.path() / "step-77.unfinished"))
      << "leftovers of a killed run go at the start";
  Trial run(1);
  for (const std::int64_t step : {1, 2, 10, 10, 3}) {
    checkpoint.save(step, run.state(), "");
  }
  std::vector<std::int64_t> steps;
  for (const CheckpointFolder& found : list_checkpoints(folder.path())) {
    steps.push_back(found.step);
    EXPECT_NO_THROW(verify_checkpoint(found.path));
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{10, 3}));
}

TEST(TrainingCheckpoint, RefusesAnotherModelOrOptimizer) {
  const ProcessGroup group = alone();
  const TemporaryFolder folder;
  TrainingCheckpoint checkpoint(group, folder.path(), 1);
  Trial run(1);
  run.steps(1);
  const fs::path path = checkpoint.save(1, run.state(), "");

  Net wider(7);
  torch::optim::SGD sgd(wider.parameters(), torch::optim::SGDOptions(0.1));
  EXPECT_EQ(refusal([&] {
              checkpoint.restore(path, {wider, sgd});
            }),
            "checkpoint " + path.string() +
                " is of another model: first.weight has shape [6,4] there and [7,4] here");
  Trial adam(2, "Adam");
  const Net before = copy_of(*adam.net);
  EXPECT_THAT(refusal([&] { checkpoint.restore_latest(adam.state()); }),
              HasSubstr("the optimizer is AdamW there and Adam here"));
  EXPECT_TRUE(same(before, *adam.net)) << "nothing was changed";
}

TEST(TrainingCheckpoint, RefusesCutFilesAndFallsBackToAnOlderOne) {
  const ProcessGroup group = alone();
  const TemporaryFolder folder;
  TrainingCheckpoint checkpoint(group, folder.path(), 5);
  Trial run(1);
  run.steps(1);
  checkpoint.save(1, run.state(), "one");
  const Net at_one = copy_of(*run.net);
  run.steps(1);
  const fs::path path = checkpoint.save(2, run.state(), "two");
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) {
    const std::uintmax_t size = entry.file_size();
    fs::copy_file(entry.path(), folder.path() / "whole");
    for (const std::uintmax_t length : {std::uintmax_t{0}, std::uintmax_t{1}, size / 2, size - 3}) {
      if (length >= size) {
        continue;
      }
      fs::resize_file(entry.path(), length);
      Trial other(7);
      EXPECT_THAT(refusal([&] { checkpoint.restore(path, other.state()); }), HasSubstr(path.string()))
          << entry.path() << " cut to " << length;
      const std::optional<RestoredCheckpoint> restored = checkpoint.restore_latest(other.state());
      ASSERT_TRUE(restored);
      EXPECT_EQ(restored->progress, "one");
      EXPECT_TRUE(same(*other.net, at_one));
    }
    fs::rename(folder.path() / "whole", entry.path());
  }
  EXPECT_EQ(checkpoint.restore_latest(run.state())->progress, "two");
  fs::resize_file(path / "manifest.json", 5);
  fs::resize_file(checkpoint_path(folder.path(), 1) / "model.safetensors", 9);
  EXPECT_THAT(refusal([&] { checkpoint.restore_latest(run.state()); }), HasSubstr("no checkpoint in"));
}

// Two ranks with their own dropout and data: 6 steps against 3, save, and 3 more by new objects.
const WorkerRegistration kResume("resume", [](const WorkerEnv& env,
                                              const std::vector<std::string>& arguments) {
  ProcessGroup group(env, {}, kLimit);
  TrainingCheckpoint checkpoint(group, arguments.at(0), 1);
  const auto synchronised_steps = [&](Trial& run) {
    for (int step = 0; step < 3; ++step) {
      run.net->zero_grad();
      run.net->forward(at::randn({5, 4})).square().sum().backward();
      for (const at::Tensor& parameter : run.net->parameters()) {
        all_reduce(group, parameter.grad());
      }
      run.optimizer->step();
    }
  };
  Trial whole(1);
  at::manual_seed(static_cast<std::uint64_t>(100 + env.rank));
  synchronised_steps(whole);
  checkpoint.save(3, whole.state(), "");
  synchronised_steps(whole);
  Trial resumed(50);
  require(checkpoint.restore_latest(resumed.state())->rng_restored, "each rank has its generator back");
  synchronised_steps(resumed);
  // Rank 0's buffers are what counts, as DistributedDataParallel sends them round.
  for (std::size_t i = 0; i < whole.net->parameters().size(); ++i) {
    require(at::equal(whole.net->parameters()[i], resumed.net->parameters()[i]), "bitwise equal weights");
  }
  group.close();
  return 0;
});

TEST(TrainingCheckpoint, ResumesEveryRank) {
  const TemporaryFolder folder;
  Job job;
  job.worker = "resume";
  job.world_size = 2;
  job.arguments = {folder.path().string()};
  EXPECT_EQ(failures_of(job), "");
}

// Saved by the one rank of the first job, restored by the two of the second.
const WorkerRegistration kGrow("grow", [](const WorkerEnv& env, const std::vector<std::string>& arguments) {
  ProcessGroup group(env, {}, kLimit);
  TrainingCheckpoint checkpoint(group, arguments.at(0), 1);
  Trial run(static_cast<std::uint64_t>(env.rank));
  if (env.world_size == 1) {
    run.steps(2);
    checkpoint.save(2, run.state(), "");
  } else {
    const std::optional<RestoredCheckpoint> restored = checkpoint.restore_latest(run.state());
    require(restored && restored->world_size == 1, "the checkpoint of one rank");
    require(restored->rng_restored == (env.rank == 0), "only rank 0 had a generator state there");
  }
  group.close();
  return 0;
});

TEST(TrainingCheckpoint, RestoresOnAnotherNumberOfRanks) {
  const TemporaryFolder folder;
  Job job;
  job.worker = "grow";
  job.arguments = {folder.path().string()};
  EXPECT_EQ(failures_of(job), "");
  job.world_size = 2;
  EXPECT_EQ(failures_of(job), "");
}

// One rank may write nothing more: all ranks get that rank's error, and the older checkpoint stays.
const WorkerRegistration kFullDisk("full_disk", [](const WorkerEnv& env,
                                                   const std::vector<std::string>& arguments) {
  ProcessGroup group(env, {}, kLimit);
  const fs::path directory = arguments.at(0);
  TrainingCheckpoint checkpoint(group, directory, 1);
  Trial run(1);
  checkpoint.save(1, run.state(), "");
  if (env.rank == std::stoi(arguments.at(1))) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit nothing{0, RLIM_INFINITY};
    setrlimit(RLIMIT_FSIZE, &nothing);
  }
  try {
    checkpoint.save(2, run.state(), "");
    require(false, "saving fails");
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    require(
        text.find("step-2 could not be saved: rank " + arguments.at(1) + ": writing") != std::string::npos,
        text);
  }
  barrier(group);
  const std::vector<CheckpointFolder> left = list_checkpoints(directory);
  require(left.size() == 1 && left[0].step == 1, "the older checkpoint is still there, and nothing else");
  verify_checkpoint(left[0].path);
  require(std::distance(fs::directory_iterator(directory), {}) == 1, "no litter");
  group.close();
  return 0;
});

TEST(TrainingCheckpoint, FailsOnAllRanksWhereOneCannotWrite) {
  for (const char* failing : {"0", "1"}) {
    const TemporaryFolder folder;
    Job job;
    job.worker = "full_disk";
    job.world_size = 2;
    job.arguments = {folder.path().string(), failing};
    EXPECT_EQ(failures_of(job), "") << failing;
  }
}

// Saves step after step until it is killed, and says after each that it is done.
const WorkerRegistration kSaveForEver(
    "save_for_ever", [](const WorkerEnv& env, const std::vector<std::string>& arguments) -> int {
      ProcessGroup group(env, {}, kLimit);
      TrainingCheckpoint checkpoint(group, arguments.at(0), 2);
      Trial run(1);
      const std::optional<RestoredCheckpoint> restored = checkpoint.restore_latest(run.state());
      for (std::int64_t step = restored ? restored->step + 1 : 1;; ++step) {
        run.steps(1);
        checkpoint.save(step, run.state(), "");
        const std::string line = std::to_string(step) + "\n";
        require(write(1, line.data(), line.size()) > 0, "stdout");
      }
    });

TEST(TrainingCheckpoint, SurvivesKillsWhileSaving) {
  const TemporaryFolder folder;
  const ProcessGroup group = alone();
  std::mt19937 random(4);
  std::int64_t saved = 0;
  for (int round = 0; round < 8; ++round) {
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const pid_t pid = start_worker("save_for_ever", {folder.path().string()}, ends[1]);
    close(ends[1]);
    FILE* lines = fdopen(ends[0], "r");
    char line[64];
    for (unsigned count = 2 + random() % 20; count > 0; --count) {
      ASSERT_NE(fgets(line, sizeof line, lines), nullptr) << "the worker ended by itself";
      saved = std::stoll(line);
    }
    kill(pid, SIGKILL);  // while a later one is under way
    waitpid(pid, nullptr, 0);
    while (fgets(line, sizeof line, lines) != nullptr) {
      saved = std::stoll(line);
    }
    fclose(lines);
    for (const CheckpointFolder& found : list_checkpoints(folder.path())) {
      EXPECT_NO_THROW(verify_checkpoint(found.path)) << "whatever has a final name is complete";
    }
    Trial run(2);
    const std::optional<RestoredCheckpoint> restored =
        TrainingCheckpoint(group, folder.path(), 2).restore_latest(run.state());
    ASSERT_TRUE(restored);
    EXPECT_GE(restored->step, saved);
    EXPECT_LE(restored->step, saved + 1);
    for (const fs::directory_entry& entry : fs::directory_iterator(folder.path())) {
      EXPECT_TRUE(entry.path().filename().string().find("unfinished") == std::string::npos) << entry.path();
    }
  }
}

}  // namespace
}  // namespace cpprun::worker::test
