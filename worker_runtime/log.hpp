// A worker's own log: one line to stderr in one write, prefixed by time, level and rank, so that lines of
// several ranks on one terminal stay whole. What a job prints as its result goes to stdout, not here.
#pragma once

#include <optional>
#include <string_view>

namespace cpprun::worker {

enum class LogLevel { Debug, Info, Warning, Error };

// torchrun's names (DEBUG, INFO, WARNING or WARN, ERROR or CRITICAL or FATAL), in any case.
std::optional<LogLevel> parse_log_level(std::string_view name);

// Sets the prefix's rank. The level is LOGLEVEL's, INFO where that is unset or unknown. Not thread-safe: call
// it once, before threads log; before it, lines have no rank and the level is INFO.
void start_log(int rank);

// Thread-safe. Messages below the level cost one comparison; ask log_enabled before building expensive ones.
bool log_enabled(LogLevel level);
void log_debug(std::string_view message);
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

// One line to stderr in one write, without prefix or level.
void write_stderr_line(std::string_view line);

}  // namespace cpprun::worker
