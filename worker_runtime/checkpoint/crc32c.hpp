// CRC-32C (Castagnoli polynomial, reflected, as in RFC 3720 appendix B.4): finds files that were cut or
// changed; no protection against intent.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cpprun::worker {

class Crc32c {
 public:
  void update(const void* data, std::size_t size);
  std::uint32_t value() const { return ~state_; }

 private:
  std::uint32_t state_ = ~std::uint32_t{0};
};

}  // namespace cpprun::worker
