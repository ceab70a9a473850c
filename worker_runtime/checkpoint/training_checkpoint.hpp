// Checkpoints of a data-parallel training run: everything that a resumed run needs to go on bit for bit.
// Layout of <directory> (details in README.md):
//   step-<n>/manifest.json       written last; see manifest.hpp
//            model.safetensors      parameters and buffers by name (rank 0's; they are equal on all ranks)
//            optimizer.safetensors  state by parameter name, "fc1.weight/exp_avg"
//            optimizer.json         type and the options of each parameter group
//            progress.json          the caller's own text, verbatim
//            rng-<rank>.safetensors random generator states of each rank
// A folder under its final name is complete: it is written under a temporary name, synced, and renamed when
// all ranks are done. The directory must be one that all ranks see (one machine or a shared file system).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace torch::nn {
class Module;
}
namespace torch::optim {
class Optimizer;
}

namespace cpprun::worker {

class ProcessGroup;

// The objects that are saved and restored; borrowed for the call. `model` is the bare module, not its
// wrapper. Optimizers: Adam, AdamW, SGD; each of their parameters must be one of the model's.
struct TrainingState {
  torch::nn::Module& model;
  torch::optim::Optimizer& optimizer;
};

// What a restore found.
struct RestoredCheckpoint {
  std::filesystem::path path;
  std::int64_t step = 0;
  int world_size = 1;         // ranks that saved it
  bool rng_restored = false;  // false where this rank was not among them: it keeps the generators it has
  std::string progress;
};

// All calls are collective: every rank makes them in the same order, and an error on one rank (a full disk, a
// damaged file) is thrown on all of them, naming that rank.
class TrainingCheckpoint {
 public:
  // Creates the directory where missing and removes what killed runs left unfinished in it. Keeps the
  // `keep_last` (>= 1) newest checkpoints; older ones go only after a newer one is durable.
  TrainingCheckpoint(const ProcessGroup& group, std::filesystem::path directory, int keep_last);

  // Saves step-<step> and returns its path; replaces one of the same step. `progress` is any text (the
  // trainer's JSON: epoch, batch, scheduler). Throws std::runtime_error where a rank cannot write; the older
  // checkpoints are then untouched.
  std::filesystem::path save(std::int64_t step, const TrainingState& state, const std::string& progress);

  // Restores the newest complete checkpoint, or returns nothing where the directory has none at all. A
  // damaged one is passed over with a warning for the next older; ConfigError when all are damaged, or when
  // the newest complete one is of another model or optimizer.
  std::optional<RestoredCheckpoint> restore_latest(const TrainingState& state);

  // Restores exactly this checkpoint (a step-<n> folder anywhere); ConfigError where it is damaged or of
  // another model or optimizer. On any error model, optimizer and generators are as before.
  RestoredCheckpoint restore(const std::filesystem::path& path, const TrainingState& state);

 private:
  RestoredCheckpoint load(const std::filesystem::path& path, const TrainingState& state);

  const ProcessGroup& group_;
  std::filesystem::path directory_;
  int keep_last_;
};

}  // namespace cpprun::worker
