#include "worker_runtime/contract/printable_text.hpp"

#include <cstddef>
#include <cstdint>

namespace cpprun::worker {
namespace {

struct Character {
  std::size_t size;  // in bytes
  std::uint32_t code;
};

constexpr std::uint32_t kNone = 0xffffffff;

// The first character; of text that begins with none, its first byte with the code kNone.
Character first_character(std::string_view text) {
  const auto byte = [text](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t head = byte(0);
  if (head < 0x80) return {1, head};
  const std::size_t size = head >= 0xf0 ? 4 : head >= 0xe0 ? 3 : 2;
  if (head < 0xc2 || head > 0xf4 || text.size() < size) return {1, kNone};
  std::uint32_t code = head & (0xffu >> (size + 1));
  for (std::size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {1, kNone};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[size] || code > 0x10ffff || surrogate) return {1, kNone};
  return {size, code};
}

bool is_control(std::uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0);
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    const Character character = first_character(text);
    if (character.code == kNone) {
      result += '?';
    } else if (is_control(character.code)) {
      result += ' ';
    } else {
      result += text.substr(0, character.size);
    }
    text.remove_prefix(character.size);
  }
  return result;
}

}  // namespace cpprun::worker
