#include "launcher/process/line_cutter.hpp"

#include <utility>

namespace cpprun::launcher {

void LineCutter::append_piece(std::string_view piece, std::string_view prefix, std::string& out) const {
  if (!out.empty() && (out.back() == '\n' || out.back() == '\r')) out += prefix;
  out += piece;
}

void LineCutter::feed(std::string_view bytes, std::string_view prefix, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find_first_of("\n\r");
    if (end == std::string_view::npos) {
      open_ += bytes;
      if (open_.size() >= kLongestPiece) append_piece(take_open(), prefix, out);
      return;
    }
    open_ += bytes.substr(0, end + 1);
    bytes.remove_prefix(end + 1);
    // "\r\n" is one end of line.
    if (open_ == "\n" && !out.empty() && out.back() == '\r') {
      out += take_open();
      continue;
    }
    append_piece(take_open(), prefix, out);
  }
}

std::string LineCutter::take_open() {
  return std::exchange(open_, {});
}

}  // namespace cpprun::launcher
