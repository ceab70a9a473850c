// The clock by which deadlines and limits are measured.
#pragma once

#include <chrono>

namespace cpprun::async {

using Clock = std::chrono::steady_clock;

}  // namespace cpprun::async
