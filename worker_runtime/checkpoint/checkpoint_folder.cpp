#include "worker_runtime/checkpoint/checkpoint_folder.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <system_error>

#include "worker_runtime/checkpoint/durable_file.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kUnfinished = ".unfinished";
constexpr std::uint64_t kMaxManifest = std::uint64_t{64} << 20;  // bytes

std::optional<std::int64_t> step_of(const std::string& name) {
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  if (!name.starts_with(kPrefix) || name.size() == kPrefix.size()) {
    return std::nullopt;
  }
  const std::from_chars_result parsed = std::from_chars(name.data() + kPrefix.size(), end, step);
  if (parsed.ec != std::errc{} || parsed.ptr != end || step < 0) {
    return std::nullopt;
  }
  return step;
}

// Out of the way first, under a name that the next start cleans up, then gone: a kill in the middle of a
// removal must not leave half a checkpoint under its final name.
void remove_checkpoint(const fs::path& path) {
  const fs::path doomed = path.string() + ".old" + std::string(kUnfinished);
  fs::remove_all(doomed);
  fs::rename(path, doomed);
  fs::remove_all(doomed);
}

}  // namespace

fs::path checkpoint_path(const fs::path& directory, std::int64_t step) {
  return directory / (std::string(kPrefix) + std::to_string(step));
}

std::vector<CheckpointFolder> list_checkpoints(const fs::path& directory) {
  std::vector<CheckpointFolder> found;
  if (!fs::exists(directory)) {
    return found;
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::optional<std::int64_t> step = step_of(entry.path().filename().string());
    if (step && entry.is_directory()) {
      found.push_back({*step, entry.path()});
    }
  }
  std::sort(found.begin(), found.end(),
            [](const CheckpointFolder& a, const CheckpointFolder& b) { return a.step > b.step; });
  return found;
}

fs::path make_unfinished(const fs::path& directory, std::int64_t step) {
  const fs::path path = checkpoint_path(directory, step).string() + std::string(kUnfinished);
  fs::remove_all(path);
  fs::create_directory(path);
  return path;
}

void remove_unfinished(const fs::path& directory) {
  std::vector<fs::path> leftovers;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && name.ends_with(kUnfinished)) {
      leftovers.push_back(entry.path());
    }
  }
  for (const fs::path& path : leftovers) {
    fs::remove_all(path);
  }
}

void publish_checkpoint(const fs::path& unfinished, const fs::path& final_path) {
  sync_folder(unfinished);
  if (fs::exists(final_path)) {
    // Swapped in one step where the file system can; what comes out is then the old one.
    if (::renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, final_path.c_str(), RENAME_EXCHANGE) != 0) {
      if (errno != EINVAL && errno != ENOSYS) {
        throw std::system_error(errno, std::generic_category(), "renaming to " + final_path.string());
      }
      remove_checkpoint(final_path);
      fs::rename(unfinished, final_path);
    } else {
      fs::remove_all(unfinished);
    }
  } else {
    fs::rename(unfinished, final_path);
  }
  sync_folder(final_path.parent_path());
}

void remove_older_checkpoints(const fs::path& directory, int keep) {
  const std::vector<CheckpointFolder> newest_first = list_checkpoints(directory);
  for (std::size_t index = static_cast<std::size_t>(keep); index < newest_first.size(); ++index) {
    remove_checkpoint(newest_first[index].path);
  }
}

Manifest read_manifest(const fs::path& path) {
  if (!fs::exists(path / kManifestFile)) {
    throw ConfigError("checkpoint " + path.string() + " is not complete: it has no " + kManifestFile);
  }
  try {
    return parse_manifest(read_file(path / kManifestFile, kMaxManifest));
  } catch (const ConfigError& error) {
    throw ConfigError("checkpoint " + path.string() + " cannot be used: " + error.what());
  }
}

Manifest verify_checkpoint(const fs::path& path) {
  const Manifest manifest = read_manifest(path);
  for (const ManifestFile& file : manifest.files) {
    const std::string where = "checkpoint " + path.string() + " is damaged: " + file.name;
    std::error_code error;
    const std::uint64_t size = fs::file_size(path / file.name, error);
    if (error) {
      throw ConfigError(where + " is missing (" + error.message() + ")");
    }
    if (size != file.size) {
      throw ConfigError(where + " has " + std::to_string(size) + " bytes instead of " +
                        std::to_string(file.size));
    }
    if (measure_file(path / file.name).crc32c != file.crc32c) {
      throw ConfigError(where + " does not have its recorded checksum");
    }
  }
  return manifest;
}

}  // namespace cpprun::worker
