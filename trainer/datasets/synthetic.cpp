#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "trainer/datasets/dataset.hpp"

namespace cpprun::trainer {

// As the Python lines
//   g = torch.Generator().manual_seed(seed)
//   x = torch.randn(n, features, generator=g); teacher = torch.randn(features, classes, generator=g)
//   y = (x @ teacher).argmax(1)
Dataset load_dataset(const SyntheticConfig& config) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
  generator.set_current_seed(static_cast<std::uint64_t>(config.seed));
  const std::int64_t examples = config.train_examples + config.val_examples;
  const at::Tensor x = at::randn({examples, config.features}, generator);
  const at::Tensor teacher = at::randn({config.features, config.classes}, generator);
  const at::Tensor y = x.matmul(teacher).argmax(1);
  const auto part = [&x, &y](std::int64_t from, std::int64_t count) {
    return worker::TensorDataset{x.narrow(0, from, count), y.narrow(0, from, count)};
  };
  return Dataset{.train = part(0, config.train_examples),
                 .val = part(config.train_examples, config.val_examples),
                 .classes = config.classes};
}

}  // namespace cpprun::trainer
