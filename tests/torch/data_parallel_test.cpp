// DistributedDataParallel against the definition: gradients are the mean of what each rank computes alone.
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstring>

#include "tests/torch/worker_processes.hpp"
#include "worker_runtime/collectives.hpp"
#include "worker_runtime/parallel/distributed_data_parallel.hpp"
#include "worker_runtime/process_group.hpp"

namespace cpprun::worker::test {
namespace {

constexpr std::chrono::seconds kLimit{60};

// Two layers and a spare one; `depth` says how much of it a forward uses.
struct Net : torch::nn::Module {
  explicit Net(std::int64_t width = 16) {
    first = register_module("first", torch::nn::Linear(8, width));
    norm = register_module("norm", torch::nn::BatchNorm1d(width));
    second = register_module("second", torch::nn::Linear(width, 3));
    spare = register_module("spare", torch::nn::Linear(3, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return forward(x, true, false); }
  at::Tensor forward(const at::Tensor& x, bool use_spare, bool use_norm) {
    at::Tensor hidden = first(x).tanh();
    if (use_norm) {
      hidden = norm(hidden);
    }
    const at::Tensor out = second(hidden);
    return use_spare ? spare(out) : out;
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, spare{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

std::shared_ptr<Net> make_net(std::uint64_t seed, std::int64_t width = 16) {
  at::manual_seed(seed);
  return std::make_shared<Net>(width);
}

// Without batch norm, whose parameters the plain forward leaves unused.
std::shared_ptr<Net> make_plain_net(std::uint64_t seed, std::int64_t width = 16) {
  std::shared_ptr<Net> net = make_net(seed, width);
  for (at::Tensor parameter : net->norm->parameters()) {
    parameter.set_requires_grad(false);
  }
  return net;
}

at::Tensor batch_of(int rank, int step) {
  at::manual_seed(static_cast<std::uint64_t>(1000 + 10 * step + rank));
  return at::randn({4, 8});
}

at::Tensor loss_of(const at::Tensor& output) {
  return (output * output).sum();
}

at::Tensor flat_gradients(const torch::nn::Module& module) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& parameter : module.parameters()) {
    if (parameter.grad().defined()) {
      parts.push_back(parameter.grad().flatten());
    }
  }
  return at::cat(parts);
}

at::Tensor flat_parameters(const torch::nn::Module& module) {
  std::vector<at::Tensor> parts;
  for (const at::Tensor& parameter : module.parameters()) {
    parts.push_back(parameter.detach().flatten());
  }
  return at::cat(parts);
}

std::vector<at::Tensor> gathered(const ProcessGroup& group, const at::Tensor& flat) {
  const at::Tensor bytes = flat.contiguous();
  std::vector<at::Tensor> result;
  for (const std::string& text :
       all_gather(group, std::string(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes()))) {
    at::Tensor copy = at::empty_like(bytes);
    require(text.size() == bytes.nbytes(), "equal sizes on all ranks");
    std::memcpy(copy.mutable_data_ptr(), text.data(), text.size());
    result.push_back(copy);
  }
  return result;
}

void require_equal_on_all_ranks(const ProcessGroup& group, const at::Tensor& flat, const std::string& what) {
  for (const at::Tensor& other : gathered(group, flat)) {
    require(at::equal(other, flat), what + " are equal on all ranks");
  }
}

// The gradient that `net` would get from this rank's batch without any wrapper.
at::Tensor local_gradients(const Net& net, const at::Tensor& batch, bool use_spare = true) {
  const std::shared_ptr<Net> alone = make_plain_net(0, net.first->options.out_features());
  {
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> from = net.parameters();
    std::vector<at::Tensor> to = alone->parameters();
    for (std::size_t i = 0; i < from.size(); ++i) {
      to[i].copy_(from[i]);
    }
  }
  loss_of(alone->forward(batch, use_spare, false)).backward();
  return flat_gradients(*alone);
}

void train_and_compare(const ProcessGroup& group, const DistributedDataParallelOptions& options, bool exact,
                       bool set_to_none, std::int64_t width) {
  const std::shared_ptr<Net> net = make_plain_net(static_cast<std::uint64_t>(group.rank()), width);
  DistributedDataParallel<Net> ddp(net, group, options);
  require_equal_on_all_ranks(group, flat_parameters(*net), "weights after wrapping");
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.01));
  for (int step = 0; step < 4; ++step) {
    const at::Tensor batch = batch_of(group.rank(), step);
    const std::vector<at::Tensor> alone = gathered(group, local_gradients(*net, batch));
    at::Tensor mean = alone[0].clone();
    for (std::size_t rank = 1; rank < alone.size(); ++rank) {
      mean += alone[rank];
    }
    mean /= static_cast<double>(alone.size());
    zero_grad(*net, set_to_none);
    loss_of(ddp.forward(batch)).backward();
    const at::Tensor got = flat_gradients(*net);
    require(exact ? at::equal(got, mean) : at::allclose(got, mean, 1e-5, 1e-6),
            "gradients of step " + std::to_string(step) + " are the mean over the ranks");
    optimizer.step();
    require_equal_on_all_ranks(group, flat_parameters(*net), "weights");
  }
}

const WorkerRegistration kMean("mean", [](const WorkerEnv& env, const std::vector<std::string>& arguments) {
  ProcessGroup group(env, {}, kLimit);
  DistributedDataParallelOptions options;
  bool set_to_none = true;
  std::int64_t width = 16;
  for (const std::string& argument : arguments) {
    options.find_unused_parameters |= argument == "find_unused";
    options.gradient_as_bucket_view |= argument == "view";
    options.static_graph |= argument == "static";
    set_to_none &= argument != "zeros";
    if (argument == "buckets") {
      options.bucket_cap_mb = 1;
      width = 80'000;  // 8 * width floats are 2.4 MiB: several buckets after the first backward
    }
  }
  train_and_compare(group, options, /*exact=*/group.world_size() <= 2, set_to_none, width);
  group.close();
  return 0;
});

struct Arrangement {
  int world_size;
  std::vector<std::string> arguments;
};

class MeanGradient : public testing::TestWithParam<Arrangement> {};

TEST_P(MeanGradient, IsWhatEachRankGets) {
  Job job;
  job.worker = "mean";
  job.world_size = GetParam().world_size;
  job.arguments = GetParam().arguments;
  EXPECT_EQ(failures_of(job), "");
}

INSTANTIATE_TEST_SUITE_P(DistributedDataParallel, MeanGradient,
                         testing::Values(Arrangement{1, {}}, Arrangement{2, {}}, Arrangement{3, {}},
                                         Arrangement{2, {"view"}}, Arrangement{2, {"view", "zeros"}},
                                         Arrangement{2, {"static"}}, Arrangement{2, {"find_unused"}},
                                         Arrangement{2, {"buckets"}}));

// The bucket limit has an effect: one bucket first, more once the real order of gradients is known.
const WorkerRegistration kBuckets("buckets", [](const WorkerEnv& env, const std::vector<std::string>&) {
  ProcessGroup group(env, {}, kLimit);
  DistributedDataParallelOptions options;
  options.bucket_cap_mb = 1;
  DistributedDataParallel<Net> ddp(make_plain_net(1, 80'000), group, options);
  loss_of(ddp.forward(batch_of(env.rank, 0))).backward();
  require(ddp.bucket_sizes().size() == 1, "one bucket before the order is known");
  loss_of(ddp.forward(batch_of(env.rank, 1))).backward();
  require(ddp.bucket_sizes().size() > 1, "several buckets of 1 MiB after that");
  group.close();
  return 0;
});

TEST(DistributedDataParallel, RebuildsItsBucketsByTheCap) {
  Job job;
  job.worker = "buckets";
  job.world_size = 2;
  EXPECT_EQ(failures_of(job), "");
}

// Three micro-batches, the first two under no_sync, give the gradient of one batch of all examples.
const WorkerRegistration kNoSync("no_sync", [](const WorkerEnv& env, const std::vector<std::string>&) {
  ProcessGroup group(env, {}, kLimit);
  const std::shared_ptr<Net> net = make_plain_net(5);
  DistributedDataParallel<Net> ddp(net, group);
  for (int round = 0; round < 2; ++round) {
    zero_grad(*net);
    {
      const NoSync outer = ddp.no_sync();
      loss_of(ddp.forward(batch_of(env.rank, 0))).backward();
      { const NoSync inner = ddp.no_sync(); }
      loss_of(ddp.forward(batch_of(env.rank, 1))).backward();
    }
    const std::vector<at::Tensor> local = gathered(group, flat_gradients(*net));
    require(!at::equal(local[0], local[1]), "gradients differ while nothing was synchronised");
    loss_of(ddp.forward(batch_of(env.rank, 2))).backward();
    std::vector<at::Tensor> all;
    for (int rank = 0; rank < env.world_size; ++rank) {
      for (int step = 0; step < 3; ++step) {
        all.push_back(batch_of(rank, step));
      }
    }
    const at::Tensor expected = local_gradients(*net, at::cat(all)) / env.world_size;
    require(at::allclose(flat_gradients(*net), expected, 1e-5, 1e-6),
            "accumulated gradients are those of one batch");
  }
  group.close();
  return 0;
});

TEST(DistributedDataParallel, AccumulatesUnderNoSync) {
  Job job;
  job.worker = "no_sync";
  job.world_size = 2;
  EXPECT_EQ(failures_of(job), "");
}

at::Tensor running_mean(const Net& net) {
  return net.norm->running_mean.clone();
}

// Running statistics differ after a forward; the next one that follows a synchronised forward begins with
// rank 0's.
const WorkerRegistration kBuffers("buffers", [](const WorkerEnv& env,
                                                const std::vector<std::string>& arguments) {
  ProcessGroup group(env, {}, kLimit);
  DistributedDataParallelOptions options;
  options.broadcast_buffers = arguments.at(0) == "broadcast";
  const std::shared_ptr<Net> net = make_net(static_cast<std::uint64_t>(env.rank));
  DistributedDataParallel<Net> ddp(net, group, options);
  loss_of(ddp.forward(batch_of(env.rank, 0), true, true)).backward();
  const std::vector<at::Tensor> after_first = gathered(group, running_mean(*net));
  require(!at::equal(after_first[0], after_first[1]),
          "running means differ after a forward on different data");
  net->eval();
  loss_of(ddp.forward(batch_of(env.rank, 1), true, true)).backward();
  require(at::equal(running_mean(*net), after_first[options.broadcast_buffers ? 0 : env.rank]),
          "the second forward began with the expected running mean");
  net->train();
  {
    const NoSync no_sync = ddp.no_sync();
    loss_of(ddp.forward(batch_of(env.rank, 2), true, true)).backward();
    const at::Tensor own = running_mean(*net);
    net->eval();
    loss_of(ddp.forward(batch_of(env.rank, 3), true, true)).backward();
    require(at::equal(running_mean(*net), own), "no broadcast follows a forward that was not synchronised");
  }
  group.close();
  return 0;
});

TEST(DistributedDataParallel, BroadcastsBuffersFromRank0) {
  Job job;
  job.worker = "buffers";
  job.world_size = 2;
  job.arguments = {"broadcast"};
  EXPECT_EQ(failures_of(job), "");
  job.arguments = {"keep"};
  EXPECT_EQ(failures_of(job), "");
}

const WorkerRegistration kUnused("unused", [](const WorkerEnv& env,
                                              const std::vector<std::string>& arguments) {
  ProcessGroup group(env, {}, kLimit);
  DistributedDataParallelOptions options;
  options.find_unused_parameters = arguments.at(0) == "find";
  const std::shared_ptr<Net> net = make_net(3);
  DistributedDataParallel<Net> ddp(net, group, options);
  for (int step = 0; step < 3; ++step) {
    zero_grad(*net);
    const bool use_spare = env.rank == 0 && step == 1;  // once, and then on one rank only
    loss_of(ddp.forward(batch_of(env.rank, step), use_spare, false)).backward();
    if (!options.find_unused_parameters) {
      continue;  // the next forward must complain
    }
    require(net->norm->weight.grad().defined() == false, "a parameter that no rank used has no gradient");
    require(net->spare->weight.grad().defined() == (step == 1),
            "one that some rank used has one on every rank");
    require_equal_on_all_ranks(group, flat_gradients(*net), "gradients");
  }
  group.close();
  return 0;
});

TEST(DistributedDataParallel, FindsUnusedParameters) {
  Job job;
  job.worker = "unused";
  job.world_size = 2;
  job.arguments = {"find"};
  EXPECT_EQ(failures_of(job), "");
}

TEST(DistributedDataParallel, RefusesUnusedParametersWithoutTheFlag) {
  Job job;
  job.worker = "unused";
  job.world_size = 2;
  job.arguments = {"do not find"};
  for (const RankResult& result : run_job(job)) {
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_NE(result.standard_error.find("find_unused_parameters"), std::string::npos)
        << result.standard_error;
  }
}

const WorkerRegistration kDifferent("different", [](const WorkerEnv& env, const std::vector<std::string>&) {
  ProcessGroup group(env, {}, kLimit);
  DistributedDataParallel<Net> ddp(make_plain_net(0, env.rank == 0 ? 16 : 17), group);
  return 0;
});

TEST(DistributedDataParallel, RefusesModelsThatDifferBetweenRanks) {
  Job job;
  job.worker = "different";
  job.world_size = 2;
  const std::vector<RankResult> results = run_job(job);
  EXPECT_EQ(results[1].exit_code, 1);
  EXPECT_NE(results[1].standard_error.find("the model must be the same on all ranks"), std::string::npos)
      << results[1].standard_error;
  EXPECT_EQ(results[0].exit_code, 1) << "rank 0 must notice as well";
}

const WorkerRegistration kFrozen("frozen",
                                 [](const WorkerEnv& env, const std::vector<std::string>& arguments) {
                                   ProcessGroup group(env, {}, kLimit);
                                   const std::shared_ptr<Net> net = make_plain_net(0);
                                   DistributedDataParallelOptions options;
                                   if (arguments.at(0) == "frozen") {
                                     for (at::Tensor parameter : net->parameters()) {
                                       parameter.set_requires_grad(false);
                                     }
                                   } else {
                                     options.bucket_cap_mb = 0;
                                   }
                                   DistributedDataParallel<Net> ddp(net, group, options);
                                   return 0;
                                 });

TEST(DistributedDataParallel, RefusesWhatCannotWork) {
  Job job;
  job.worker = "frozen";
  job.arguments = {"frozen"};
  EXPECT_EQ(run_job(job)[0].exit_code, 2);
  job.arguments = {"cap"};
  EXPECT_EQ(run_job(job)[0].exit_code, 2);
}

}  // namespace
}  // namespace cpprun::worker::test
