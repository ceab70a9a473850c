#include "worker_runtime/checkpoint/crc32c.hpp"

#include <array>
#include <cstring>

namespace cpprun::worker {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;
using Table = std::array<std::uint32_t, 256>;

// tables[k][b]: the effect of byte b followed by k zero bytes, so that eight bytes take eight independent
// look-ups ("slicing by 8").
constexpr std::array<Table, 8> make_tables() {
  std::array<Table, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) {
      crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    }
    tables[0][byte] = crc;
  }
  for (std::size_t k = 1; k < tables.size(); ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}

constexpr std::array<Table, 8> kTables = make_tables();

}  // namespace

void Crc32c::update(const void* data, std::size_t size) {
  const unsigned char* bytes = static_cast<const unsigned char*>(data);
  std::uint32_t crc = state_;
  for (; size >= 8; size -= 8, bytes += 8) {
    std::uint32_t low = 0;
    std::memcpy(&low, bytes, sizeof low);
    low ^= crc;
    crc = kTables[7][low & 0xFF] ^ kTables[6][(low >> 8) & 0xFF] ^ kTables[5][(low >> 16) & 0xFF] ^
          kTables[4][low >> 24] ^ kTables[3][bytes[4]] ^ kTables[2][bytes[5]] ^ kTables[1][bytes[6]] ^
          kTables[0][bytes[7]];
  }
  for (; size > 0; --size, ++bytes) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ *bytes) & 0xFF];
  }
  state_ = crc;
}

}  // namespace cpprun::worker
