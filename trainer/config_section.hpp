// Reading and writing one JSON object of a config by the same list of its keys, so that what is printed is
// what can be read. A list is a function `fields(F&, Struct&)` that names each key once; F is a
// SectionReader or a SectionWriter.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "worker_runtime/recorded_main.hpp"

namespace cpprun::trainer {

// What is wrong with a key's value, or with those of several together; the text names them too.
struct KeyError : worker::ConfigError {
  KeyError(std::vector<std::string> dotted_keys, const std::string& sentence)
      : worker::ConfigError(sentence), keys(std::move(dotted_keys)) {}

  std::vector<std::string> keys;  // "": the whole config
};

// The values that a number may have. An open end is not itself allowed.
struct Range {
  double low = 0;
  double high = std::numeric_limits<double>::infinity();
  bool low_open = false;
  bool high_open = false;

  bool contains(double value) const;
  std::string text() const;  // "at least 0 and below 1"
};

inline constexpr Range kAtLeastZero{.low = 0};
inline constexpr Range kAtLeastOne{.low = 1};
inline constexpr Range kPositive{.low = 0, .low_open = true};
inline constexpr Range kZeroToBelowOne{.low = 0, .high = 1, .high_open = true};
inline constexpr Range kShare{.low = 0, .high = 1};

// Takes the keys of `object` one by one; a key that is not there leaves its value as it is. Throws KeyError.
// `object` must outlive the reader.
class SectionReader {
 public:
  // `path` is the dotted name of the section with a trailing dot, or empty for the whole config.
  SectionReader(const nlohmann::ordered_json& object, std::string path);

  void number(std::string_view key, double& value, Range range);
  void integer(std::string_view key, int& value, Range range);
  void integer(std::string_view key, std::int64_t& value, Range range);
  void integers(std::string_view key, std::vector<int>& value, Range range);  // the range of each
  void flag(std::string_view key, bool& value);
  void text(std::string_view key, std::string& value);

  // `value` becomes the enumerator whose place in `names` has the text found.
  template <class Enum, std::size_t N>
  void one_of(std::string_view key, Enum& value, const std::array<std::string_view, N>& names) {
    value = static_cast<Enum>(choose(key, static_cast<std::size_t>(value), names.data(), N));
  }

  template <class Struct>
  void section(std::string_view key, Struct& value) {
    SectionReader inner(child(key), path_ + std::string(key) + ".");
    fields(inner, value);
    inner.finish();
  }

  // A section whose "type" chooses the alternative of `value` at the same place in `names`.
  template <std::size_t N, class... Structs>
  void variant(std::string_view key, std::variant<Structs...>& value,
               const std::array<std::string_view, N>& names) {
    static_assert(N == sizeof...(Structs));
    SectionReader inner(child(key), path_ + std::string(key) + ".");
    const std::size_t chosen = inner.choose("type", value.index(), names.data(), N);
    if (chosen != value.index()) {
      std::size_t place = 0;
      ((place++ == chosen ? static_cast<void>(value = Structs{}) : static_cast<void>(0)), ...);
    }
    std::visit([&inner](auto& alternative) { fields(inner, alternative); }, value);
    inner.finish();
  }

  // Throws where the object holds a key that nobody asked for.
  void finish() const;

 private:
  const nlohmann::ordered_json* find(std::string_view key);
  const nlohmann::ordered_json& child(std::string_view key);
  std::size_t choose(std::string_view key, std::size_t value, const std::string_view* names,
                     std::size_t count);
  std::int64_t checked_integer(std::string_view key, const nlohmann::ordered_json& found, Range range,
                               double largest) const;
  [[noreturn]] void refuse(std::string_view key, const std::string& right,
                           const nlohmann::ordered_json& found) const;

  const nlohmann::ordered_json& object_;
  std::string path_;
  std::vector<std::string> known_;
};

class SectionWriter {
 public:
  void number(std::string_view key, const double& value, Range) { out_[std::string(key)] = value; }
  void integer(std::string_view key, const int& value, Range) { out_[std::string(key)] = value; }
  void integer(std::string_view key, const std::int64_t& value, Range) { out_[std::string(key)] = value; }
  void integers(std::string_view key, const std::vector<int>& value, Range) {
    out_[std::string(key)] = value;
  }
  void flag(std::string_view key, const bool& value) { out_[std::string(key)] = value; }
  void text(std::string_view key, const std::string& value) { out_[std::string(key)] = value; }

  template <class Enum, std::size_t N>
  void one_of(std::string_view key, const Enum& value, const std::array<std::string_view, N>& names) {
    out_[std::string(key)] = names.at(static_cast<std::size_t>(value));
  }

  template <class Struct>
  void section(std::string_view key, Struct& value) {
    SectionWriter inner;
    fields(inner, value);
    out_[std::string(key)] = std::move(inner.out_);
  }

  template <std::size_t N, class... Structs>
  void variant(std::string_view key, std::variant<Structs...>& value,
               const std::array<std::string_view, N>& names) {
    SectionWriter inner;
    inner.out_["type"] = names.at(value.index());
    std::visit([&inner](auto& alternative) { fields(inner, alternative); }, value);
    out_[std::string(key)] = std::move(inner.out_);
  }

  const nlohmann::ordered_json& json() const { return out_; }

 private:
  nlohmann::ordered_json out_ = nlohmann::ordered_json::object();
};

}  // namespace cpprun::trainer
