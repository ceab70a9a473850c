// Completion scripts for shells, made from the registry, so that they know every option. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/cli_options.hpp"

namespace cpprun::launcher {

enum class Shell { Bash, Zsh, Fish };

std::optional<Shell> shell_called(const std::string& name);

// Completes options, values that can be spelled out, folders and files, and behind the program its arguments
// as files.
std::string completion_script(Shell shell, const std::vector<OptionEntry>& options);

}  // namespace cpprun::launcher
