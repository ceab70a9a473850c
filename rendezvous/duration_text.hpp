// A span of time as people read it.
#pragma once

#include <chrono>
#include <string>

namespace cpprun::rendezvous {

// "3 s", rounded up, or "600 ms" below a second.
inline std::string seconds_text(std::chrono::steady_clock::duration span) {
  const std::chrono::milliseconds whole = std::chrono::ceil<std::chrono::milliseconds>(span);
  if (whole < std::chrono::seconds(1)) return std::to_string(whole.count()) + " ms";
  return std::to_string(std::chrono::ceil<std::chrono::seconds>(span).count()) + " s";
}

}  // namespace cpprun::rendezvous
