// Batches of an in-memory dataset in the order of an index list. A batch is a pure function of its number,
// so a resumed run starts its loop in the middle of an epoch and sees what it would have seen.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace cpprun::worker {

struct Batch {
  at::Tensor inputs;   // [b, ...]
  at::Tensor targets;  // [b, ...]
};

// All examples of a dataset; both tensors have one row an example and lie on the same device.
struct TensorDataset {
  at::Tensor inputs;   // [n, ...]
  at::Tensor targets;  // [n, ...]
  std::int64_t size() const { return inputs.size(0); }
};

class DataLoader {
 public:
  // `indices` are rows of the dataset, e.g. DistributedSampler's for one epoch. With drop_last a short last
  // batch is left out. The dataset's tensors are shared, not copied. Throws ConfigError for a batch size
  // below 1, tensors of different lengths, or an index outside of the dataset.
  DataLoader(TensorDataset dataset, const std::vector<std::int64_t>& indices, std::int64_t batch_size,
             bool drop_last = false);

  // Number of batches.
  std::int64_t size() const;

  // Batch `number`, 0 <= number < size(), gathered into new tensors on the dataset's device.
  Batch batch(std::int64_t number) const;

 private:
  TensorDataset dataset_;
  at::Tensor indices_;  // i64 [m], on the dataset's device
  std::int64_t batch_size_;
  bool drop_last_;
};

}  // namespace cpprun::worker
