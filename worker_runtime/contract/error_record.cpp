#include "worker_runtime/contract/error_record.hpp"

#include <cerrno>
#include <nlohmann/json.hpp>

#include "worker_runtime/contract/whole_file.hpp"

namespace cpprun::worker {
namespace {

using nlohmann::json;

// torchelastic writes the time as a decimal string in one shape and as a number in the other.
std::int64_t timestamp_in(const json& object) {
  const json::const_iterator found = object.find("timestamp");
  if (found == object.end()) return 0;
  if (found->is_number()) return found->get<std::int64_t>();
  if (found->is_string()) return std::strtoll(found->get_ref<const std::string&>().c_str(), nullptr, 10);
  return 0;
}

std::string string_in(const json& object, const char* key) {
  const json::const_iterator found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

std::string to_json(const ErrorRecord& record) {
  json inner = {
      {"message", record.message},
      {"extraInfo", {{"py_callstack", record.callstack}, {"timestamp", std::to_string(record.timestamp)}}},
  };
  if (record.error_code) inner["errorCode"] = *record.error_code;
  // A message may hold any bytes; those that are no UTF-8 are replaced rather than lost with the record.
  return json{{"message", inner}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<ErrorRecord> parse_error_record(const std::string& text) {
  const json root = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!root.is_object()) return std::nullopt;
  const json::const_iterator message = root.find("message");
  if (message == root.end()) return std::nullopt;
  ErrorRecord record;
  if (message->is_string()) {
    record.message = message->get<std::string>();
    record.timestamp = timestamp_in(root);
    return record;
  }
  if (!message->is_object()) return std::nullopt;
  record.message = string_in(*message, "message");
  const json::const_iterator extra = message->find("extraInfo");
  if (extra != message->end() && extra->is_object()) {
    record.callstack = string_in(*extra, "py_callstack");
    record.timestamp = timestamp_in(*extra);
  }
  const json::const_iterator code = message->find("errorCode");
  if (code != message->end() && code->is_number_integer()) record.error_code = code->get<int>();
  return record;
}

bool write_error_record(const std::string& path, const ErrorRecord& record) {
  const std::error_code error = write_whole_file(path, to_json(record));
  errno = error.value();
  return !error;
}

}  // namespace cpprun::worker
