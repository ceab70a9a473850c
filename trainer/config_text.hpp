// A config's JSON, read more strictly than the JSON library does.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace cpprun::trainer {

// Throws worker::ConfigError where the text is no JSON, beginning with the line ("line 3: ..."), or where an
// object names a key twice, of which the library would silently keep the last.
nlohmann::ordered_json parse_config_text(const std::string& text);

}  // namespace cpprun::trainer
