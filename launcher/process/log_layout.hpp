// The folders and files of a run's logs, as torchrun lays them out:
//
//   <root>/<run id>_<8 random>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json}
//   <root>/<run id>_<8 random>/attempt_<n>/{filtered_stdout.log,filtered_stderr.log,failure.json}
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace cpprun::launcher {

// The run's own folder, one per agent. Unless the user named a log folder it lies under the temporary folder
// and goes with a run that succeeds. Its name is chosen before it is made, so that whoever watches over the
// maker can remove it.
class RunFolder {
 public:
  // Chooses the name, in `log_dir` (--log-dir) or the temporary folder; makes nothing. Throws
  // std::system_error when there is no temporary folder.
  static RunFolder plan(const std::optional<std::string>& log_dir, const std::string& run_id);
  // No folder at all (--log-dir /dev/null).
  static RunFolder none() { return RunFolder({}, false); }

  bool exists() const { return !path_.empty(); }
  bool temporary() const { return temporary_; }
  const std::filesystem::path& path() const { return path_; }

  // Makes the folder (mode 0700), and the one that the user named with its parents. Throws std::system_error
  // naming the folder; one that is already there is an error.
  void make() const;

  // Whether any worker's output was written into it.
  bool holds_output() const;

  // Removes a temporary folder; one that the user named stays.
  void discard() const;

  // Makes attempt_<n> with a folder for each local rank.
  void create_attempt(int attempt, int local_world_size) const;
  std::filesystem::path attempt_folder(int attempt) const;
  std::filesystem::path rank_folder(int attempt, int local_rank) const;

 private:
  RunFolder(std::filesystem::path path, bool temporary) : path_(std::move(path)), temporary_(temporary) {}

  std::filesystem::path path_;
  bool temporary_;
};

// The whole path where it can be told: workers get paths of ours, and may change to another folder first.
std::filesystem::path from_root(const std::filesystem::path& path);

// Eight letters that make a name unlike any other, as long as torchrun's.
std::string random_suffix();

// A run id as part of a folder's name: any text may be an id.
std::string folder_name(std::string run_id);

}  // namespace cpprun::launcher
