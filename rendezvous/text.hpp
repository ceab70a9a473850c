// Small operations on text that agents and daemon need. Pure.
#pragma once

#include <string>
#include <string_view>

namespace cpprun::rendezvous {

// Without the blanks and line ends around it.
inline std::string trim(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

// A terminal could act on it, and it may end a line.
inline bool is_control(char c) {
  const unsigned char byte = static_cast<unsigned char>(c);
  return byte < 0x20 || byte == 0x7f;
}

// Control characters are spelled out, such as "\x1b".
inline std::string escaped(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (is_control(c)) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace cpprun::rendezvous
