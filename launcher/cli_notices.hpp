// What is odd about a command line that can be run all the same: values that have no effect, or not the one
// that was meant.
#pragma once

#include <vector>

#include "launcher/cli_options.hpp"
#include "launcher/launch_config.hpp"

namespace cpprun::launcher {

// In the order of the options; Options::explain makes sentences of them.
std::vector<BadValue> odd_values(const LaunchConfig& config);

}  // namespace cpprun::launcher
