// The progress pages of this node's workers: files of shared memory, one for each worker of each attempt,
// which the workers write (worker_runtime/contract/cpprun_progress.h) and the agent reads.
//
// The agent reads them as files and does not map them: a worker may cut its file off, and a mapped page
// without a file behind it ends whoever touches it with SIGBUS.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/process/worker_streams.hpp"
#include "worker_runtime/contract/progress_page.hpp"

namespace cpprun::launcher {

class ProgressPages {
 public:
  // The pages' folder of a run, by the name that `suffix` makes its own: in /dev/shm, else in the temporary
  // folder, else none (empty). Makes nothing, so that whoever watches over the maker can remove it.
  static std::string plan_folder(const std::string& suffix);
  // The file of a worker's page in that folder; empty without one.
  static std::string page_file(const std::string& folder, int attempt, int local_rank);

  // Removes pages' folders of this user in `root` whose agents are gone, whoever killed them; what cannot be
  // told to be one stays.
  static void remove_abandoned(const std::string& root);
  // The same wherever plan_folder() may have put them.
  static void remove_abandoned();

  explicit ProgressPages(std::string folder) : folder_(std::move(folder)) {}
  // Removes the files.
  ~ProgressPages() { remove_files(); }
  ProgressPages(const ProgressPages&) = delete;
  ProgressPages& operator=(const ProgressPages&) = delete;

  // Empty pages for an attempt's workers; those of the attempt before are gone. Where the system has no room
  // for them a warning says so, once, and there are none: no job fails for that.
  void make(int attempt, int local_world_size);
  // After the workers' end. What the pages said can still be read, until the next make().
  void remove_files();

  // The page's file for its worker; empty: it has none.
  std::string file_of(int local_rank) const;
  // What a worker's page says now; nothing where it has none or never wrote. Costs microseconds.
  std::optional<worker::ProgressReading> reading(int local_rank) const;

 private:
  void make_all(int attempt, int local_world_size);
  void claim_folder();

  struct Page {
    std::string file;
    FileDescriptor fd;
  };

  std::string folder_;
  bool folder_made_ = false;
  FileDescriptor claim_;  // locked as long as the folder has an owner
  bool warned_ = false;
  std::vector<Page> pages_;  // by local rank
};

}  // namespace cpprun::launcher
