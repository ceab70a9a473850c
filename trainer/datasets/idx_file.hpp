// The IDX file format of MNIST (http://yann.lecun.com/exdb/mnist, "FILE FORMATS"): two zero bytes, the type
// of the values (8: unsigned bytes, the only one here), the number of dimensions, each dimension as a
// big-endian 32-bit number, then the values, the last dimension fastest.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cpprun::trainer {

struct IdxArray {
  std::vector<std::int64_t> shape;
  std::vector<std::uint8_t> values;  // as many as the product of `shape`
};

// Reads a file that must have `dimensions` dimensions and end with its last value. Throws worker::ConfigError
// naming the file and what is wrong with it.
IdxArray read_idx(const std::string& path, std::size_t dimensions);

}  // namespace cpprun::trainer
