// Moments as JSON files name them. Pure.
#pragma once

#include <chrono>
#include <string>

namespace cpprun::launcher {

// ISO-8601, UTC, with milliseconds: "2026-11-30T14:07:21.042Z".
std::string utc_time(std::chrono::system_clock::time_point when);

}  // namespace cpprun::launcher
