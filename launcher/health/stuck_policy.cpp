#include "launcher/health/stuck_policy.hpp"

#include <charconv>
#include <string_view>

namespace cpprun::launcher {
namespace {

constexpr double kMostSeconds = 1e9;

}  // namespace

bool StuckPolicy::observe(pid_t pid, char state, TimePoint now) {
  if (state != 'D') {
    since_.erase(pid);
    return false;
  }
  const TimePoint since = since_.emplace(pid, now).first->second;
  return now - since >= limit_;
}

std::chrono::milliseconds stuck_limit(const char* text) {
  const std::string_view digits = text ? text : "";
  double seconds = 0;
  const std::from_chars_result parsed =
      std::from_chars(digits.data(), digits.data() + digits.size(), seconds);
  const bool good = parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size();
  if (!good || !(seconds > 0) || seconds > kMostSeconds) return std::chrono::milliseconds::zero();
  return std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace cpprun::launcher
