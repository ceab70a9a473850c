// Which examples a rank sees in an epoch: the very indices of torch.utils.data.DistributedSampler for the
// same dataset size, world size, rank, seed, epoch, shuffle and drop_last.
#pragma once

#include <cstdint>
#include <vector>

namespace cpprun::worker {

struct DistributedSamplerOptions {
  bool shuffle = true;
  std::int64_t seed = 0;  // the same on all ranks
  // False: the list is repeated from its start until it divides by the world size; true: its end is dropped.
  bool drop_last = false;
};

class DistributedSampler {
 public:
  // Throws ConfigError for a negative dataset size or a rank outside of 0..world_size-1. As in Python an
  // empty dataset, and with drop_last one with fewer examples than ranks, gives no indices: ask size().
  DistributedSampler(std::int64_t dataset_size, int world_size, int rank,
                     const DistributedSamplerOptions& options);

  // This rank's indices in `epoch`, in order; size() of them on every rank. With `used`, those of what the
  // epoch has left when other numbers of ranks have used its first so many, shared out in the same way.
  std::vector<std::int64_t> indices(std::int64_t epoch, std::int64_t used = 0) const;
  std::int64_t size(std::int64_t used = 0) const;

 private:
  std::int64_t dataset_size_;
  int world_size_;
  int rank_;
  DistributedSamplerOptions options_;
};

}  // namespace cpprun::worker
