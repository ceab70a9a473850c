#include "rendezvous/config_file.hpp"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <nlohmann/json.hpp>

#include "rendezvous/duration_text.hpp"

namespace cpprun::rendezvous {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kLargest = 1024 * 1024;  // bytes; more is not a file of options
constexpr std::size_t kLongestQuote = 40;

struct Descriptor {
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
  int fd;
};

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
    if (depth_ > 0) refuse_nul(text, "the value of '" + values.back().key + "'");
    return scalar(FileValue::Kind::Text, text);
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
    refuse_nul(key, "a key");
    if (depth_ == 1) values.push_back({key, line_, FileValue::Kind::Other, {}});
    return true;
  }
  bool parse_error(std::size_t, const std::string& token, const json::exception&) override {
    throw ConfigFileError(name_ + ", line " + std::to_string(line_) + ": this is not valid JSON" +
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
  // No argument and no variable can hold one.
  void refuse_nul(const std::string& text, const std::string& what) const {
    if (text.find('\0') == std::string::npos) return;
    throw ConfigFileError(name_ + ", line " + std::to_string(line_) + ": " + what + " holds a NUL character");
  }
  [[noreturn]] void refuse_whole() const {
    throw ConfigFileError(name_ + ": the file is not one JSON object, such as {\"nproc-per-node\": 2}");
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

std::string read_config_file(const std::string& path, milliseconds patience) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigFileError("the file '" + path + "' cannot be read: " + why);
  };
  // Opening a FIFO waits for nobody, so that its writer can be waited for with a limit.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)};
  if (file.fd < 0) refuse(std::strerror(errno));
  const steady_clock::time_point limit = steady_clock::now() + patience;
  std::string text(kLargest + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const milliseconds left = std::chrono::ceil<milliseconds>(limit - steady_clock::now());
    pollfd ready{file.fd, POLLIN, 0};
    const int count = ::poll(&ready, 1, static_cast<int>(std::max(left, milliseconds::zero()).count()));
    if (count == 0) refuse("nothing came from it for " + seconds_text(patience));
    const ssize_t n = ::read(file.fd, text.data() + size, text.size() - size);
    if (n == 0) break;
    if (n > 0) size += static_cast<std::size_t>(n);
    if (n < 0 && errno != EAGAIN && errno != EINTR) refuse(std::strerror(errno));
  }
  text.resize(size);
  if (text.size() > kLargest) refuse("it is larger than 1 MiB");
  return text;
}

}  // namespace cpprun::rendezvous
