// The safetensors file format (https://github.com/huggingface/safetensors#format): 8 bytes header length
// (little-endian), a JSON header, raw little-endian row-major data. Readable by Python's safetensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "worker_runtime/checkpoint/state_dict.hpp"

namespace cpprun::worker {

// What was written, for a manifest.
struct WrittenFile {
  std::uint64_t size = 0;    // bytes
  std::uint32_t crc32c = 0;  // of the whole file
};

// Writes `path` whole or not at all (temporary file beside it, fsync, rename). Dtypes: f64 f32 f16 bf16 i64
// i32 i8 u8 bool; tensors may lie on any device and be non-contiguous; names must differ. Throws
// std::system_error naming the file and the call that failed, std::invalid_argument for other dtypes.
WrittenFile write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

// Reads all tensors to the CPU, in the order of their data. The header is not trusted: lengths, offsets,
// overlaps and gaps are checked against the file before anything is allocated. Throws ConfigError with a
// sentence that names the file and what is wrong with it.
std::vector<NamedTensor> read_safetensors(const std::filesystem::path& path);

}  // namespace cpprun::worker
