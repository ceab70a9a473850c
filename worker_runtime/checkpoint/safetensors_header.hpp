// The JSON header of a safetensors file. Pure: text <-> entries, so that it can be tested and fuzzed without
// LibTorch.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker_runtime/checkpoint/manifest.hpp"

namespace cpprun::worker {

// One tensor: what it is, and where its bytes lie behind the header.
struct TensorEntry {
  TensorSpec spec;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Longest header that is read or written, in bytes; the reference implementation's limit.
inline constexpr std::uint64_t kMaxSafetensorsHeader = 100'000'000;

// Bytes of one element, 0 for a dtype that we do not read or write.
std::uint64_t dtype_size(std::string_view dtype);

// The header's text, padded with spaces so that the data behind it lies on a multiple of 8.
std::string to_json(const std::vector<TensorEntry>& entries);

// The entries, in the order of their bytes. Nothing is believed: dtypes, sizes (without overflow) and
// offsets, which must cover the `data_size` bytes behind the header without gap or overlap, are checked, as
// are duplicate names. Throws ConfigError with half a sentence ("tensor x ends behind the end of the file").
std::vector<TensorEntry> parse_safetensors_header(std::string_view text, std::uint64_t data_size);

}  // namespace cpprun::worker
