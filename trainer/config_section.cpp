#include "trainer/config_section.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>

namespace cpprun::trainer {

using nlohmann::ordered_json;

namespace {

constexpr double kLargestInt = std::numeric_limits<int>::max();
constexpr double kLargestExact = 0x1p53;  // above it a JSON number may not be what was written

std::string plain(double value) {
  std::ostringstream out;
  out.precision(15);
  out << value;
  return out.str();
}

// Levenshtein's distance, one row at a time.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

bool Range::contains(double value) const {
  return (low_open ? value > low : value >= low) && (high_open ? value < high : value <= high);
}

std::string Range::text() const {
  std::string out = (low_open ? "above " : "at least ") + plain(low);
  if (std::isfinite(high)) out += (high_open ? " and below " : " and at most ") + plain(high);
  return out;
}

SectionReader::SectionReader(const ordered_json& object, std::string path)
    : object_(object), path_(std::move(path)) {
  if (object_.is_object()) return;
  const std::string key = path_.substr(0, path_.empty() ? 0 : path_.size() - 1);
  throw KeyError({key}, (key.empty() ? std::string("the config") : "\"" + key + "\"") +
                            " must be a JSON object, not " + object_.dump());
}

void SectionReader::number(std::string_view key, double& value, Range range) {
  const ordered_json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_number() || !range.contains(found->get<double>())) {
    refuse(key, "a number of " + range.text(), *found);
  }
  value = found->get<double>();
}

void SectionReader::integer(std::string_view key, int& value, Range range) {
  const ordered_json* found = find(key);
  if (found != nullptr) value = static_cast<int>(checked_integer(key, *found, range, kLargestInt));
}

void SectionReader::integer(std::string_view key, std::int64_t& value, Range range) {
  const ordered_json* found = find(key);
  if (found != nullptr) value = checked_integer(key, *found, range, kLargestExact);
}

void SectionReader::integers(std::string_view key, std::vector<int>& value, Range range) {
  const ordered_json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_array()) refuse(key, "a list of whole numbers", *found);
  std::vector<int> read;
  for (const ordered_json& item : *found)
    read.push_back(static_cast<int>(checked_integer(key, item, range, kLargestInt)));
  value = std::move(read);
}

void SectionReader::flag(std::string_view key, bool& value) {
  const ordered_json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_boolean()) refuse(key, "true or false", *found);
  value = found->get<bool>();
}

void SectionReader::text(std::string_view key, std::string& value) {
  const ordered_json* found = find(key);
  if (found == nullptr) return;
  if (!found->is_string()) refuse(key, "a text", *found);
  value = found->get<std::string>();
}

std::size_t SectionReader::choose(std::string_view key, std::size_t value, const std::string_view* names,
                                  std::size_t count) {
  const ordered_json* found = find(key);
  if (found == nullptr) return value;
  std::string right = "one of";
  for (std::size_t i = 0; i < count; ++i) {
    if (found->is_string() && found->get<std::string>() == names[i]) return i;
    right += (i == 0 ? " \"" : ", \"") + std::string(names[i]) + "\"";
  }
  refuse(key, right, *found);
}

void SectionReader::finish() const {
  for (const auto& [key, value] : object_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string& name = key;  // a structured binding cannot be captured before C++20's last fixes
    const std::string nearest =
        *std::min_element(known_.begin(), known_.end(), [&name](const std::string& a, const std::string& b) {
          return edit_distance(name, a) < edit_distance(name, b);
        });
    throw KeyError({path_ + key}, "unknown key \"" + path_ + key + "\"; the nearest known key is \"" + path_ +
                                      nearest + "\"");
  }
}

const ordered_json* SectionReader::find(std::string_view key) {
  known_.emplace_back(key);
  const ordered_json::const_iterator found = object_.find(known_.back());
  return found == object_.end() ? nullptr : &*found;
}

const ordered_json& SectionReader::child(std::string_view key) {
  static const ordered_json kEmpty = ordered_json::object();
  const ordered_json* found = find(key);
  return found == nullptr ? kEmpty : *found;
}

std::int64_t SectionReader::checked_integer(std::string_view key, const ordered_json& found, Range range,
                                            double largest) const {
  // Named only to those who exceed it.
  if (found.is_number() && found.get<double>() > largest) range.high = std::min(range.high, largest);
  if (!found.is_number_integer() || !range.contains(found.get<double>())) {
    refuse(key, "a whole number of " + range.text(), found);
  }
  return found.get<std::int64_t>();
}

void SectionReader::refuse(std::string_view key, const std::string& right, const ordered_json& found) const {
  const std::string name = path_ + std::string(key);
  throw KeyError({name}, "\"" + name + "\" must be " + right + ", not " + found.dump());
}

}  // namespace cpprun::trainer
