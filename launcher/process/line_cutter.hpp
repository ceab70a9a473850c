// Cuts a byte stream into the pieces that a console shows with a prefix each. Pure.
#pragma once

#include <string>
#include <string_view>

namespace cpprun::launcher {

// A piece ends at "\n" or "\r" (a progress bar's redraw); longer ones than kLongestPiece are cut.
class LineCutter {
 public:
  static constexpr std::size_t kLongestPiece = 64 * 1024;

  // Takes bytes and appends to `out` all pieces that are complete, with `prefix` before each, but for the
  // rest of a line that `out` holds the beginning of.
  void feed(std::string_view bytes, std::string_view prefix, std::string& out);

  // What was begun and not ended yet; taken as a piece of its own.
  std::string take_open();
  bool has_open() const { return !open_.empty(); }

 private:
  // Ends the open piece with `end` and appends it.
  void append_piece(std::string_view end, std::string_view prefix, std::string& out);

  std::string open_;
};

}  // namespace cpprun::launcher
