#include "worker_runtime/checkpoint/durable_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>
#include <vector>

#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;  // bytes a read

[[noreturn]] void fail(const char* call, const std::filesystem::path& path) {
  throw std::system_error(errno, std::generic_category(), std::string(call) + " " + path.string());
}

// A file open for reading, closed at the end of the scope.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (fd_ < 0) {
      fail("opening", path_);
    }
  }
  ~Reader() { ::close(fd_); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  // The next bytes, none at the end.
  std::string_view next() {
    ssize_t got = 0;
    do {
      got = ::read(fd_, piece_.data(), piece_.size());
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
      fail("reading", path_);
    }
    return {piece_.data(), static_cast<std::size_t>(got)};
  }

 private:
  const std::filesystem::path& path_;
  int fd_;
  std::vector<char> piece_ = std::vector<char>(kPiece);
};

}  // namespace

DurableFile::DurableFile(std::filesystem::path path)
    : path_(std::move(path)), temporary_(path_.string() + ".tmp." + std::to_string(::getpid())) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd_ < 0) {
    fail("creating", temporary_);
  }
}

DurableFile::~DurableFile() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
  }
}

void DurableFile::append(const void* data, std::size_t size) {
  checksum_.update(data, size);
  size_ += size;
  for (const char* bytes = static_cast<const char*>(data); size > 0;) {
    const ssize_t written = ::write(fd_, bytes, size);
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      fail("writing", temporary_);
    }
    bytes += written;
    size -= static_cast<std::size_t>(written);
  }
}

WrittenFile DurableFile::commit() {
  if (::fsync(fd_) != 0) {
    fail("syncing", temporary_);
  }
  if (::close(std::exchange(fd_, -1)) != 0) {
    fail("closing", temporary_);
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail("renaming to", path_);
  }
  temporary_.clear();
  return {size_, checksum_.value()};
}

WrittenFile write_durable_file(const std::filesystem::path& path, std::string_view text) {
  DurableFile file(path);
  file.append(text.data(), text.size());
  return file.commit();
}

void sync_folder(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    fail("opening", folder);
  }
  // Some network file systems cannot sync a folder and say EINVAL; there is nothing better to do on them.
  const bool synced = ::fsync(fd) == 0 || errno == EINVAL;
  const int error = errno;
  ::close(fd);
  if (!synced) {
    errno = error;
    fail("syncing", folder);
  }
}

std::string read_file(const std::filesystem::path& path, std::uint64_t max_size) {
  Reader reader(path);
  std::string text;
  for (std::string_view piece = reader.next(); !piece.empty(); piece = reader.next()) {
    text.append(piece);
    if (text.size() > max_size) {
      throw ConfigError(path.string() + " is larger than the " + std::to_string(max_size) +
                        " bytes that such a file may have");
    }
  }
  return text;
}

WrittenFile measure_file(const std::filesystem::path& path) {
  Reader reader(path);
  Crc32c checksum;
  std::uint64_t size = 0;
  for (std::string_view piece = reader.next(); !piece.empty(); piece = reader.next()) {
    checksum.update(piece.data(), piece.size());
    size += piece.size();
  }
  return {size, checksum.value()};
}

}  // namespace cpprun::worker
