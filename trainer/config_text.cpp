#include "trainer/config_text.hpp"

#include <algorithm>
#include <functional>
#include <set>
#include <vector>

#include "worker_runtime/recorded_main.hpp"

namespace cpprun::trainer {
namespace {

using nlohmann::ordered_json;

// Follows the parser from key to key, to name one that an object holds twice.
class KeyWatch {
 public:
  bool operator()(int, ordered_json::parse_event_t event, const ordered_json& value) {
    switch (event) {
      case ordered_json::parse_event_t::object_start:
        objects_.emplace_back();
        break;
      case ordered_json::parse_event_t::object_end:
        objects_.pop_back();
        break;
      case ordered_json::parse_event_t::key:
        enter(value.get<std::string>());
        break;
      default:
        break;
    }
    return true;
  }

 private:
  struct Object {
    std::set<std::string> keys;
    std::string current;
  };

  void enter(const std::string& key) {
    objects_.back().current = key;
    if (objects_.back().keys.insert(key).second) return;
    std::string path;
    for (const Object& object : objects_) path += (path.empty() ? "" : ".") + object.current;
    throw worker::ConfigError("the key \"" + path + "\" stands there twice: keep one of them");
  }

  std::vector<Object> objects_;
};

// What the library says after "[json.exception.parse_error.101] parse error at line 1, column 2: ".
std::string reason(const ordered_json::parse_error& error) {
  const std::string text = error.what();
  const std::size_t place = text.find("column ");
  const std::size_t begin = place == std::string::npos ? place : text.find(": ", place);
  return begin == std::string::npos ? text : text.substr(begin + 2);
}

}  // namespace

ordered_json parse_config_text(const std::string& text) {
  // The library copies its callback; what it has seen must not be lost with a copy.
  KeyWatch watch;
  try {
    return ordered_json::parse(text, std::ref(watch));
  } catch (const ordered_json::parse_error& error) {
    const std::size_t read = std::min<std::size_t>(error.byte == 0 ? 0 : error.byte - 1, text.size());
    const std::ptrdiff_t line =
        1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(read), '\n');
    throw worker::ConfigError("line " + std::to_string(line) + ": this is not valid JSON: " + reason(error));
  }
}

}  // namespace cpprun::trainer
