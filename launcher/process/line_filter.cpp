#include "launcher/process/line_filter.hpp"

#include <algorithm>

namespace cpprun::launcher {

std::vector<std::string> parse_filters(const std::string& list) {
  std::vector<std::string> needles(1);
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (list[i] != ',') {
      needles.back() += list[i];
    } else if (i + 1 < list.size() && list[i + 1] == ',') {
      needles.back() += list[i++];
    } else {
      needles.emplace_back();
    }
  }
  needles.erase(std::remove(needles.begin(), needles.end(), std::string()), needles.end());
  return needles;
}

void LineFilter::judge(std::string_view line, std::string_view prefix, std::string& out) const {
  const bool wanted = std::any_of(needles_.begin(), needles_.end(), [&](const std::string& needle) {
    return line.find(needle) != std::string_view::npos;
  });
  if (!wanted) return;
  out += prefix;
  out += line;
  out += '\n';
}

void LineFilter::feed(std::string_view bytes, std::string_view prefix, std::string& out) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find_first_of("\n\r");
    open_ += bytes.substr(0, end);
    if (end == std::string_view::npos && open_.size() < kLongestLine) return;
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    judge(open_, prefix, out);
    open_.clear();
  }
}

void LineFilter::finish(std::string_view prefix, std::string& out) {
  judge(open_, prefix, out);
  open_.clear();
}

}  // namespace cpprun::launcher
