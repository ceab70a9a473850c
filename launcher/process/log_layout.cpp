#include "launcher/process/log_layout.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <random>
#include <system_error>

#include "launcher/process/temporary_folder.hpp"

namespace cpprun::launcher {

namespace fs = std::filesystem;

std::string random_suffix() {
  static constexpr char kLetters[] = "abcdefghijklmnopqrstuvwxyz0123456789_";
  std::random_device device;
  std::uniform_int_distribution<std::size_t> letter(0, sizeof kLetters - 2);
  std::string text;
  for (int i = 0; i < 8; ++i) text += kLetters[letter(device)];
  return text;
}

fs::path from_root(const fs::path& path) {
  std::error_code error;
  fs::path whole = fs::absolute(path, error);
  return error ? path : whole;
}

std::string folder_name(std::string run_id) {
  for (char& c : run_id) {
    if (c == '/' || c == '\0') c = '_';
  }
  return run_id.substr(0, 200);
}

RunFolder RunFolder::plan(const std::optional<std::string>& log_dir, const std::string& run_id) {
  if (log_dir) {
    return RunFolder(from_root(*log_dir) / (folder_name(run_id) + "_" + random_suffix()), false);
  }
  const TemporaryFolder temporary = temporary_folder();
  if (temporary.error) {
    throw std::system_error(temporary.error,
                            "the temporary folder '" + temporary.path.string() + "' (" +
                                (temporary.variable.empty() ? "TMPDIR" : temporary.variable) +
                                ") cannot be used; set it or --log-dir");
  }
  return RunFolder(from_root(temporary.path) / ("cpprun_" + random_suffix()), true);
}

void RunFolder::make() const {
  if (!exists()) return;
  std::error_code error;
  if (!temporary_) fs::create_directories(path_.parent_path(), error);
  if (error) throw std::system_error(error, "cannot make the log folder " + path_.parent_path().string());
  if (::mkdir(path_.c_str(), 0700) != 0) {
    throw std::system_error(errno, std::generic_category(), "cannot make the log folder " + path_.string());
  }
}

bool RunFolder::holds_output() const {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(path_, error), end; !error && entry != end;
       entry.increment(error)) {
    std::error_code unknown;
    if (entry->path().extension() == ".log" && entry->file_size(unknown) > 0 && !unknown) return true;
  }
  return false;
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
