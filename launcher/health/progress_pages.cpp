#include "launcher/health/progress_pages.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "launcher/process/log_layout.hpp"
#include "launcher/process/temporary_folder.hpp"

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSharedMemory = "/dev/shm";
constexpr const char* kFolderName = "cpprun_progress_";
constexpr const char* kClaim = "owner";  // in the folder
// How often a page is read in vain, because its texts changed meanwhile.
constexpr int kTries = 8;

struct alignas(64) Copy {
  std::array<char, worker::kProgressPageSize> bytes;
};

bool copy_page(int fd, Copy& copy) {
  const ssize_t n = ::pread(fd, copy.bytes.data(), copy.bytes.size(), 0);
  std::atomic_thread_fence(std::memory_order_acquire);  // one copy is all older than the next
  return n == static_cast<ssize_t>(copy.bytes.size());
}

[[noreturn]] void refuse(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), what);
}

// Of this user, and nobody else can write to it: in these places anybody may make a folder of any name.
bool is_own_folder(const fs::path& path) {
  struct stat about {};
  return ::lstat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode) && about.st_uid == ::geteuid() &&
         (about.st_mode & 0022) == 0;
}

// Zeroes that have their memory already: a page that was promised only would end the worker that writes it.
FileDescriptor make_page(const std::string& file) {
  FileDescriptor fd(::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) refuse(errno, "cannot make " + file);
  const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(worker::kProgressPageSize));
  if (error != 0) refuse(error, "no room for " + file);
  return fd;
}

}  // namespace

std::string ProgressPages::plan_folder(const std::string& suffix) {
  fs::path root = kSharedMemory;
  std::error_code error;
  if (!fs::is_directory(root, error) || ::access(root.c_str(), W_OK | X_OK) != 0) {
    const TemporaryFolder temporary = temporary_folder();
    if (temporary.error) return "";
    root = from_root(temporary.path);
  }
  return (root / (kFolderName + suffix)).string();
}

std::string ProgressPages::page_file(const std::string& folder, int attempt, int local_rank) {
  if (folder.empty()) return "";
  return folder + "/attempt_" + std::to_string(attempt) + "_rank_" + std::to_string(local_rank);
}

void ProgressPages::make(int attempt, int local_world_size) {
  remove_files();
  pages_.clear();
  try {
    make_all(attempt, local_world_size);
  } catch (const std::system_error& error) {
    pages_.clear();  // removing a folder takes a descriptor
    remove_files();
    if (std::exchange(warned_, true)) return;
    spdlog::warn("workers cannot tell how far they are, and progress limits do not hold: {}", error.what());
  }
}

void ProgressPages::make_all(int attempt, int local_world_size) {
  if (folder_.empty()) refuse(ENOENT, "neither /dev/shm nor the temporary folder can be used");
  if (::mkdir(folder_.c_str(), 0700) != 0) refuse(errno, "cannot make the folder " + folder_);
  folder_made_ = true;
  claim_folder();
  for (int local_rank = 0; local_rank < local_world_size; ++local_rank) {
    std::string file = page_file(folder_, attempt, local_rank);
    FileDescriptor fd = make_page(file);
    pages_.push_back({std::move(file), std::move(fd)});
  }
}

// The file gets its name when it is locked, so that whoever finds it without a lock knows its owner gone. The
// lock ends with this process: children that are about to exec a worker keep it for a moment only.
void ProgressPages::claim_folder() {
  const std::string name = folder_ + "/" + kClaim;
  const std::string unlocked = name + ".new";
  claim_ = FileDescriptor(::open(unlocked.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!claim_.valid()) refuse(errno, "cannot make " + unlocked);
  // Without a lock, as on file systems that have none, the folder is left alone by everybody.
  if (::flock(claim_.get(), LOCK_EX | LOCK_NB) == 0) ::rename(unlocked.c_str(), name.c_str());
}

void ProgressPages::remove_abandoned(const std::string& root) {
  std::error_code error;
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    const fs::path folder = entry->path();
    if (!folder.filename().string().starts_with(kFolderName) || !is_own_folder(folder)) continue;
    const FileDescriptor claim(
        ::open((folder / kClaim).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!claim.valid() || ::flock(claim.get(), LOCK_EX | LOCK_NB) != 0) continue;
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }
}

void ProgressPages::remove_abandoned() {
  remove_abandoned(kSharedMemory);
  const TemporaryFolder temporary = temporary_folder();
  if (!temporary.error) remove_abandoned(temporary.path.string());
}

void ProgressPages::remove_files() {
  std::error_code ignored;
  if (std::exchange(folder_made_, false)) fs::remove_all(folder_, ignored);
  claim_ = FileDescriptor();
}

std::string ProgressPages::file_of(int local_rank) const {
  const std::size_t index = static_cast<std::size_t>(local_rank);
  return index < pages_.size() ? pages_[index].file : "";
}

std::optional<worker::ProgressReading> ProgressPages::reading(int local_rank) const {
  const std::size_t index = static_cast<std::size_t>(local_rank);
  if (index >= pages_.size()) return std::nullopt;
  const int fd = pages_[index].fd.get();
  // The kernel copies a page in no promised order, so that texts can be told whole by the copies around it.
  Copy before;
  Copy page;
  Copy after;
  if (!copy_page(fd, before)) return std::nullopt;
  for (int tries = 0; tries < kTries; ++tries) {
    if (!copy_page(fd, page) || !copy_page(fd, after)) return std::nullopt;
    if (worker::texts_unchanged(before.bytes.data(), after.bytes.data())) {
      return worker::read_progress(page.bytes.data());
    }
    before = after;
  }
  std::optional<worker::ProgressReading> reading = worker::read_progress(page.bytes.data());
  if (reading) reading->section = reading->message = "";  // they change faster than anybody could read
  return reading;
}

}  // namespace cpprun::launcher
