#include "launcher/text.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <numeric>

namespace cpprun::launcher {
namespace {

bool in_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t end = text.find(separator); end != std::string::npos; end = text.find(separator, begin)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

std::optional<int> whole_number(const std::string& text) {
  int value = 0;
  const std::from_chars_result parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string substitute(const std::string& text, const std::map<std::string, std::string>& values) {
  std::string result;
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '$') {
      result += text[i++];
      continue;
    }
    const bool braced = i + 1 < text.size() && text[i + 1] == '{';
    const std::size_t begin = i + (braced ? 2 : 1);
    std::size_t end = begin;
    while (end < text.size() && in_name(text[end])) ++end;
    const std::map<std::string, std::string>::const_iterator found =
        values.find(text.substr(begin, end - begin));
    const bool closed = !braced || (end < text.size() && text[end] == '}');
    if (found != values.end() && closed) {
      result += found->second;
      i = end + (braced ? 1 : 0);
    } else {
      result += text[i++];
      if (i < text.size() && text[i] == '$') result += text[i++];  // "$$" stays, and starts no name
    }
  }
  return result;
}

std::string shell_quoted(const std::string& text) {
  static const std::string kSafe = "%+,-./:=@_";
  const bool controls = std::any_of(text.begin(), text.end(), rendezvous::is_control);
  const bool safe = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || kSafe.find(static_cast<char>(c)) != std::string::npos;
  });
  if (safe) return text;
  std::string quoted = controls ? "$'" : "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += controls ? "\\'" : "'\\''";
    } else if (c == '\\' && controls) {
      quoted += "\\\\";
    } else {
      quoted += rendezvous::escaped({&c, 1});
    }
  }
  return quoted + "'";
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& candidates) {
  std::string best;
  std::size_t least = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (word.size() <= 2 || candidate.size() <= 2) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < least) {
      least = distance;
      best = candidate;
    }
  }
  return best.empty() ? "" : "; did you mean " + best + "?";
}

}  // namespace cpprun::launcher
