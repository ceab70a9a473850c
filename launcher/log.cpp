#include "launcher/log.hpp"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace cpprun::launcher {
namespace {

// One write(2) a line: lines of guardian, agent and workers never mix, and nothing waits in a buffer.
class StandardErrorSink : public spdlog::sinks::base_sink<spdlog::details::null_mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    if (::write(STDERR_FILENO, line.data(), line.size()) < 0) {
      // Nobody reads stderr; there is no other place to say so.
    }
  }
  void flush_() override {}
};

spdlog::level::level_enum level_from_environment() {
  const char* value = std::getenv("LOGLEVEL");
  const std::string name = value ? value : "INFO";
  if (name == "DEBUG") return spdlog::level::debug;
  if (name == "WARNING" || name == "WARN") return spdlog::level::warn;
  if (name == "ERROR") return spdlog::level::err;
  if (name == "CRITICAL") return spdlog::level::critical;
  return spdlog::level::info;
}

}  // namespace

void set_up_log() {
  const std::shared_ptr<spdlog::logger> logger =
      std::make_shared<spdlog::logger>("cpprun", std::make_shared<StandardErrorSink>());
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e cpprun %l: %v");
  logger->set_level(level_from_environment());
  spdlog::set_default_logger(logger);
}

}  // namespace cpprun::launcher
