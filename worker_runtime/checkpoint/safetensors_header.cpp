#include "worker_runtime/checkpoint/safetensors_header.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxDimensions = 64;

// Quotes a name from the file for an error text, cut and without control characters.
std::string in_quotes(const std::string& name) {
  std::string text = name.substr(0, 200);
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, '?');
  return "'" + text + "'";
}

[[noreturn]] void refuse(const std::string& reason) {
  throw ConfigError(reason);
}

// Parses the text; a name that comes twice is refused (JSON itself would keep the last).
Json parse_object(std::string_view text) {
  std::set<std::string> names;
  const Json::parser_callback_t check = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (depth == 1 && event == Json::parse_event_t::key && !names.insert(parsed.get<std::string>()).second) {
      refuse("tensor " + in_quotes(parsed.get<std::string>()) + " comes twice in its header");
    }
    return true;
  };
  try {
    Json header = Json::parse(text, check);
    if (!header.is_object()) {
      refuse("its header is no JSON object");
    }
    return header;
  } catch (const Json::exception&) {
    refuse("its header is no JSON");
  }
}

// Bytes of a tensor; refuses what overflows. Dimensions of length 0 make it empty but the others must still
// fit, as LibTorch computes strides from them.
std::uint64_t byte_size(const TensorSpec& spec) {
  constexpr std::uint64_t kMax = std::numeric_limits<std::int64_t>::max();
  std::uint64_t size = dtype_size(spec.dtype);
  bool empty = false;
  for (const std::int64_t length : spec.shape) {
    if (length == 0) {
      empty = true;
    } else if (size > kMax / static_cast<std::uint64_t>(length)) {
      refuse("tensor " + in_quotes(spec.name) + " is impossibly large");
    } else {
      size *= static_cast<std::uint64_t>(length);
    }
  }
  return empty ? 0 : size;
}

std::uint64_t unsigned_number(const Json& value, const std::string& name) {
  if (!value.is_number_unsigned()) {
    refuse("tensor " + in_quotes(name) + " has a shape or offset that is no whole number from 0");
  }
  return value.get<std::uint64_t>();
}

TensorEntry parse_entry(const std::string& name, const Json& value) {
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets") || !value["dtype"].is_string() || !value["shape"].is_array() ||
      !value["data_offsets"].is_array() || value["data_offsets"].size() != 2) {
    refuse("tensor " + in_quotes(name) + " needs exactly dtype, shape and two data_offsets");
  }
  TensorEntry entry;
  entry.spec.name = name;
  entry.spec.dtype = value["dtype"].get<std::string>();
  if (dtype_size(entry.spec.dtype) == 0) {
    refuse("tensor " + in_quotes(name) + " has dtype " + in_quotes(entry.spec.dtype) +
           ", and only F64, F32, F16, BF16, I64, I32, I8, U8 and BOOL are known");
  }
  if (value["shape"].size() > kMaxDimensions) {
    refuse("tensor " + in_quotes(name) + " has more than 64 dimensions");
  }
  for (const Json& length : value["shape"]) {
    const std::uint64_t number = unsigned_number(length, name);
    if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      refuse("tensor " + in_quotes(name) + " is impossibly large");
    }
    entry.spec.shape.push_back(static_cast<std::int64_t>(number));
  }
  entry.begin = unsigned_number(value["data_offsets"][0], name);
  entry.end = unsigned_number(value["data_offsets"][1], name);
  if (entry.end < entry.begin || entry.end - entry.begin != byte_size(entry.spec)) {
    refuse("tensor " + in_quotes(name) + " has offsets that do not fit its dtype and shape");
  }
  return entry;
}

}  // namespace

std::uint64_t dtype_size(std::string_view dtype) {
  static constexpr std::pair<std::string_view, std::uint64_t> kSizes[] = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},
      {"I32", 4}, {"I8", 1},  {"U8", 1},  {"BOOL", 1}};
  for (const auto& [name, size] : kSizes) {
    if (name == dtype) {
      return size;
    }
  }
  return 0;
}

std::string to_json(const std::vector<TensorEntry>& entries) {
  Json header = Json::object();
  for (const TensorEntry& entry : entries) {
    header[entry.spec.name] = {
        {"dtype", entry.spec.dtype}, {"shape", entry.spec.shape}, {"data_offsets", {entry.begin, entry.end}}};
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  return text;
}

std::vector<TensorEntry> parse_safetensors_header(std::string_view text, std::uint64_t data_size) {
  const Json header = parse_object(text);
  std::vector<TensorEntry> entries;
  for (const auto& item : header.items()) {
    if (item.key() != "__metadata__") {
      entries.push_back(parse_entry(item.key(), item.value()));
    }
  }
  // Empty tensors come before what begins where they lie.
  std::stable_sort(entries.begin(), entries.end(), [](const TensorEntry& a, const TensorEntry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  std::uint64_t covered = 0;
  for (const TensorEntry& entry : entries) {
    if (entry.end > data_size) {
      refuse("tensor " + in_quotes(entry.spec.name) + " ends behind the end of the file: it was cut short");
    }
    if (entry.begin != covered) {
      refuse("tensor " + in_quotes(entry.spec.name) + " does not begin where the one before it ends");
    }
    covered = entry.end;
  }
  if (covered != data_size) {
    refuse("it has " + std::to_string(data_size - covered) + " bytes that belong to no tensor");
  }
  return entries;
}

}  // namespace cpprun::worker
