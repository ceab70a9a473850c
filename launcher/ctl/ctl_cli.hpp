// The command line of cpprunctl.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>

namespace cpprun::launcher {

struct CtlRequest {
  std::string command;  // "status", "stacks" or "explain"
  std::string job;      // of explain a folder; empty: not said
  bool json = false;
};

// Wrong usage, in a sentence. Exit code 2.
struct CtlUsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Nothing when the user asked for text: `printed` is then what to print. Throws CtlUsageError.
std::optional<CtlRequest> parse_ctl_command(int argc, const char* const* argv, std::string& printed);

}  // namespace cpprun::launcher
