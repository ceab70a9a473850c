#include "worker_runtime/checkpoint/safetensors.hpp"

#include <ATen/ops/empty.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "worker_runtime/checkpoint/safetensors_header.hpp"
#include "worker_runtime/recorded_main.hpp"

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

namespace cpprun::worker {
namespace {

constexpr std::pair<std::string_view, at::ScalarType> kDtypes[] = {
    {"F64", at::kDouble},    {"F32", at::kFloat}, {"F16", at::kHalf},
    {"BF16", at::kBFloat16}, {"I64", at::kLong},  {"I32", at::kInt},
    {"I8", at::kChar},       {"U8", at::kByte},   {"BOOL", at::kBool}};

at::ScalarType scalar_type(std::string_view dtype) {
  return std::find_if(std::begin(kDtypes), std::end(kDtypes),
                      [&](const auto& known) { return known.first == dtype; })
      ->second;
}

TensorSpec spec_of(const NamedTensor& named) {
  for (const auto& [dtype, type] : kDtypes) {
    if (named.tensor.scalar_type() == type) {
      return {named.name, std::string(dtype), named.tensor.sizes().vec()};
    }
  }
  throw ConfigError("tensor '" + named.name + "' has dtype " + c10::toString(named.tensor.scalar_type()) +
                    ", which a safetensors file of ours cannot hold");
}

// The tensors in the order in which they are stored, with their places.
std::vector<std::pair<TensorEntry, at::Tensor>> lay_out(const std::vector<NamedTensor>& tensors) {
  std::vector<std::pair<TensorEntry, at::Tensor>> stored;
  std::unordered_set<std::string> names;
  for (const NamedTensor& named : tensors) {
    if (!names.insert(named.name).second) {
      throw ConfigError("two tensors are named '" + named.name +
                        "', and a safetensors file needs distinct names");
    }
    stored.emplace_back(TensorEntry{spec_of(named)}, named.tensor);
  }
  std::stable_sort(stored.begin(), stored.end(), [](const auto& a, const auto& b) {
    return dtype_size(a.first.spec.dtype) > dtype_size(b.first.spec.dtype);
  });
  std::uint64_t offset = 0;
  for (auto& [entry, tensor] : stored) {
    entry.begin = offset;
    entry.end = offset += tensor.nbytes();
  }
  return stored;
}

// A file open for reading at any place.
class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    struct stat status = {};
    if (fd_ < 0 || ::fstat(fd_, &status) != 0) {
      throw std::system_error(errno, std::generic_category(), "opening " + path.string());
    }
    size_ = static_cast<std::uint64_t>(status.st_size);
  }
  ~InputFile() { ::close(fd_); }
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::uint64_t size() const { return size_; }

  void read(void* target, std::uint64_t size, std::uint64_t offset) const {
    for (char* bytes = static_cast<char*>(target); size > 0;) {
      const ssize_t got = ::pread(fd_, bytes, size, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) {
        continue;
      }
      if (got < 0) {
        throw std::system_error(errno, std::generic_category(), "reading " + path_.string());
      }
      if (got == 0) {
        throw ConfigError(path_.string() + " became shorter while it was read");
      }
      bytes += got;
      size -= static_cast<std::uint64_t>(got);
      offset += static_cast<std::uint64_t>(got);
    }
  }

 private:
  std::filesystem::path path_;
  int fd_;
  std::uint64_t size_ = 0;
};

at::Tensor read_tensor(const InputFile& file, const TensorEntry& entry, std::uint64_t data_begin) {
  const at::Tensor tensor = at::empty(entry.spec.shape, scalar_type(entry.spec.dtype));
  file.read(tensor.mutable_data_ptr(), entry.end - entry.begin, data_begin + entry.begin);
  if (entry.spec.dtype == "BOOL") {
    const unsigned char* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
    if (std::any_of(bytes, bytes + tensor.nbytes(), [](unsigned char byte) { return byte > 1; })) {
      throw ConfigError("tensor '" + entry.spec.name + "' has truth values that are neither 0 nor 1");
    }
  }
  return tensor;
}

std::vector<NamedTensor> read_all(const InputFile& file) {
  std::uint64_t header_size = 0;
  if (file.size() < sizeof header_size) {
    throw ConfigError("it has only " + std::to_string(file.size()) + " bytes: it was cut short");
  }
  file.read(&header_size, sizeof header_size, 0);
  if (header_size > kMaxSafetensorsHeader || header_size > file.size() - sizeof header_size) {
    throw ConfigError("its header of " + std::to_string(header_size) +
                      " bytes ends behind the end of the file");
  }
  std::string header(header_size, '\0');
  file.read(header.data(), header_size, sizeof header_size);
  const std::uint64_t data_begin = sizeof header_size + header_size;
  std::vector<NamedTensor> tensors;
  for (const TensorEntry& entry : parse_safetensors_header(header, file.size() - data_begin)) {
    tensors.push_back({entry.spec.name, read_tensor(file, entry, data_begin)});
  }
  return tensors;
}

}  // namespace

WrittenFile write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors) {
  const std::vector<std::pair<TensorEntry, at::Tensor>> stored = lay_out(tensors);
  std::vector<TensorEntry> entries;
  for (const auto& [entry, tensor] : stored) {
    entries.push_back(entry);
  }
  const std::string header = to_json(entries);
  const std::uint64_t header_size = header.size();
  DurableFile file(path);
  file.append(&header_size, sizeof header_size);
  file.append(header.data(), header.size());
  for (const auto& [entry, tensor] : stored) {
    const at::Tensor bytes = tensor.detach().cpu().contiguous();
    file.append(bytes.const_data_ptr(), bytes.nbytes());
  }
  return file.commit();
}

std::vector<NamedTensor> read_safetensors(const std::filesystem::path& path) {
  const InputFile file(path);
  try {
    return read_all(file);
  } catch (const ConfigError& error) {
    throw ConfigError(path.string() + " cannot be read as safetensors: " + error.what());
  }
}

std::vector<TensorSpec> tensor_specs(const std::vector<NamedTensor>& tensors) {
  std::vector<TensorSpec> specs;
  for (const NamedTensor& named : tensors) {
    specs.push_back(spec_of(named));
  }
  return specs;
}

}  // namespace cpprun::worker
