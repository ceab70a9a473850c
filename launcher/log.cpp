#include "launcher/log.hpp"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/process/patient_write.hpp"
#include "rendezvous/text.hpp"

namespace cpprun::launcher {
namespace {

// What may wait while nobody reads our stderr; later lines are lost.
constexpr std::size_t kMostPending = 64 * 1024;
// The last lines of all are worth a moment.
constexpr std::chrono::milliseconds kLastPatience{1000};

// One line is one write(2): lines of guardian, agent and workers do not mix. A reader that takes nothing
// never holds up the launcher: the lines wait in memory.
class StandardErrorSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    if (pending_.size() < kMostPending) append(std::string_view(line.data(), line.size()));
    write_pending(std::chrono::milliseconds::zero());
  }
  void flush_() override { write_pending(kLastPatience); }

 private:
  // What users typed may hold control characters; a terminal must not act on them.
  void append(std::string_view line) {
    pending_.append(rendezvous::escaped(line.substr(0, line.size() - 1))).append("\n");
  }
  void write_pending(std::chrono::milliseconds patience) {
    pending_.erase(0, write_patiently(STDERR_FILENO, pending_, patience));
  }

  std::string pending_;
};

std::optional<spdlog::level::level_enum> level_called(std::string name) {
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  if (name == "DEBUG") return spdlog::level::debug;
  if (name == "WARNING" || name == "WARN") return spdlog::level::warn;
  if (name == "ERROR") return spdlog::level::err;
  if (name == "CRITICAL" || name == "FATAL") return spdlog::level::critical;
  if (name == "INFO") return spdlog::level::info;
  return std::nullopt;
}

}  // namespace

void set_up_log() {
  const std::shared_ptr<spdlog::logger> logger =
      std::make_shared<spdlog::logger>("cpprun", std::make_shared<StandardErrorSink>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e cpprun %l: %v");
  const char* level = std::getenv("LOGLEVEL");
  logger->set_level(level_called(level ? level : "").value_or(spdlog::level::info));
  spdlog::set_default_logger(logger);
}

bool is_log_level(const char* name) {
  return level_called(name).has_value();
}

}  // namespace cpprun::launcher
