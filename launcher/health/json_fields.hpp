// Members of a JSON value that others wrote, and that may be of any kind. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace cpprun::launcher {

// Null where `object` is no object or has no such member.
inline const nlohmann::json* member(const nlohmann::json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

// The first `most` bytes of a text; empty for anything else.
inline std::string text_in(const nlohmann::json& object, const char* key, std::size_t most = 4096) {
  const nlohmann::json* value = member(object, key);
  if (!value || !value->is_string()) return "";
  return value->get_ref<const std::string&>().substr(0, most);
}

// 0 for anything else.
inline std::int64_t integer_in(const nlohmann::json& object, const char* key) {
  const nlohmann::json* value = member(object, key);
  return value && value->is_number_integer() ? value->get<std::int64_t>() : 0;
}

// Calls `take` with each of the first `most` elements of an array.
template <typename Take>
void each_in(const nlohmann::json& object, const char* key, std::size_t most, Take take) {
  const nlohmann::json* array = member(object, key);
  if (!array || !array->is_array()) return;
  for (std::size_t i = 0; i < std::min(array->size(), most); ++i) take((*array)[i]);
}

}  // namespace cpprun::launcher
