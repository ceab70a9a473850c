// cpprun-train's command line.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace cpprun::trainer {

struct CommandLine {
  std::string config_file;
  std::vector<std::string> overrides;  // key=value, in their order
  bool print_config = false;           // print the resolved config and end
};

// Returns nothing where help or the version was asked for and has been printed. Throws worker::ConfigError.
std::optional<CommandLine> parse_command_line(int argc, char** argv);

}  // namespace cpprun::trainer
