#include "worker_runtime/checkpoint/training_checkpoint.hpp"

#include <torch/nn/module.h>

#include <functional>
#include <memory>
#include <vector>

#include "worker_runtime/checkpoint/checkpoint_folder.hpp"
#include "worker_runtime/checkpoint/durable_file.hpp"
#include "worker_runtime/checkpoint/optimizer_state.hpp"
#include "worker_runtime/checkpoint/rng_state.hpp"
#include "worker_runtime/checkpoint/safetensors.hpp"
#include "worker_runtime/checkpoint/state_dict.hpp"
#include "worker_runtime/collectives.hpp"
#include "worker_runtime/error_text.hpp"
#include "worker_runtime/log.hpp"
#include "worker_runtime/process_group.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kOptimizerOptionsFile = "optimizer.json";
constexpr const char* kProgressFile = "progress.json";
constexpr std::uint64_t kMaxText = std::uint64_t{256} << 20;  // bytes

std::string rng_file(int rank) {
  return "rng-" + std::to_string(rank) + ".safetensors";
}

// Runs `work` on every rank and returns when all are done, with what each returned, by rank. Where it threw
// on a rank, throws on all of them that rank's sentence (the lowest rank's; ConfigError where it was one), so
// that nobody goes on alone or waits for one that gave up. `work` itself must not communicate.
std::vector<std::string> in_step(const ProcessGroup& group, const std::function<std::string()>& work) {
  constexpr char kDone = 'd', kRefused = 'r', kFailed = 'f';
  std::string outcome;
  try {
    outcome = kDone + work();
  } catch (const ConfigError& error) {
    outcome = kRefused + error_text(error);
  } catch (const std::exception& error) {
    outcome = kFailed + error_text(error);
  }
  std::vector<std::string> outcomes = all_gather(group, outcome);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    const char kind = outcomes[rank].at(0);
    outcomes[rank].erase(0, 1);
    if (kind != kDone) {
      const std::string text =
          group.world_size() == 1 ? outcomes[rank] : "rank " + std::to_string(rank) + ": " + outcomes[rank];
      if (kind == kRefused) {
        throw ConfigError(text);
      }
      throw std::runtime_error(text);
    }
  }
  return outcomes;
}

// The same for work that only rank 0 has; returns what it returned.
std::string on_rank_0(const ProcessGroup& group, const std::function<std::string()>& work) {
  return in_step(group, [&] { return group.rank() == 0 ? work() : std::string(); }).front();
}

// Writes this rank's files; returns their list, as a manifest's text.
std::string write_files(const ProcessGroup& group, const fs::path& folder, const TrainingState& state,
                        const std::string& progress) {
  Manifest own;
  const auto record = [&](const std::string& name, const WrittenFile& written) {
    own.files.push_back({name, written.size, written.crc32c});
  };
  if (group.rank() == 0) {
    const OptimizerState optimizer = optimizer_state(state.model, state.optimizer);
    record(kModelFile, write_safetensors(folder / kModelFile, state_dict(state.model)));
    record(kOptimizerFile, write_safetensors(folder / kOptimizerFile, optimizer.tensors));
    record(kOptimizerOptionsFile, write_durable_file(folder / kOptimizerOptionsFile, optimizer.options));
    record(kProgressFile, write_durable_file(folder / kProgressFile, progress));
  }
  const std::string name = rng_file(group.rank());
  record(name, write_safetensors(folder / name, rng_state(group.device().device)));
  return to_json(own);
}

Manifest make_manifest(std::int64_t step, const TrainingState& state, const std::vector<std::string>& lists) {
  Manifest manifest;
  manifest.world_size = static_cast<int>(lists.size());
  manifest.step = step;
  manifest.model = tensor_specs(state_dict(state.model));
  for (const std::string& list : lists) {
    const Manifest own = parse_manifest(list);
    manifest.files.insert(manifest.files.end(), own.files.begin(), own.files.end());
  }
  return manifest;
}

void check_visible(const fs::path& folder, const Manifest& manifest) {
  for (const ManifestFile& file : manifest.files) {
    if (!fs::exists(folder / file.name)) {
      throw ConfigError(
          "rank 0 cannot see " + (folder / file.name).string() +
          ", which another rank wrote: the checkpoint directory must be on a file system that all "
          "machines share");
    }
  }
}

// The newest complete checkpoint's path, empty where the directory has none. Damaged ones are passed over.
std::string choose_newest(const fs::path& directory) {
  std::string damage;
  for (const CheckpointFolder& folder : list_checkpoints(directory)) {
    try {
      verify_checkpoint(folder.path);
      return folder.path.string();
    } catch (const ConfigError& error) {
      log_warning(std::string(error.what()) + "; looking for an older one");
      damage = damage.empty() ? error.what() : damage;
    }
  }
  if (!damage.empty()) {
    throw ConfigError("no checkpoint in " + directory.string() + " can be used; the newest: " + damage +
                      ". Start over with another directory, or remove it");
  }
  return "";
}

