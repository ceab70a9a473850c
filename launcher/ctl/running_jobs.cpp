#include "launcher/ctl/running_jobs.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <system_error>

#include "launcher/ctl/control_socket.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;

// Between our making the list and an entry in it, another job's end may remove the list.
constexpr int kAttempts = 100;

[[noreturn]] void refuse(const fs::path& path, int error) {
  throw std::system_error(error, std::generic_category(), path.string());
}

// Invalid, with errno, unless the list is a folder that nobody else can write to: in /tmp anybody may have
// made something of its name.
FileDescriptor open_list(const fs::path& list) {
  FileDescriptor folder(::open(list.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat about {};
  if (!folder.valid() || ::fstat(folder.get(), &about) != 0) return {};
  if (about.st_uid == ::geteuid() && (about.st_mode & 0022) == 0) return folder;
  errno = EACCES;
  return {};
}

// Where there is one of ours that we cannot use, as an earlier run made it under a umask that takes our own
// bits. Nobody else can put anything in its place: /tmp is sticky.
void repair(const fs::path& list) {
  struct stat about {};
  if (::lstat(list.c_str(), &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != ::geteuid()) return;
  if ((about.st_mode & S_IRWXU) != S_IRWXU) ::chmod(list.c_str(), S_IRWXU);
}

bool make_entry(const ControlPlace& place) {
  const int failed = place.own_folder() ? ::mkdir(place.entry.c_str(), 0700)
                                        : ::symlink(place.folder.c_str(), place.entry.c_str());
  return failed == 0;
}

}  // namespace

fs::path list_of_jobs() {
  return "/tmp/cpprun-" + std::to_string(::geteuid());
}

ControlPlace plan_control(const fs::path& list, const RunFolder& run, pid_t launcher) {
  const fs::path entry = list / std::to_string(launcher);
  return {launcher, entry, run.exists() ? run.path() : entry};
}

FileDescriptor enter(const ControlPlace& place) {
  const fs::path list = place.entry.parent_path();
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (::mkdir(list.c_str(), 0700) != 0 && errno != EEXIST) refuse(list, errno);
    repair(list);
    FileDescriptor folder = open_list(list);
    if (!folder.valid() && errno == ENOENT) continue;
    if (!folder.valid()) refuse(list, errno);
    ::flock(folder.get(), LOCK_SH | LOCK_NB);  // what systemd-tmpfiles leaves alone
    if (make_entry(place)) return folder;
    if (errno != EEXIST && errno != ENOENT) refuse(place.entry, errno);
    std::error_code ignored;
    if (errno == EEXIST) fs::remove_all(place.entry, ignored);
  }
  refuse(place.entry, EEXIST);
}

void leave(const ControlPlace& place) {
  const fs::path list = place.entry.parent_path();
  const bool listed = open_list(list).valid();
  std::error_code ignored;
  if (listed || !place.own_folder()) fs::remove(place.folder / kControlSocket, ignored);
  if (!listed) return;
  fs::remove(place.entry, ignored);
  ::rmdir(list.c_str());
}

std::vector<fs::path> folders_meant(const fs::path& path) {
  const auto has_socket = [](const fs::path& folder) {
    std::error_code unknown;
    return fs::is_socket(folder / kControlSocket, unknown);
  };
  if (has_socket(path)) return {path};
  std::vector<fs::path> folders;
  std::error_code error;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    if (has_socket(entry->path())) folders.push_back(entry->path());
  }
  std::sort(folders.begin(), folders.end());
  if (!folders.empty()) return folders;
  // By ".." a link to an attempt leads to its run, too.
  const fs::path above = path / "..";
  return {has_socket(above) ? above : path};
}

std::vector<ControlPlace> listed_jobs(const fs::path& list) {
  std::vector<ControlPlace> jobs;
  if (!open_list(list).valid()) return jobs;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(list, error)) {
    const std::optional<int> pid = whole_number(entry.path().filename().string());
    if (!pid) continue;
    std::error_code no_link;
    const fs::path folder = fs::read_symlink(entry.path(), no_link);
    jobs.push_back({*pid, entry.path(), no_link ? entry.path() : folder});
  }
  std::sort(jobs.begin(), jobs.end(),
            [](const ControlPlace& a, const ControlPlace& b) { return a.launcher < b.launcher; });
  return jobs;
}

}  // namespace cpprun::launcher
