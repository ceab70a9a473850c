// --duplicate-stdout-filters and --duplicate-stderr-filters: which lines of a stream are written a second
// time. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cpprun::launcher {

// A list of texts separated by commas; ",," stands for a comma within one. Empty entries say nothing and are
// left out.
std::vector<std::string> parse_filters(const std::string& list);

class LineFilter {
 public:
  static constexpr std::size_t kLongestLine = 64 * 1024;

  explicit LineFilter(const std::vector<std::string>& needles) : needles_(needles) {}

  // Takes bytes of the stream as they come. Each line that is complete and contains one of the needles is
  // appended to `out`: `prefix`, the line, "\n". A line ends at "\n" or "\r"; a longer one than kLongestLine
  // counts as several.
  void feed(std::string_view bytes, std::string_view prefix, std::string& out);

  // The stream has ended: its last line may lack its end.
  void finish(std::string_view prefix, std::string& out);

 private:
  void judge(std::string_view line, std::string_view prefix, std::string& out) const;

  std::vector<std::string> needles_;
  std::string open_;
};

}  // namespace cpprun::launcher
