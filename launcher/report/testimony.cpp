#include "launcher/report/testimony.hpp"

#include <algorithm>
#include <cctype>
#include <optional>

#include "launcher/report/failure_report.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

constexpr std::size_t kMostLines = 200;
constexpr std::size_t kLongestLine = 4 * 1024;
// Without a statement of its own a worker's last words are these.
constexpr std::size_t kLastWords = 30;

const std::string kTraceback = "Traceback (most recent call last)";
const std::string kTerminate = "terminate called";

bool begins(const std::string& line, const std::string& with) {
  return line.rfind(with, 0) == 0;
}

// "[rank12]: " and "[rank12]:", which torch puts before each line of an exception.
std::string without_rank(const std::string& line) {
  if (!begins(line, "[rank")) return line;
  std::size_t end = 5;
  while (end < line.size() && std::isdigit(static_cast<unsigned char>(line[end])) != 0) ++end;
  if (end == 5 || line.compare(end, 2, "]:") != 0) return line;
  end += 2;
  return line.substr(end < line.size() && line[end] == ' ' ? end + 1 : end);
}

// Logged by glog's or c10's rules, "[W1130 12:00:00 ..." and "W1130 12:00:00 ...", or by Python's.
bool is_warning(const std::string& line) {
  const std::size_t letter = begins(line, "[") ? 1 : 0;
  const bool logged = line.size() > letter + 1 && (line[letter] == 'W' || line[letter] == 'I') &&
                      std::isdigit(static_cast<unsigned char>(line[letter + 1])) != 0;
  return logged || line.find("Warning: ") != std::string::npos || begins(line, "[W ");
}

// None longer than kLongestLine.
std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (const std::string& raw : split(text, '\n')) {
    std::string line = without_rank(raw.substr(0, kLongestLine));
    while (!line.empty() && line.back() == '\r') line.pop_back();
    lines.push_back(std::move(line));
  }
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  return lines;
}

std::vector<std::string> last_lines(const std::string& text) {
  std::vector<std::string> lines = lines_of(text);
  if (lines.size() > kMostLines) lines.erase(lines.begin(), lines.end() - kMostLines);
  return lines;
}

// How far a line is indented, in an exception group's frame too ("  |   File ...").
std::size_t indentation(const std::string& line) {
  return std::min(line.find_first_not_of(" |"), line.size());
}

// Without the frames of tracebacks: their lines of source hold words of the program, not of what happened.
std::vector<std::string> without_frames(const std::vector<std::string>& lines) {
  std::vector<std::string> left;
  std::optional<std::size_t> frame;
  for (const std::string& line : lines) {
    const std::size_t indent = indentation(line);
    const bool is_frame =
        line.compare(indent, 6, "File \"") == 0 && line.find("\", line ", indent) != std::string::npos;
    if (is_frame) frame = indent;
    if (is_frame || (frame && indent > *frame)) continue;
    frame.reset();
    left.push_back(line);
  }
  return left;
}

// An exception that was raised while another was handled, or because of it, stands behind that one.
bool chained(const std::vector<std::string>& lines, std::size_t traceback) {
  for (std::size_t i = traceback; i > 0 && traceback - i < 4; --i) {
    const std::string& line = lines[i - 1];
    if (line.empty()) continue;
    return line.find("another exception occurred") != std::string::npos ||
           line.find("was the direct cause of the following") != std::string::npos;
  }
  return false;
}

// The index of the last line that holds `mark`, below `limit`; lines.size() where there is none.
std::size_t last_with(const std::vector<std::string>& lines, const std::string& mark, std::size_t limit) {
  for (std::size_t i = std::min(limit, lines.size()); i > 0; --i) {
    if (lines[i - 1].find(mark) != std::string::npos) return i - 1;
  }
  return lines.size();
}

std::size_t start_of_traceback(const std::vector<std::string>& lines) {
  std::size_t start = last_with(lines, kTraceback, lines.size());
  while (start < lines.size() && chained(lines, start)) {
    const std::size_t earlier = last_with(lines, kTraceback, start);
    if (earlier >= start) break;
    start = earlier;
  }
  return start;
}

// A traceback's frames are indented; the first line that is not names the exception.
std::string exception_line(const std::vector<std::string>& lines, std::size_t traceback) {
  for (std::size_t i = traceback + 1; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (!line.empty() && line[0] != ' ' && line[0] != '\t') return line;
  }
  return "";
}

std::string terminate_line(const std::vector<std::string>& lines, std::size_t terminate) {
  const bool told = terminate + 1 < lines.size() && lines[terminate + 1].find("what():") != std::string::npos;
  return trim(lines[told ? terminate + 1 : terminate]);
}

// The last line that is a sentence rather than a warning.
std::string last_word(const std::vector<std::string>& lines) {
  for (std::size_t i = lines.size(); i > 0; --i) {
    if (!trim(lines[i - 1]).empty() && !is_warning(lines[i - 1])) return trim(lines[i - 1]);
  }
  return "";
}

// A message begins with what counts.
void take_record(Testimony& testimony, const worker::ErrorRecord& record) {
  testimony.statement = lines_of(record.message);
  if (testimony.statement.size() > kMostLines) testimony.statement.resize(kMostLines);
  testimony.error = testimony.statement.empty() ? "" : testimony.statement.front();
  for (std::string& line : without_frames(last_lines(record.callstack)))
    testimony.statement.push_back(std::move(line));
}

void take_stderr(Testimony& testimony) {
  const std::vector<std::string>& lines = testimony.stderr_lines;
  const std::size_t traceback = start_of_traceback(lines);
  const std::size_t terminate = last_with(lines, kTerminate, lines.size());
  std::size_t start = std::min(traceback, terminate);
  testimony.traceback = traceback < lines.size();
  if (testimony.traceback) {
    testimony.error = exception_line(lines, last_with(lines, kTraceback, lines.size()));
  } else if (terminate < lines.size()) {
    testimony.error = terminate_line(lines, terminate);
  }
  if (testimony.error.empty()) testimony.error = last_word(lines);
  if (start >= lines.size()) start = lines.size() - std::min(lines.size(), kLastWords);
  const std::vector<std::string> last(lines.begin() + static_cast<std::ptrdiff_t>(start), lines.end());
  for (std::string& line : without_frames(last)) {
    if (!is_warning(line)) testimony.statement.push_back(std::move(line));
  }
}

}  // namespace

Testimony testimony_of(const WorkerFailure& failure) {
  Testimony testimony;
  testimony.stderr_lines = last_lines(failure.stderr_tail);
  if (failure.record) {
    take_record(testimony, *failure.record);
  } else {
    take_stderr(testimony);
  }
  return testimony;
}

}  // namespace cpprun::launcher
