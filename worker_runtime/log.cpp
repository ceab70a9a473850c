#include "worker_runtime/log.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <ctime>
#include <string>

namespace cpprun::worker {
namespace {

// The one state of the process's log; a logger handed through every signature would say no more.
struct LogState {
  int rank = -1;
  LogLevel level = LogLevel::Info;
};
LogState state;

constexpr std::string_view kLevelNames[] = {"DEBUG", "INFO", "WARNING", "ERROR"};

void log(LogLevel level, std::string_view message) {
  if (!log_enabled(level)) {
    return;
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char time_text[32];
  std::strftime(time_text, sizeof time_text, "%Y-%m-%d %H:%M:%S", &local);
  std::string line = "[" + std::string(time_text) + " " + std::string(kLevelNames[static_cast<int>(level)]);
  if (state.rank >= 0) {
    line += " rank " + std::to_string(state.rank);
  }
  write_stderr_line(line.append("] ").append(message));
}

}  // namespace

std::optional<LogLevel> parse_log_level(std::string_view name) {
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  if (upper == "DEBUG") return LogLevel::Debug;
  if (upper == "INFO") return LogLevel::Info;
  if (upper == "WARNING" || upper == "WARN") return LogLevel::Warning;
  if (upper == "ERROR" || upper == "CRITICAL" || upper == "FATAL") return LogLevel::Error;
  return std::nullopt;
}

void start_log(int rank) {
  const char* name = std::getenv("LOGLEVEL");
  state = LogState{rank, parse_log_level(name == nullptr ? "" : name).value_or(LogLevel::Info)};
}

bool log_enabled(LogLevel level) {
  return level >= state.level;
}
void log_debug(std::string_view message) {
  log(LogLevel::Debug, message);
}
void log_info(std::string_view message) {
  log(LogLevel::Info, message);
}
void log_warning(std::string_view message) {
  log(LogLevel::Warning, message);
}
void log_error(std::string_view message) {
  log(LogLevel::Error, message);
}

void write_stderr_line(std::string_view line) {
  std::string text(line);
  text += '\n';
  // A stderr that takes nothing (closed, full pipe with a dead reader) leaves nobody to tell.
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t written = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
    if (written <= 0) {
      return;
    }
    done += static_cast<std::size_t>(written);
  }
}

}  // namespace cpprun::worker
