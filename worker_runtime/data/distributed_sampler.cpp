#include "worker_runtime/data/distributed_sampler.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/randperm.h>

#include <string>

#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker {
DistributedSampler::DistributedSampler(std::int64_t dataset_size, int world_size, int rank,
                                       const DistributedSamplerOptions& options)
    : dataset_size_(dataset_size), world_size_(world_size), rank_(rank), options_(options) {
  if (dataset_size < 0 || world_size < 1 || rank < 0 || rank >= world_size) {
    throw ConfigError("DistributedSampler: rank " + std::to_string(rank) + " of " +
                      std::to_string(world_size) + " over " + std::to_string(dataset_size) +
                      " examples is not possible");
  }
}

// Python's math.ceil(n / world), and with drop_last its count of what is left after whole rounds.
std::int64_t DistributedSampler::size(std::int64_t used) const {
  const std::int64_t left = dataset_size_ - used;
  return options_.drop_last ? left / world_size_ : (left + world_size_ - 1) / world_size_;
}

std::vector<std::int64_t> DistributedSampler::indices(std::int64_t epoch, std::int64_t used) const {
  at::Tensor order;
  if (options_.shuffle) {
    // Unsigned, as Python's generator takes negative seeds and sums beyond 2^63 - 1 modulo 2^64.
    const std::uint64_t seed = static_cast<std::uint64_t>(options_.seed) + static_cast<std::uint64_t>(epoch);
    order = at::randperm(dataset_size_, at::make_generator<at::CPUGeneratorImpl>(seed), at::kLong);
  } else {
    order = at::arange(dataset_size_, at::kLong);
  }
  const std::int64_t* order_at = order.const_data_ptr<std::int64_t>();
  std::vector<std::int64_t> result;
  const std::int64_t own = size(used);
  result.reserve(static_cast<std::size_t>(own));
  for (std::int64_t i = 0; i < own; ++i) {
    // Every world_size-th element of the list repeated without end.
    result.push_back(order_at[used + (rank_ + i * world_size_) % (dataset_size_ - used)]);
  }
  return result;
}

}  // namespace cpprun::worker
