// launch.json: a JSON object whose keys are long options. What the keys mean is the registry's business.
#pragma once

#include <string>
#include <vector>

namespace cpprun::launcher {

struct FileValue {
  enum class Kind { Text, Switch, List, Other };  // numbers come as text, as they were written

  std::string key;
  int line;
  Kind kind;
  std::vector<std::string> texts;  // one, or a list's elements
};

// The object's members in their order. `name` stands in the sentences of the UsageError that a text which is
// no such object gives.
std::vector<FileValue> parse_config(const std::string& text, const std::string& name);

// Throws UsageError also for a file that cannot be read.
std::vector<FileValue> read_config_file(const std::string& path);

}  // namespace cpprun::launcher
