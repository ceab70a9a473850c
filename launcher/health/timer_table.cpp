#include "launcher/health/timer_table.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace cpprun::launcher {
namespace {

using nlohmann::json;

constexpr double kLongest = 1e9;  // seconds; a timer that is farther away never expires
constexpr int kHighestSignal = 64;

}  // namespace

std::optional<TimerRequest> parse_timer_request(const std::string& line) {
  const json root = json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return std::nullopt;
  const auto field = [&](const char* name) { return root.contains(name) ? root[name] : json(); };
  const json pid = field("pid");
  const json scope = field("scope_id");
  const json expiration = field("expiration_time");
  const json signal = field("signal");
  if (!pid.is_number_integer() || !scope.is_string() || !expiration.is_number() ||
      !signal.is_number_integer()) {
    return std::nullopt;
  }
  TimerRequest request{pid.get<pid_t>(), scope.get<std::string>(), expiration.get<double>(),
                       signal.get<int>()};
  if (request.pid <= 0 || request.signal > kHighestSignal) return std::nullopt;
  return request;
}

void TimerTable::take(const TimerRequest& request, std::uint64_t process_started, double wall,
                      TimePoint now) {
  const std::pair<pid_t, std::string> key(request.pid, request.scope);
  if (request.expiration < 0) {
    timers_.erase(key);
    return;
  }
  const double left = request.expiration - wall;
  const TimePoint expires = left > kLongest ? TimePoint::max()
                                            : now + std::chrono::duration_cast<TimePoint::duration>(
                                                        std::chrono::duration<double>(std::max(left, 0.0)));
  timers_[key] = {expires, process_started, request.signal};
}

TimerTable::TimePoint TimerTable::next() const {
  TimePoint earliest = TimePoint::max();
  for (const auto& [key, timer] : timers_) earliest = std::min(earliest, timer.expires);
  return earliest;
}

std::optional<ExpiredTimer> TimerTable::take_expired(TimePoint now) {
  while (next() <= now && !timers_.empty()) {
    pid_t pid = 0;
    for (const auto& [key, timer] : timers_) {
      if (timer.expires <= now) pid = key.first;
    }
    std::optional<ExpiredTimer> first;
    TimePoint first_expired = TimePoint::max();
    for (const auto& [key, timer] : timers_) {
      if (key.first != pid || timer.expires > now || timer.signal <= 0 || timer.expires >= first_expired)
        continue;
      first_expired = timer.expires;
      first = ExpiredTimer{pid, timer.process_started, key.second, timer.signal};
    }
    std::erase_if(timers_, [pid](const auto& entry) { return entry.first.first == pid; });
    if (first) return first;
  }
  return std::nullopt;
}

}  // namespace cpprun::launcher