// A checkpoint read and checked, not yet applied.
struct Loaded {
  RestoredCheckpoint result;
  std::vector<NamedTensor> model;
  std::unique_ptr<OptimizerRestore> optimizer;
  std::vector<NamedTensor> rng;
};

Loaded read_checkpoint(const ProcessGroup& group, const fs::path& path, const TrainingState& state) {
  const Manifest manifest = read_manifest(path);
  const std::string where = "checkpoint " + path.string();
  if (const std::optional<std::string> difference =
          first_difference(manifest.model, tensor_specs(state_dict(state.model)))) {
    throw ConfigError(where + " is of another model: " + *difference);
  }
  Loaded loaded;
  loaded.result = {path, manifest.step, manifest.world_size, group.rank() < manifest.world_size,
                   read_file(path / kProgressFile, kMaxText)};
  loaded.model = read_safetensors(path / kModelFile);
  if (const std::optional<std::string> difference =
          first_difference(manifest.model, tensor_specs(loaded.model))) {
    throw ConfigError(where + " is damaged: its model is not that of its manifest: " + *difference);
  }
  try {
    loaded.optimizer =
        std::make_unique<OptimizerRestore>(state.model, state.optimizer,
                                           OptimizerState{read_file(path / kOptimizerOptionsFile, kMaxText),
                                                          read_safetensors(path / kOptimizerFile)});
    if (loaded.result.rng_restored) {
      loaded.rng = read_safetensors(path / rng_file(group.rank()));
      check_rng_state(group.device().device, loaded.rng);
    }
  } catch (const ConfigError& error) {
    throw ConfigError(where + " does not fit: " + error.what());
  }
  return loaded;
}

}  // namespace

TrainingCheckpoint::TrainingCheckpoint(const ProcessGroup& group, fs::path directory, int keep_last)
    : group_(group), directory_(std::move(directory)), keep_last_(keep_last) {
  if (keep_last < 1) {
    throw ConfigError("at least 1 checkpoint must be kept, not " + std::to_string(keep_last));
  }
  on_rank_0(group_, [&] {
    fs::create_directories(directory_);
    remove_unfinished(directory_);
    return "";
  });
}

fs::path TrainingCheckpoint::save(std::int64_t step, const TrainingState& state,
                                  const std::string& progress) {
  const fs::path folder = on_rank_0(group_, [&] { return make_unfinished(directory_, step).string(); });
  const fs::path final_path = checkpoint_path(directory_, step);
  try {
    const std::vector<std::string> lists =
        in_step(group_, [&] { return write_files(group_, folder, state, progress); });
    on_rank_0(group_, [&] {
      const Manifest manifest = make_manifest(step, state, lists);
      check_visible(folder, manifest);
      write_durable_file(folder / kManifestFile, to_json(manifest));
      publish_checkpoint(folder, final_path);
      remove_older_checkpoints(directory_, keep_last_);
      return "";
    });
  } catch (const std::exception& error) {
    std::error_code ignored;
    if (group_.rank() == 0) {
      fs::remove_all(folder, ignored);
    }
    const std::string text =
        "checkpoint " + final_path.string() + " could not be saved: " + error_text(error);
    if (dynamic_cast<const ConfigError*>(&error) != nullptr) {
      throw ConfigError(text);
    }
    throw std::runtime_error(text);
  }
  return final_path;
}

std::optional<RestoredCheckpoint> TrainingCheckpoint::restore_latest(const TrainingState& state) {
  const std::string chosen = on_rank_0(group_, [&] { return choose_newest(directory_); });
  if (chosen.empty()) {
    return std::nullopt;
  }
  return load(chosen, state);
}

RestoredCheckpoint TrainingCheckpoint::restore(const fs::path& path, const TrainingState& state) {
  on_rank_0(group_, [&] {
    verify_checkpoint(path);
    return "";
  });
  return load(path, state);
}

RestoredCheckpoint TrainingCheckpoint::load(const fs::path& path, const TrainingState& state) {
  Loaded loaded;
  in_step(group_, [&] {
    loaded = read_checkpoint(group_, path, state);
    return "";
  });
  load_state_dict(state.model, loaded.model, path.string());
  loaded.optimizer->apply();
  set_rng_state(group_.device().device, loaded.rng);
  return loaded.result;
}

}  // namespace cpprun::worker
