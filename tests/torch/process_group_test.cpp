// Process groups of real processes: C++ with C++, C++ with Python, and what happens when a rank fails.
#include "worker_runtime/process_group.hpp"

#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "tests/torch/worker_processes.hpp"
#include "worker_runtime/collectives.hpp"

namespace cpprun::worker::test {
namespace {

using testing::HasSubstr;

constexpr std::chrono::seconds kLimit{60};

void check_collectives(const ProcessGroup& group) {
  const int world = group.world_size();
  const int rank = group.rank();
  const std::int64_t sum = std::int64_t{world} * (world - 1) / 2;
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong, at::kInt}) {
    at::Tensor tensor = at::full({3, 2}, rank, type);
    all_reduce(group, tensor);
    require(at::equal(tensor, at::full({3, 2}, sum, type)), "sum of ranks");
    tensor.fill_(rank);
    all_reduce(group, tensor, ReduceOp::Max);
    require(at::equal(tensor, at::full({3, 2}, world - 1, type)), "greatest rank");
  }
  require(all_reduce(group, std::int64_t{rank} + 5, ReduceOp::Min) == 5, "least number");
  const std::vector<at::Tensor> tensors{at::full({4}, rank, at::kFloat), at::full({2, 2}, rank, at::kLong),
                                        at::full({}, rank, at::kDouble)};
  broadcast(group, tensors, world - 1);
  for (const at::Tensor& tensor : tensors) {
    require(at::equal(tensor, at::full_like(tensor, world - 1)), "the last rank's tensors");
  }
  broadcast(group, std::vector<at::Tensor>{});
  require(broadcast(group, std::int64_t{40 + rank}, world - 1) == 39 + world, "the last rank's number");
  const std::string text =
      "rank " + std::to_string(rank) + std::string("\0", 1) + std::string(std::size_t(rank) * 100, 'x');
  require(broadcast(group, text) == std::string("rank 0\0", 7), "rank 0's text");
  require(broadcast(group, rank == 0 ? "" : "x").empty(), "rank 0's empty text");
  const std::vector<std::string> texts = all_gather(group, rank == 0 ? "" : text);
  for (int other = 0; other < world; ++other) {
    const std::size_t size = other == 0 ? 0 : 7 + std::size_t(other) * 100;
    require(texts[std::size_t(other)].size() == size, "each rank's text");
  }
  barrier(group);
}

const WorkerRegistration kCollectives("collectives",
                                      [](const WorkerEnv& env, const std::vector<std::string>&) {
                                        ProcessGroup group(env, {}, kLimit);
                                        check_collectives(group);
                                        group.close();
                                        return 0;
                                      });

TEST(ProcessGroup, JoinsOverTheAgentsStore) {
  for (const int world_size : {1, 2, 3}) {
    Job job;
    job.worker = "collectives";
    job.world_size = world_size;
    EXPECT_EQ(failures_of(job), "") << world_size;
  }
}

TEST(ProcessGroup, JoinsOverAStoreThatRank0Serves) {
  Job job;
  job.worker = "collectives";
  job.world_size = 2;
  job.agent_store = false;
  EXPECT_EQ(failures_of(job), "");
}

// Two groups one after the other in one process.
const WorkerRegistration kTwice("twice", [](const WorkerEnv& env, const std::vector<std::string>&) {
  for (int round = 0; round < 2; ++round) {
    ProcessGroup group(env, {}, kLimit);
    check_collectives(group);
    group.close();
  }
  return 0;
});

TEST(ProcessGroup, LeavesNothingBehindInTheProcess) {
  Job job;
  job.worker = "twice";
  EXPECT_EQ(failures_of(job), "");
}

// The other side is tests/torch/python_rank.py, which makes the same calls through torch.distributed.
const WorkerRegistration kWithPython("with_python", [](const WorkerEnv& env,
                                                       const std::vector<std::string>&) {
  ProcessGroup group(env, {}, kLimit);
  at::Tensor tensor = at::arange(5, at::kFloat) * (env.rank + 1);
  all_reduce(group, tensor);
  require(at::equal(tensor, at::arange(5, at::kFloat) * 3), "sum with Python's tensor");
  const std::vector<at::Tensor> sent{at::full({2}, env.rank, at::kDouble)};
  broadcast(group, sent, env.rank == 0 ? 1 : 0);
  require(at::equal(sent[0], at::full({2}, 1 - env.rank, at::kDouble)), "Python's tensor");
  group.close();
  return 0;
});

