// Data order: DistributedSampler against Python's own, and batches.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <sstream>

#include "tests/torch/worker_processes.hpp"
#include "worker_runtime/data/data_loader.hpp"
#include "worker_runtime/data/distributed_sampler.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker::test {
namespace {

using Indices = std::vector<std::int64_t>;

// sampler_oracle.py prints a line a configuration: its six numbers, then the indices.
TEST(DistributedSampler, GivesPythonsIndices) {
  const std::string python = python_with_torch();
  if (python.empty()) {
    GTEST_SKIP() << "no Python that can import torch (scripts/setup.sh --tests installs one)";
  }
  std::istringstream lines(output_of({python, (source_folder() / "sampler_oracle.py").string()}));
  int configurations = 0;
  for (std::string line; std::getline(lines, line); ++configurations) {
    std::istringstream numbers(line);
    std::int64_t n = 0, world = 0, rank = 0, epoch = 0;
    DistributedSamplerOptions options;
    numbers >> n >> world >> rank >> options.shuffle >> options.seed >> epoch >> options.drop_last;
    Indices expected;
    for (std::int64_t index = 0; numbers >> index;) {
      expected.push_back(index);
    }
    const DistributedSampler sampler(n, static_cast<int>(world), static_cast<int>(rank), options);
    ASSERT_EQ(sampler.indices(epoch), expected) << line;
    ASSERT_EQ(sampler.size(), static_cast<std::int64_t>(expected.size())) << line;
  }
  EXPECT_GE(configurations, 1000);
}

TEST(DistributedSampler, CoversEverythingInANewOrderEachEpoch) {
  std::set<Indices> orders;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    Indices all;
    for (int rank = 0; rank < 2; ++rank) {
      const Indices own = DistributedSampler(10, 2, rank, {}).indices(epoch);
      all.insert(all.end(), own.begin(), own.end());
    }
    orders.insert(all);
    std::sort(all.begin(), all.end());
    Indices expected(10);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(all, expected) << epoch;
  }
  EXPECT_EQ(orders.size(), 3u);
}

// Three ranks use 4 examples each, then two share what is left of the epoch.
TEST(DistributedSampler, GoesOnBehindWhatOtherNumbersOfRanksHaveUsed) {
  constexpr std::int64_t kSize = 23, kEpoch = 5, kUsed = 12;
  const Indices order = DistributedSampler(kSize, 1, 0, {.seed = 4}).indices(kEpoch);
  std::multiset<std::int64_t> seen;
  for (int rank = 0; rank < 3; ++rank) {
    const Indices own = DistributedSampler(kSize, 3, rank, {.seed = 4}).indices(kEpoch);
    seen.insert(own.begin(), own.begin() + kUsed / 3);
  }
  for (int rank = 0; rank < 2; ++rank) {
    const DistributedSampler sampler(kSize, 2, rank, {.seed = 4});
    const Indices own = sampler.indices(kEpoch, kUsed);
    EXPECT_EQ(sampler.size(kUsed), 6);
    ASSERT_EQ(own.size(), 6u);
    for (std::size_t i = 0; i < own.size(); ++i) {  // the 12th of 11 is the first of them again
      EXPECT_EQ(own[i], order[kUsed + (static_cast<std::size_t>(rank) + 2 * i) % (kSize - kUsed)]);
    }
    seen.insert(own.begin(), own.end());
  }
  EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), std::size_t{kSize});
  EXPECT_EQ(seen.size(), std::size_t{kSize + 1});

  const DistributedSampler dropping(kSize, 2, 0, {.seed = 4, .drop_last = true});
  EXPECT_EQ(dropping.size(kUsed), 5);
  EXPECT_EQ(dropping.indices(kEpoch, kSize), Indices());
  EXPECT_EQ(DistributedSampler(kSize, 2, 0, {}).indices(kEpoch, kSize), Indices());
}

TEST(DistributedSampler, RefusesImpossibleRanks) {
  EXPECT_THROW(DistributedSampler(10, 2, 2, {}), ConfigError);
  EXPECT_THROW(DistributedSampler(10, 2, -1, {}), ConfigError);
  EXPECT_THROW(DistributedSampler(10, 0, 0, {}), ConfigError);
  EXPECT_THROW(DistributedSampler(-1, 1, 0, {}), ConfigError);
}

TensorDataset numbers(std::int64_t count) {
  return {at::arange(count * 2, at::kFloat).view({count, 2}), at::arange(count, at::kLong)};
}

TEST(DataLoader, GathersBatchesByIndex) {
  const DataLoader loader(numbers(10), {9, 0, 3, 3, 7}, 2);
  ASSERT_EQ(loader.size(), 3);
  EXPECT_TRUE(at::equal(loader.batch(0).targets, at::tensor({9, 0}, at::kLong)));
  EXPECT_TRUE(at::equal(loader.batch(0).inputs, at::tensor({18, 19, 0, 1}, at::kFloat).view({2, 2})));
  EXPECT_TRUE(at::equal(loader.batch(2).targets, at::tensor({7}, at::kLong))) << "the short last batch";
}

TEST(DataLoader, DropsAShortLastBatchOnRequest) {
  EXPECT_EQ(DataLoader(numbers(10), {1, 2, 3, 4, 5}, 2, true).size(), 2);
  EXPECT_EQ(DataLoader(numbers(10), {1, 2, 3, 4}, 2, true).size(), 2);
  EXPECT_EQ(DataLoader(numbers(10), {}, 2).size(), 0);
  EXPECT_EQ(DataLoader(numbers(10), {1}, 2, true).size(), 0);
}

TEST(DataLoader, RefusesBadInput) {
  EXPECT_THROW(DataLoader(numbers(10), {0}, 0), ConfigError);
  EXPECT_THROW(DataLoader(numbers(10), {10}, 1), ConfigError);
  EXPECT_THROW(DataLoader(numbers(10), {-1}, 1), ConfigError);
  EXPECT_THROW(DataLoader({numbers(10).inputs, numbers(9).targets}, {0}, 1), ConfigError);
}

}  // namespace
}  // namespace cpprun::worker::test
