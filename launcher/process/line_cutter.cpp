#include "launcher/process/line_cutter.hpp"

#include <algorithm>
#include <utility>

namespace cpprun::launcher {
namespace {

// Where the next `mark` of a text stands, asked for ever later positions: no byte is looked at twice.
class NextMark {
 public:
  NextMark(std::string_view text, char mark) : text_(text), mark_(mark), at_(text.find(mark)) {}
  std::size_t from(std::size_t position) {
    if (at_ < position) at_ = text_.find(mark_, position);
    return at_;
  }

 private:
  std::string_view text_;
  char mark_;
  std::size_t at_;
};

bool at_line_start(const std::string& out) {
  return out.empty() || out.back() == '\n' || out.back() == '\r';
}

}  // namespace

void LineCutter::append_piece(std::string_view end, std::string_view prefix, std::string& out) {
  // "\r\n" is one end of line.
  const bool second_half = open_.empty() && end == "\n" && !out.empty() && out.back() == '\r';
  if (!second_half && at_line_start(out)) out += prefix;
  out += open_;
  out += end;
  open_.clear();
}

void LineCutter::feed(std::string_view bytes, std::string_view prefix, std::string& out) {
  NextMark newline(bytes, '\n');
  NextMark carriage_return(bytes, '\r');
  std::size_t begin = 0;
  while (begin < bytes.size()) {
    const std::size_t end = std::min(newline.from(begin), carriage_return.from(begin));
    if (end == std::string_view::npos) {
      open_ += bytes.substr(begin);
      if (open_.size() >= kLongestPiece) append_piece({}, prefix, out);
      return;
    }
    append_piece(bytes.substr(begin, end + 1 - begin), prefix, out);
    begin = end + 1;
  }
}

std::string LineCutter::take_open() {
  return std::exchange(open_, {});
}

}  // namespace cpprun::launcher
