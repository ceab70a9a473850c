#include "launcher/report/utc_time.hpp"

#include <cstdint>
#include <cstdio>
#include <ctime>

namespace cpprun::launcher {

std::string utc_time(std::chrono::system_clock::time_point when) {
  const std::int64_t milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(when.time_since_epoch()).count();
  const std::time_t seconds = milliseconds / 1000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  char date[32];
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &parts);
  char text[48];
  std::snprintf(text, sizeof text, "%s.%03dZ", date, static_cast<int>(milliseconds % 1000));
  return text;
}

}  // namespace cpprun::launcher
