#include "launcher/config_file.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "launcher/launch_config.hpp"

namespace cpprun::launcher {
namespace {

using nlohmann::json;

constexpr std::size_t kLargest = 1024 * 1024;  // bytes; more is not a file of options
constexpr std::size_t kLongestQuote = 40;

// Counts the lines that the parser has read: its events come with no place.
struct CountingIterator {
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  const char* at;
  int* line;

  reference operator*() const { return *at; }
  CountingIterator& operator++() {
    if (*at == '\n') ++*line;
    ++at;
    return *this;
  }
  bool operator==(const CountingIterator& other) const { return at == other.at; }
  bool operator!=(const CountingIterator& other) const { return at != other.at; }
};

// Members of the one object; what lies deeper than a list's elements is only noted as of a wrong kind.
class Members : public json::json_sax_t {
 public:
  Members(const std::string& name, const int& line) : name_(name), line_(line) {}

  std::vector<FileValue> values;

  bool null() override { return other(); }
  bool boolean(bool on) override { return scalar(FileValue::Kind::Switch, on ? "1" : "0"); }
  bool number_integer(number_integer_t n) override {
    return scalar(FileValue::Kind::Text, std::to_string(n));
  }
  bool number_unsigned(number_unsigned_t n) override {
    return scalar(FileValue::Kind::Text, std::to_string(n));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return scalar(FileValue::Kind::Text, text);
  }
  bool string(string_t& text) override {
    // No argument and no variable can hold a NUL.
    return text.find('\0') == std::string::npos ? scalar(FileValue::Kind::Text, text) : other();
  }
  bool binary(binary_t&) override { return other(); }
  bool start_object(std::size_t) override {
    if (depth_ > 0) other();
    ++depth_;
    return true;
  }
  bool end_object() override {
    --depth_;
    return true;
  }
  bool start_array(std::size_t) override {
    if (depth_ == 0) refuse_whole();
    if (depth_ == 1) {
      values.back().kind = FileValue::Kind::List;
    } else {
      other();
    }
    ++depth_;
    return true;
  }
  bool end_array() override {
    --depth_;
    return true;
  }
  bool key(string_t& key) override {
    if (depth_ == 1) values.push_back({key, line_, FileValue::Kind::Other, {}});
    return true;
  }
  bool parse_error(std::size_t, const std::string& token, const json::exception&) override {
    throw UsageError(name_ + ", line " + std::to_string(line_) + ": this is not valid JSON" +
                     (token.empty() ? "" : " near '" + token.substr(0, kLongestQuote) + "'"));
  }

 private:
  bool scalar(FileValue::Kind kind, const std::string& text) {
    if (depth_ == 0) refuse_whole();
    const bool element = depth_ == 2 && values.back().kind == FileValue::Kind::List;
    if (depth_ == 1) {
      values.back().kind = kind;
    } else if (!element || kind != FileValue::Kind::Text) {
      return other();
    }
    values.back().texts.push_back(text);
    return true;
  }
  bool other() {
    if (depth_ == 0) refuse_whole();
    values.back().kind = FileValue::Kind::Other;
    return true;
  }
  [[noreturn]] void refuse_whole() const {
    throw UsageError(name_ + ": the file is not one JSON object, such as {\"nproc-per-node\": 2}");
  }

  const std::string& name_;
  const int& line_;
  int depth_ = 0;
};

}  // namespace

std::vector<FileValue> parse_config(const std::string& text, const std::string& name) {
  int line = 1;
  Members members(name, line);
  json::sax_parse(CountingIterator{text.data(), &line}, CountingIterator{text.data() + text.size(), &line},
                  &members);
  return std::move(members.values);
}

std::vector<FileValue> read_config_file(const std::string& path) {
  const auto refuse = [&](const std::string& why) {
    throw UsageError("--config: the file '" + path + "' cannot be read: " + why);
  };
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) refuse(std::strerror(errno));
  std::string text(kLargest + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) refuse(std::strerror(errno));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kLargest) refuse("it is larger than 1 MiB");
  return parse_config(text, path);
}

}  // namespace cpprun::launcher
