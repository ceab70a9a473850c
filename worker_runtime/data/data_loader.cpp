#include "worker_runtime/data/data_loader.hpp"

#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <string>

#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker {

DataLoader::DataLoader(TensorDataset dataset, const std::vector<std::int64_t>& indices,
                       std::int64_t batch_size, bool drop_last)
    : dataset_(std::move(dataset)), batch_size_(batch_size), drop_last_(drop_last) {
  if (batch_size < 1) {
    throw ConfigError("the batch size must be at least 1, not " + std::to_string(batch_size));
  }
  if (dataset_.targets.size(0) != dataset_.size()) {
    throw ConfigError("a dataset of " + std::to_string(dataset_.size()) + " inputs has " +
                      std::to_string(dataset_.targets.size(0)) + " targets");
  }
  for (const std::int64_t index : indices) {
    if (index < 0 || index >= dataset_.size()) {
      throw ConfigError("index " + std::to_string(index) + " lies outside of a dataset of " +
                        std::to_string(dataset_.size()) + " examples");
    }
  }
  indices_ = at::tensor(indices, at::kLong).to(dataset_.inputs.device());
}

std::int64_t DataLoader::size() const {
  const std::int64_t rows = indices_.size(0);
  return drop_last_ ? rows / batch_size_ : (rows + batch_size_ - 1) / batch_size_;
}

Batch DataLoader::batch(std::int64_t number) const {
  const std::int64_t begin = number * batch_size_;
  const std::int64_t rows = std::min(batch_size_, indices_.size(0) - begin);
  const at::Tensor chosen = indices_.narrow(0, begin, rows);
  return Batch{dataset_.inputs.index_select(0, chosen), dataset_.targets.index_select(0, chosen)};
}

}  // namespace cpprun::worker
