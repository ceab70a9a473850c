// attempt_<n>/filtered_stdout.log or filtered_stderr.log: the lines of all of a node's workers that the user
// wanted a second time.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace cpprun::launcher {

class FilteredLog {
 public:
  // Makes the file. Throws std::system_error naming it.
  FilteredLog(const std::string& path, const std::vector<std::string>& needles);
  ~FilteredLog();
  FilteredLog(const FilteredLog&) = delete;
  FilteredLog& operator=(const FilteredLog&) = delete;

  const std::vector<std::string>& needles() const { return needles_; }

  // Whole lines, in one write. After a failure (a full disk), which is logged, nothing more is written.
  void append(std::string_view lines);

 private:
  std::string path_;
  std::vector<std::string> needles_;
  int fd_;
};

}  // namespace cpprun::launcher
