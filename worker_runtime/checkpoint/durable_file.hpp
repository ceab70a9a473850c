// Files of a checkpoint: written in pieces, checksummed on the way, there whole or not at all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "worker_runtime/checkpoint/crc32c.hpp"

namespace cpprun::worker {

// What was written, for a manifest.
struct WrittenFile {
  std::uint64_t size = 0;    // bytes
  std::uint32_t crc32c = 0;  // of the whole file
};

// Collects a file under a temporary name beside `path`. commit() syncs it and gives it its name; without a
// commit nothing remains. Errors are std::system_error naming the call and the file.
class DurableFile {
 public:
  explicit DurableFile(std::filesystem::path path);
  ~DurableFile();
  DurableFile(const DurableFile&) = delete;
  DurableFile& operator=(const DurableFile&) = delete;

  void append(const void* data, std::size_t size);
  WrittenFile commit();

 private:
  std::filesystem::path path_;
  std::filesystem::path temporary_;
  int fd_;
  std::uint64_t size_ = 0;
  Crc32c checksum_;
};

WrittenFile write_durable_file(const std::filesystem::path& path, std::string_view text);

// Makes names in this folder (creations, renames, removals) survive a power cut. std::system_error.
void sync_folder(const std::filesystem::path& folder);

// A whole file that has to fit in memory and in `max_size` bytes. std::system_error, or ConfigError where it
// is larger.
std::string read_file(const std::filesystem::path& path, std::uint64_t max_size);

// Size and checksum of an existing file, read in pieces. std::system_error.
WrittenFile measure_file(const std::filesystem::path& path);

}  // namespace cpprun::worker