TEST(ProcessGroup, MeetsPythonRanks) {
  const std::string python = python_with_torch();
  if (python.empty()) {
    GTEST_SKIP() << "no Python that can import torch (scripts/setup.sh --tests installs one)";
  }
  for (const int python_rank : {0, 1}) {
    Job job;
    job.worker = "with_python";
    job.world_size = 2;
    job.agent_store = python_rank == 0;  // otherwise the C++ rank serves it
    job.commands[python_rank] = {python, (source_folder() / "python_rank.py").string()};
    EXPECT_EQ(failures_of(job), "") << "Python is rank " << python_rank;
  }
}

const WorkerRegistration kJoin("join", [](const WorkerEnv& env, const std::vector<std::string>&) {
  ProcessGroup group(env, {}, std::chrono::milliseconds(700));
  return 0;
});

TEST(ProcessGroup, SaysThatARankIsMissing) {
  Job job;
  job.worker = "join";
  job.world_size = 2;
  job.absent = {1};
  const RankResult result = run_job(job)[0];
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.standard_error, HasSubstr("rank 0 of 2 could not join the process group"));
  EXPECT_THAT(result.standard_error, HasSubstr("within 700 ms"));
}

// Rank 1 stays away from an all_reduce until rank 0 has given up on it.
const WorkerRegistration kLate("late", [](const WorkerEnv& env, const std::vector<std::string>&) {
  ProcessGroup group(env, {}, kLimit);
  c10d::TCPStoreOptions options;
  options.port = env.master_port;
  c10d::TCPStore store(env.master_addr, options);
  if (env.rank == 1) {
    store.wait({"given up"});
    return 0;
  }
  try {
    all_reduce(group, std::int64_t{1}, ReduceOp::Sum, std::chrono::milliseconds(300));
  } catch (const CollectiveError&) {
    store.set("given up", std::vector<std::uint8_t>{1});
    throw;
  }
  return 0;
});

TEST(Collectives, NameOperationRankAndLimit) {
  Job job;
  job.worker = "late";
  job.world_size = 2;
  const std::vector<RankResult> results = run_job(job);
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_THAT(results[0].standard_error, HasSubstr("all_reduce on rank 0 of 2 failed (limit 300 ms)"));
  EXPECT_EQ(results[1].exit_code, 0) << results[1].standard_error;
}

const WorkerRegistration kDie("die", [](const WorkerEnv& env, const std::vector<std::string>&) {
  ProcessGroup group(env, {}, std::chrono::hours(1));
  barrier(group);
  if (env.rank == 1) {
    raise(SIGKILL);
  }
  barrier(group);
  return 0;
});

TEST(Collectives, NoticeADeadRankWithoutWaitingForTheLimit) {
  Job job;
  job.worker = "die";
  job.world_size = 2;
  const std::vector<RankResult> results = run_job(job);
  EXPECT_EQ(results[0].exit_code, 1);
  EXPECT_THAT(results[0].standard_error, HasSubstr("barrier on rank 0 of 2 failed (limit 3600 s)"));
  EXPECT_EQ(results[1].exit_code, -SIGKILL);
}

// An error between collectives ends the process at once, although the group is in the way of the unwinding.
const WorkerRegistration kThrowInGroup("throw_in_group",
                                       [](const WorkerEnv& env, const std::vector<std::string>&) -> int {
                                         ProcessGroup group(env, {}, std::chrono::hours(1));
                                         barrier(group);
                                         if (env.rank == 1) {
                                           throw std::runtime_error("rank 1 gives up");
                                         }
                                         all_reduce(group, std::int64_t{1});
                                         return 0;
                                       });

TEST(Collectives, NoticeARankThatThrew) {
  Job job;
  job.worker = "throw_in_group";
  job.world_size = 2;
  const std::vector<RankResult> results = run_job(job);
  EXPECT_THAT(results[0].standard_error, HasSubstr("all_reduce on rank 0 of 2 failed"));
  EXPECT_THAT(results[1].standard_error, HasSubstr("rank 1 gives up"));
}

}  // namespace
}  // namespace cpprun::worker::test
