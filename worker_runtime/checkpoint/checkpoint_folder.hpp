// The folders of a checkpoint directory: names, which are finished, publishing and removing them in an order
// that a kill at any moment cannot turn into a damaged checkpoint under a final name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "worker_runtime/checkpoint/manifest.hpp"

namespace cpprun::worker {

struct CheckpointFolder {
  std::int64_t step = 0;
  std::filesystem::path path;
};

std::filesystem::path checkpoint_path(const std::filesystem::path& directory, std::int64_t step);  // step-<n>

// All step-<n> folders, newest (highest step) first; nothing where the directory is missing.
std::vector<CheckpointFolder> list_checkpoints(const std::filesystem::path& directory);

// Makes an empty folder for a checkpoint under way; its name ends in ".unfinished".
std::filesystem::path make_unfinished(const std::filesystem::path& directory, std::int64_t step);

// Removes what killed runs left: every "step-*.unfinished".
void remove_unfinished(const std::filesystem::path& directory);

// Gives the finished folder its final name, durably; one of the same name is replaced.
void publish_checkpoint(const std::filesystem::path& unfinished, const std::filesystem::path& final_path);

// Removes all but the `keep` newest.
void remove_older_checkpoints(const std::filesystem::path& directory, int keep);

// The manifest of a checkpoint all of whose files have their recorded sizes and checksums. Throws ConfigError
// with a sentence that names the file and what is wrong.
Manifest verify_checkpoint(const std::filesystem::path& path);

// The manifest alone. Same errors.
Manifest read_manifest(const std::filesystem::path& path);

inline constexpr const char* kManifestFile = "manifest.json";

}  // namespace cpprun::worker
