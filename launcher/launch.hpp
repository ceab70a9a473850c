// Builds the parts of a launch, runs the agent under its guardian, reports, and gives the exit code.
#pragma once

#include "launcher/launch_config.hpp"

namespace cpprun::launcher {

// Exit codes of cpprun; the table is in README.md. A stop by signal N gives 128 + N.
inline constexpr int kGood = 0;
inline constexpr int kWorkersFailed = 1;
inline constexpr int kWrongUsage = 2;
inline constexpr int kRendezvousFailed = 3;
inline constexpr int kSystemRefused = 4;

// Throws UsageError and std::system_error for what is found wrong before the first worker starts.
int launch(const LaunchConfig& config);

}  // namespace cpprun::launcher
