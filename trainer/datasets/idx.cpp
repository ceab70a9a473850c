#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

#include "trainer/datasets/dataset.hpp"
#include "trainer/datasets/idx_file.hpp"
#include "worker_runtime/contract/cpprun_progress.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::trainer {
namespace {

// One set as its two files hold it.
struct IdxSet {
  IdxArray images;  // [n, h, w]
  IdxArray labels;  // [n]
};

IdxSet read_set(const std::filesystem::path& dir, const std::string& name) {
  IdxSet set{.images = read_idx((dir / (name + "-images-idx3-ubyte")).string(), 3),
             .labels = read_idx((dir / (name + "-labels-idx1-ubyte")).string(), 1)};
  if (set.images.shape[0] != set.labels.shape[0]) {
    throw worker::ConfigError(dir.string() + " holds " + std::to_string(set.images.shape[0]) +
                              " images but " + std::to_string(set.labels.shape[0]) + " labels in its files " +
                              name + "-*");
  }
  return set;
}

std::uint8_t largest(const std::vector<std::uint8_t>& values) {
  return values.empty() ? std::uint8_t{0} : *std::max_element(values.begin(), values.end());
}

at::Tensor as_tensor(const IdxArray& array, std::vector<std::int64_t> shape) {
  // from_blob only borrows, and a conversion always copies here: the types differ.
  return at::from_blob(const_cast<std::uint8_t*>(array.values.data()), shape, at::kByte);
}

worker::TensorDataset as_tensors(const IdxSet& set, double scale) {
  const std::vector<std::int64_t>& shape = set.images.shape;
  return {as_tensor(set.images, {shape[0], 1, shape[1], shape[2]}).to(at::kFloat).div_(scale),
          as_tensor(set.labels, {shape[0]}).to(at::kLong)};
}

}  // namespace

Dataset load_dataset(const IdxConfig& config) {
  const progress::Section section("load the data set");
  const IdxSet train = read_set(config.dir, "train");
  const IdxSet val = read_set(config.dir, "t10k");
  if (train.images.shape[1] != val.images.shape[1] || train.images.shape[2] != val.images.shape[2]) {
    throw worker::ConfigError(config.dir + ": the images of train-* and t10k-* differ in height or width");
  }
  // Inputs lie in [0, 1] by the training images' largest value: 255 in MNIST, 16 in the digits.
  const double scale = std::max<double>(largest(train.images.values), 1);
  return Dataset{.train = as_tensors(train, scale),
                 .val = as_tensors(val, scale),
                 .classes = std::max(largest(train.labels.values), largest(val.labels.values)) + 1,
                 .shift = config.shift};
}

at::Tensor random_shift(const at::Tensor& images, int pixels) {
  const std::int64_t count = images.size(0);
  const at::TensorOptions index = at::TensorOptions(images.device()).dtype(at::kLong);
  // Drawn on the CPU: one stream of numbers, whatever the device.
  const at::Tensor moves = at::randint(0, 2 * pixels + 1, {2, count}, at::kLong).to(images.device());
  const at::Tensor rows = moves[0].unsqueeze(1) + at::arange(images.size(2), index);
  const at::Tensor columns = moves[1].unsqueeze(1) + at::arange(images.size(3), index);
  const at::Tensor padded = at::constant_pad_nd(images, {pixels, pixels, pixels, pixels});
  return padded.index({at::arange(count, index).view({count, 1, 1, 1}),
                       at::arange(images.size(1), index).view({1, -1, 1, 1}), rows.view({count, 1, -1, 1}),
                       columns.view({count, 1, 1, -1})});
}

}  // namespace cpprun::trainer
