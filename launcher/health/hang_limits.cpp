#include "launcher/health/hang_limits.hpp"

#include <charconv>
#include <string_view>

#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

using Duration = HangLimits::Duration;

constexpr double kLeastSeconds = 0.1;
constexpr double kMostSeconds = 1e9;
constexpr std::size_t kLongestSection = 63;  // of whose name a page has room
constexpr double kDefaultStepFactor = 10;
constexpr Duration kDefaultStepFloor = std::chrono::minutes(2);
constexpr const char* kSection = "section.";

HangLimits with_learned_steps() {
  HangLimits limits;
  limits.step_factor = kDefaultStepFactor;
  limits.step_floor = kDefaultStepFloor;
  return limits;
}

// Without startup: a worker that never writes its page would not pass it.
HangLimits defaults() {
  HangLimits limits = with_learned_steps();
  limits.learn_step = true;
  limits.heartbeat = std::chrono::minutes(5);
  limits.silence = std::chrono::minutes(10);
  limits.stuck = std::chrono::minutes(10);
  return limits;
}

std::optional<double> positive_number(std::string_view text) {
  double value = 0;
  const std::from_chars_result parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
  if (!whole || !(value > 0) || value > kMostSeconds) return std::nullopt;
  return value;
}

Duration seconds(const std::string& key, const std::string& text, const char* otherwise) {
  const std::optional<double> value = positive_number(text);
  if (!value || *value < kLeastSeconds) {
    throw HangLimitsError(key + "=" + text + " is not a number of seconds from 0.1 up" + otherwise);
  }
  return std::chrono::ceil<Duration>(std::chrono::duration<double>(*value));
}

std::optional<Duration> limit(const std::string& key, const std::string& text) {
  if (text == "off") return std::nullopt;
  return seconds(key, text, " or 'off'");
}

void set_step(HangLimits& limits, const std::string& text) {
  limits.learn_step = text == "auto";
  limits.step.reset();
  if (text != "auto" && text != "off") limits.step = seconds("step", text, ", 'auto' or 'off'");
}

void set_section(HangLimits& limits, const std::string& key, const std::string& text) {
  const std::string name = key.substr(std::string_view(kSection).size());
  if (name.empty()) throw HangLimitsError("section. lacks the section's name, as in section.evaluate=600");
  if (name.size() > kLongestSection) {
    throw HangLimitsError("section." + name + " is too long: the first " + std::to_string(kLongestSection) +
                          " bytes of a section's name count");
  }
  limits.sections.erase(name);
  if (const std::optional<Duration> value = limit(key, text)) limits.sections.emplace(name, *value);
}

void set(HangLimits& limits, const std::string& key, const std::string& text) {
  const std::map<std::string, std::optional<Duration> HangLimits::*> kLimits{
      {"startup", &HangLimits::startup},
      {"heartbeat", &HangLimits::heartbeat},
      {"silence", &HangLimits::silence},
      {"stuck", &HangLimits::stuck}};
  if (const auto named = kLimits.find(key); named != kLimits.end()) {
    limits.*(named->second) = limit(key, text);
  } else if (key == "step") {
    set_step(limits, text);
  } else if (key == "step_floor") {
    limits.step_floor = seconds(key, text, "");
  } else if (key == "step_factor") {
    const std::optional<double> factor = positive_number(text);
    if (!factor || *factor < 1) throw HangLimitsError("step_factor=" + text + " is not a number from 1 up");
    limits.step_factor = *factor;
  } else if (key.rfind(kSection, 0) == 0) {
    set_section(limits, key, text);
  } else {
    throw HangLimitsError("'" + key +
                          "' is none of its settings: startup, step, step_factor, step_floor, heartbeat, "
                          "silence, stuck and section.NAME");
  }
}

}  // namespace

HangLimits parse_hang_limits(const std::string& text) {
  if (trim(text) == "off") return {};
  HangLimits limits = with_learned_steps();
  bool first = true;
  std::string of_learning;  // a setting that counts where steps are learned
  for (const std::string& part : split(text, ',')) {
    const std::string item = trim(part);
    const std::size_t equals = item.find('=');
    if (first && item == "on") {
      limits = defaults();
    } else if (item == "on" || item == "off") {
      throw HangLimitsError(item == "on" ? "'on' can only stand first" : "'off' can only stand alone");
    } else if (equals == std::string::npos) {
      throw HangLimitsError("'" + item + "' is not 'on', 'off' or a setting such as silence=60");
    } else {
      const std::string key = trim(item.substr(0, equals));
      set(limits, key, trim(item.substr(equals + 1)));
      if (key == "step_factor" || key == "step_floor") of_learning = key;
    }
    first = false;
  }
  if (!of_learning.empty() && !limits.learn_step) {
    throw HangLimitsError(of_learning + " needs step=auto: a limit that is learned from the steps seen");
  }
  return limits;
}

std::string to_text(const HangLimits& limits) {
  std::string text;
  const auto add = [&text](const std::string& key, const std::string& value) {
    text.append(text.empty() ? "" : ",").append(key).append("=").append(value);
  };
  const auto add_seconds = [&add](const std::string& key, std::optional<Duration> limit) {
    if (!limit) return;
    char digits[32];
    const double value = std::chrono::duration<double>(*limit).count();
    add(key, std::string(digits, std::to_chars(digits, digits + sizeof digits, value).ptr));
  };
  add_seconds("silence", limits.silence);
  add_seconds("stuck", limits.stuck);
  add_seconds("startup", limits.startup);
  add_seconds("heartbeat", limits.heartbeat);
  add_seconds("step", limits.step);
  for (const auto& [name, limit] : limits.sections) add_seconds(kSection + name, limit);
  if (!limits.learn_step) return text;
  add("step", "auto");
  char digits[32];
  add("step_factor",
      std::string(digits, std::to_chars(digits, digits + sizeof digits, limits.step_factor).ptr));
  add_seconds("step_floor", limits.step_floor);
  return text;
}

std::optional<Duration> stuck_limit(const char* text) {
  const std::optional<double> value = positive_number(text ? text : "");
  if (!value) return std::nullopt;
  return std::chrono::ceil<Duration>(std::chrono::duration<double>(*value));
}

}  // namespace cpprun::launcher
