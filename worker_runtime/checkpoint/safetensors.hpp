// The safetensors file format (https://github.com/huggingface/safetensors#format): 8 bytes header length
// (little-endian), a JSON header, raw little-endian row-major data. Readable by Python's safetensors.
#pragma once

#include <filesystem>
#include <vector>

#include "worker_runtime/checkpoint/durable_file.hpp"
#include "worker_runtime/checkpoint/manifest.hpp"
#include "worker_runtime/checkpoint/state_dict.hpp"

namespace cpprun::worker {

// Writes `path` whole or not at all (temporary file beside it, fsync, rename). Dtypes: f64 f32 f16 bf16 i64
// i32 i8 u8 bool; tensors may lie on any device and be non-contiguous. Wider elements go first, so that each
// tensor is aligned. Throws std::system_error naming the file and the call that failed, ConfigError for other
// dtypes or a name that comes twice.
WrittenFile write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors);

// Reads all tensors to the CPU, in the order of their data. The header is not trusted: lengths, offsets,
// overlaps and gaps are checked against the file before anything is allocated. Throws ConfigError with a
// sentence that names the file and what is wrong with it, std::system_error where it cannot be read.
std::vector<NamedTensor> read_safetensors(const std::filesystem::path& path);

// Name, dtype and shape of each; ConfigError for other dtypes.
std::vector<TensorSpec> tensor_specs(const std::vector<NamedTensor>& tensors);

}  // namespace cpprun::worker
