// --help, made from the registry. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli_options.hpp"

namespace cpprun::launcher {

// Grouped as the registry is, no line longer than 100 columns.
std::string help_text(const std::vector<OptionEntry>& options);

}  // namespace cpprun::launcher
