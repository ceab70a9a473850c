// What cpprun and cpprund take options from beside the command line: a JSON object whose keys are long
// options. What the keys mean is the program's business.
#pragma once

#include <chrono>
#include <stdexcept>
#include <string>
#include <vector>

namespace cpprun::rendezvous {

struct FileValue {
  enum class Kind { Text, Switch, List, Other };  // numbers come as text, as they were written

  std::string key;
  int line;
  Kind kind;
  std::vector<std::string> texts;  // one, or a list's elements
};

// The sentence says which file is wrong, where and how.
struct ConfigFileError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// The whole file. From a pipe it must come within `patience`. Throws ConfigFileError.
std::string read_config_file(const std::string& path,
                             std::chrono::milliseconds patience = std::chrono::seconds(10));

// The object's members in their order. `name` is the file's in sentences. Throws
// ConfigFileError.
std::vector<FileValue> parse_config(const std::string& text, const std::string& name);

}  // namespace cpprun::rendezvous
