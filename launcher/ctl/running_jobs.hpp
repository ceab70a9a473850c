// The list of a user's running jobs on this host: the folder /tmp/cpprun-<uid>, mode 0700, with an entry
// named after each running cpprun's pid. An entry is a symbolic link to the run's folder, which holds the
// control socket, or, for a run that has no folder, a folder with the socket itself. A fixed place, whatever
// TMPDIR and XDG_RUNTIME_DIR are: who asks must look where the job wrote, and a job outlives its user's
// session.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <vector>

#include "launcher/process/log_layout.hpp"
#include "launcher/process/worker_streams.hpp"

namespace cpprun::launcher {

// Where a run is reached while it runs. Chosen before anything is made, so that the guardian can remove it.
struct ControlPlace {
  pid_t launcher;                // the process that the user started
  std::filesystem::path entry;   // in the list
  std::filesystem::path folder;  // of the socket: the run's, or the entry itself

  bool own_folder() const { return folder == entry; }
};

// Of this user.
std::filesystem::path list_of_jobs();

// Of the run whose cpprun has the pid `launcher`.
ControlPlace plan_control(const std::filesystem::path& list, const RunFolder& run, pid_t launcher);

// Makes the entry, in place of one that a dead process left. The result keeps programs that clean up
// temporary folders from the list while it is open. Throws std::system_error naming the list where it cannot
// be made, or is another user's.
FileDescriptor enter(const ControlPlace& place);

// Removes socket and entry, and the list when it is empty. What is not there is no trouble.
void leave(const ControlPlace& place);

// Folders of control sockets that `path` may mean: itself, else folders of runs in it (--log-dir), else the
// folder that it is an attempt of. `path` alone where there is none.
std::vector<std::filesystem::path> folders_meant(const std::filesystem::path& path);

// In the order of their pids. Entries of dead processes, which leave() can remove, are among them. Empty
// where there is no list, or it is another user's.
std::vector<ControlPlace> listed_jobs(const std::filesystem::path& list);

}  // namespace cpprun::launcher
