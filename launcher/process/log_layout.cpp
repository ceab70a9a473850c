#include "launcher/process/log_layout.hpp"

#include <cerrno>
#include <cstdlib>
#include <system_error>

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;

// mkdtemp makes the folder with mode 0700 and a name that no other run has.
fs::path make_unique(const fs::path& prefix) {
  std::string name = prefix.string() + "XXXXXX";
  if (!::mkdtemp(name.data())) {
    throw std::system_error(errno, std::generic_category(), "cannot make the log folder " + name);
  }
  return name;
}

}  // namespace

std::string folder_name(std::string run_id) {
  for (char& c : run_id) {
    if (c == '/' || c == '\0') c = '_';
  }
  return run_id.substr(0, 200);
}

RunFolder RunFolder::create(const std::optional<std::string>& log_dir, const std::string& run_id) {
  std::error_code error;
  if (!log_dir) {
    const fs::path temporary = fs::temp_directory_path(error);
    if (error)
      throw std::system_error(error, "the temporary folder (TMPDIR) cannot be used; set it or --log-dir");
    return RunFolder(make_unique(temporary / "cpprun_"), true);
  }
  fs::create_directories(*log_dir, error);
  if (error) throw std::system_error(error, "cannot make the log folder " + *log_dir);
  return RunFolder(make_unique(fs::path(*log_dir) / (folder_name(run_id) + "_")), false);
}

void RunFolder::discard() const {
  std::error_code ignored;
  if (temporary_ && exists()) fs::remove_all(path_, ignored);
}

void RunFolder::create_attempt(int attempt, int local_world_size) const {
  if (!exists()) return;
  for (int local_rank = 0; local_rank < local_world_size; ++local_rank) {
    const fs::path folder = rank_folder(attempt, local_rank);
    std::error_code error;
    fs::create_directories(folder, error);
    if (error) throw std::system_error(error, "cannot make the log folder " + folder.string());
  }
}

fs::path RunFolder::attempt_folder(int attempt) const {
  return path_ / ("attempt_" + std::to_string(attempt));
}

fs::path RunFolder::rank_folder(int attempt, int local_rank) const {
  return attempt_folder(attempt) / std::to_string(local_rank);
}

}  // namespace cpprun::launcher
