#include "trainer/datasets/idx_file.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "worker_runtime/recorded_main.hpp"

namespace cpprun::trainer {
namespace {

constexpr std::uint8_t kUnsignedBytes = 8;

std::string listed(const std::vector<std::int64_t>& shape) {
  std::string out;
  for (const std::int64_t size : shape) out += (out.empty() ? "" : " x ") + std::to_string(size);
  return out;
}

}  // namespace

IdxArray read_idx(const std::string& path, std::size_t dimensions) {
  const auto refuse = [&path](const std::string& why) { throw worker::ConfigError(path + " " + why); };

  std::error_code missing;
  const std::uintmax_t file_size = std::filesystem::file_size(path, missing);
  std::ifstream in(path, std::ios::binary);
  if (missing || !in) refuse("cannot be read: check \"data.dir\" and the file's permissions");

  std::array<char, 4> magic{};
  if (!in.read(magic.data(), magic.size()) || magic[0] != 0 || magic[1] != 0) {
    refuse("is no IDX file: it does not begin with two zero bytes, a type and a number of dimensions");
  }
  if (magic[2] != kUnsignedBytes) {
    refuse("holds values of IDX type " + std::to_string(static_cast<unsigned char>(magic[2])) +
           ", not unsigned bytes (8)");
  }
  if (static_cast<unsigned char>(magic[3]) != dimensions) {
    refuse("has " + std::to_string(static_cast<unsigned char>(magic[3])) + " dimensions instead of " +
           std::to_string(dimensions));
  }

  IdxArray array;
  std::uintmax_t count = 1;
  for (std::size_t i = 0; i < dimensions; ++i) {
    std::array<unsigned char, 4> size{};
    if (!in.read(reinterpret_cast<char*>(size.data()), size.size())) refuse("is cut short within its header");
    const std::uint32_t value = (std::uint32_t{size[0]} << 24) | (std::uint32_t{size[1]} << 16) |
                                (std::uint32_t{size[2]} << 8) | std::uint32_t{size[3]};
    array.shape.push_back(value);
    // Bounded by the file before it is multiplied on, so that no header can overflow it.
    count *= value;
    if (count > file_size) break;
  }
  const std::uintmax_t expected = magic.size() + 4 * dimensions + count;
  if (array.shape.size() < dimensions || expected > file_size) {
    refuse("is cut short: its header promises " + listed(array.shape) + " values, the file has " +
           std::to_string(file_size) + " bytes");
  }
  if (expected < file_size) {
    refuse("is longer than its header's " + listed(array.shape) + " values: " + std::to_string(file_size) +
           " bytes instead of " + std::to_string(expected));
  }
  array.values.resize(count);
  if (!in.read(reinterpret_cast<char*>(array.values.data()), static_cast<std::streamsize>(count))) {
    refuse("became shorter while it was read");
  }
  return array;
}

}  // namespace cpprun::trainer
