// The manifest of a checkpoint: written last, so a folder without one is unfinished, and complete enough to
// judge the rest (sizes, checksums, which model). Pure: JSON text <-> struct.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cpprun::worker {

// One file of the checkpoint's folder.
struct ManifestFile {
  std::string name;  // a plain file name, no folders
  std::uint64_t size = 0;
  std::uint32_t crc32c = 0;
};

// Name, dtype (safetensors' spelling, "F32") and shape of one parameter or buffer.
struct TensorSpec {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
};

struct Manifest {
  static constexpr int kFormatVersion = 1;

  int world_size = 1;  // ranks that saved it
  std::int64_t step = 0;
  std::vector<ManifestFile> files;
  std::vector<TensorSpec> model;  // the fingerprint, in the order of state_dict
};

std::string to_json(const Manifest& manifest);

// Throws ConfigError with a sentence saying what is wrong; the text comes from a file and is not trusted.
Manifest parse_manifest(const std::string& text);

// The first difference between the saved model and this one as half a sentence ("fc1.weight has shape [3, 4]
// there and [3, 5] here"), or nothing where they are equal.
std::optional<std::string> first_difference(const std::vector<TensorSpec>& saved,
                                            const std::vector<TensorSpec>& here);

}  // namespace cpprun::worker
