#include "launcher/report/own_error_file.hpp"

#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>

#include "launcher/process/error_file.hpp"
#include "worker_runtime/contract/error_record.hpp"
#include "worker_runtime/contract/whole_file.hpp"

namespace cpprun::launcher {
namespace {

using nlohmann::json;

void write(const std::string& path, const std::string& content) {
  struct stat about {};
  // The file is put in its place by a rename: that must not hit a device or a FIFO.
  if (::stat(path.c_str(), &about) == 0 && !S_ISREG(about.st_mode)) {
    spdlog::warn("TORCHELASTIC_ERROR_FILE={} is no regular file; cpprun's own error is not written there",
                 path);
    return;
  }
  const std::error_code error = worker::write_whole_file(path, content);
  if (error) spdlog::warn("cannot write cpprun's own error file {}: {}", path, error.message());
}

}  // namespace

std::string with_error_code(const std::string& record, const ExitStatus& status) {
  json root = json::parse(record, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object() || !root.contains("message") || !root["message"].is_object()) return record;
  const Exited* exited = std::get_if<Exited>(&status);
  root["message"]["errorCode"] = exited ? exited->code : -std::get<Signaled>(status).signal;
  return root.dump(-1, ' ', false, json::error_handler_t::replace);
}

void record_own_failure(const char* path, const FailureReport& report) {
  if (!path || !*path) return;
  const WorkerFailure& root = root_cause(report.failures);
  if (!root.record) return;
  const std::optional<std::string> record = read_error_file(root.error_file);
  if (record) write(path, with_error_code(*record, root.status));
}

void record_own_error(const char* path, const std::string& kind, const std::string& sentence, int exit_code) {
  if (!path || !*path) return;
  worker::ErrorRecord record;
  record.message = kind + ": " + sentence;
  record.timestamp = std::time(nullptr);
  record.error_code = exit_code;
  write(path, worker::to_json(record));
}

const char* own_error_file() {
  return std::getenv("TORCHELASTIC_ERROR_FILE");
}

int fail(const std::string& kind, const std::string& sentence, int exit_code) {
  spdlog::error("{}", sentence);
  record_own_error(own_error_file(), kind, sentence, exit_code);
  return exit_code;
}

}  // namespace cpprun::launcher
