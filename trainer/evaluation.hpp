// Distributed evaluation in which every example counts once, whatever the number of ranks.
#pragma once

#include <cstdint>

#include "trainer/models/models.hpp"
#include "worker_runtime/data/data_loader.hpp"

namespace cpprun::worker {
class ProcessGroup;
}

namespace cpprun::trainer {

struct Evaluation {
  std::int64_t count = 0;  // examples on all ranks
  std::int64_t correct = 0;
  double loss = 0;  // mean cross entropy

  double accuracy() const { return static_cast<double>(correct) / static_cast<double>(count); }
};

// Collective; the same result on every rank. Rank r sees the examples r, r + world size, ... without padding
// (a rank may have none); rank 0's buffers are sent round once, and the bare model is then run without
// communication; sums are made in f64 over all ranks and divided at the end. The model is left in evaluation
// mode. Throws worker::ConfigError for an empty set. Loader and model lie on the group's device.
Evaluation evaluate(Model& model, const worker::TensorDataset& examples, std::int64_t batch_size,
                    const worker::ProcessGroup& group);

}  // namespace cpprun::trainer
