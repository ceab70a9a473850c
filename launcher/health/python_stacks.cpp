#include "launcher/health/python_stacks.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "launcher/health/json_fields.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

using nlohmann::json;

constexpr std::size_t kMostThreads = 1024;
constexpr std::size_t kMostFrames = 512;

StackFrame py_spy_frame(const json& object) {
  StackFrame frame;
  frame.function = text_in(object, "name");
  frame.file = text_in(object, "filename");
  frame.line = static_cast<int>(integer_in(object, "line"));
  return frame;
}

// `  File "/home/me/train.py", line 12 in step`
std::optional<StackFrame> faulthandler_frame(const std::string& line) {
  constexpr std::string_view kFront = "  File \"";
  constexpr std::string_view kMiddle = "\", line ";
  const std::size_t middle = line.rfind(kMiddle);
  if (!line.starts_with(kFront) || middle == std::string::npos || middle < kFront.size()) return std::nullopt;
  StackFrame frame;
  frame.file = line.substr(kFront.size(), middle - kFront.size());
  const std::string rest = line.substr(middle + kMiddle.size());
  std::from_chars(rest.data(), rest.data() + rest.size(), frame.line);
  const std::size_t in = rest.find(" in ");
  if (in != std::string::npos) frame.function = rest.substr(in + 4);
  return frame;
}

// "Thread 0x00007f2c (most recent call first):", "Current thread 0x00007f2c [name] (most recent ..."
std::optional<std::string> faulthandler_thread(const std::string& line) {
  const std::size_t number = line.find("hread 0x");
  const bool at_front = line.starts_with("Thread 0x") || line.starts_with("Current thread 0x");
  const std::size_t end = line.rfind(" (most recent call first)");
  if (!at_front || end == std::string::npos) return std::nullopt;
  const std::size_t begin = number + 6;
  return end < begin ? "" : line.substr(begin, end - begin);
}

}  // namespace

std::vector<PythonThread> parse_py_spy(std::string_view text, pid_t pid) {
  std::vector<PythonThread> threads;
  const json array = json::parse(text, nullptr, false);
  if (!array.is_array()) return threads;
  for (const json& one : array) {
    if (!one.is_object() || threads.size() == kMostThreads) continue;
    PythonThread thread;
    thread.name = text_in(one, "thread_name");
    thread.main = integer_in(one, "os_thread_id") == pid || thread.name == "MainThread";
    each_in(one, "frames", kMostFrames,
            [&](const json& frame) { thread.frames.push_back(py_spy_frame(frame)); });
    threads.push_back(std::move(thread));
  }
  std::stable_partition(threads.begin(), threads.end(), [](const PythonThread& one) { return one.main; });
  return threads;
}

std::vector<PythonThread> parse_faulthandler(std::string_view text) {
  std::vector<PythonThread> threads;
  for (const std::string& line : split(std::string(text), '\n')) {
    if (std::optional<std::string> name = faulthandler_thread(line)) {
      if (threads.size() == kMostThreads) break;
      threads.push_back({std::move(*name), false, {}});
    } else if (!threads.empty() && threads.back().frames.size() < kMostFrames) {
      std::optional<StackFrame> frame = faulthandler_frame(line);
      if (frame) threads.back().frames.push_back(std::move(*frame));
    }
  }
  // Threads are written from the newest to the oldest, which runs the script.
  if (!threads.empty()) {
    threads.back().main = true;
    std::rotate(threads.begin(), threads.end() - 1, threads.end());
  }
  return threads;
}

}  // namespace cpprun::launcher
