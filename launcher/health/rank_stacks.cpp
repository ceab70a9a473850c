#include "launcher/health/rank_stacks.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "launcher/health/json_fields.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

using nlohmann::json;

constexpr std::size_t kMostThreads = 1024;
constexpr std::size_t kMostFrames = 512;

json frame_json(const StackFrame& frame) {
  json object = json::object();
  if (!frame.function.empty()) object["function"] = frame.function;
  if (!frame.module.empty()) object["module"] = frame.module;
  if (frame.function.empty()) object["offset"] = frame.offset;
  if (!frame.file.empty()) object["file"] = frame.file;
  if (frame.line != 0) object["line"] = frame.line;
  return object;
}

json frames_json(const std::vector<StackFrame>& frames) {
  json array = json::array();
  for (const StackFrame& frame : frames) array.push_back(frame_json(frame));
  return array;
}

StackFrame frame_in(const json& object) {
  StackFrame frame;
  frame.function = text_in(object, "function");
  frame.module = text_in(object, "module");
  frame.offset = static_cast<std::uint64_t>(integer_in(object, "offset"));
  frame.file = text_in(object, "file");
  frame.line = static_cast<int>(integer_in(object, "line"));
  return frame;
}

std::vector<StackFrame> frames_in(const json& object) {
  std::vector<StackFrame> frames;
  each_in(object, "frames", kMostFrames, [&](const json& one) { frames.push_back(frame_in(one)); });
  return frames;
}

ThreadStack thread_in(const json& object) {
  ThreadStack thread;
  thread.tid = static_cast<pid_t>(integer_in(object, "tid"));
  thread.name = text_in(object, "name");
  thread.state = text_in(object, "state");
  thread.wchan = text_in(object, "wchan");
  each_in(object, "kernel", kMostFrames, [&](const json& one) {
    if (one.is_string()) thread.kernel.push_back(one.get<std::string>());
  });
  thread.frames = frames_in(object);
  thread.note = text_in(object, "note");
  return thread;
}

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

std::string frames_text(const std::vector<StackFrame>& frames) {
  std::string text;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    text += "    #" + std::to_string(i) + "  " + to_text(frames[i]) + "\n";
  }
  return text;
}

std::string thread_text(const ThreadStack& thread) {
  std::string text = "  thread " + std::to_string(thread.tid);
  if (!thread.name.empty()) text += " \"" + thread.name + "\"";
  if (!thread.state.empty()) text += ", state " + thread.state;
  if (!thread.wchan.empty()) text += ", in the kernel's " + thread.wchan;
  if (!thread.note.empty()) text += "; " + thread.note;
  text += "\n";
  for (const std::string& function : thread.kernel) text += "    [kernel]  " + function + "\n";
  return text + frames_text(thread.frames);
}

}  // namespace

std::string to_json(const RankStacks& stacks) {
  json object{{"rank", stacks.rank}, {"local_rank", stacks.local_rank},   {"pid", stacks.pid},
              {"host", stacks.host}, {"captured_at", stacks.captured_at}, {"stopped_ms", stacks.stopped_ms},
              {"note", stacks.note}, {"threads", json::array()},          {"python", json::array()}};
  if (stacks.python_missing) object["python_missing"] = true;
  for (const ThreadStack& thread : stacks.threads) {
    object["threads"].push_back({{"tid", thread.tid},
                                 {"name", thread.name},
                                 {"state", thread.state},
                                 {"wchan", thread.wchan},
                                 {"kernel", thread.kernel},
                                 {"frames", frames_json(thread.frames)},
                                 {"note", thread.note}});
  }
  for (const PythonThread& thread : stacks.python) {
    object["python"].push_back(
        {{"name", thread.name}, {"main", thread.main}, {"frames", frames_json(thread.frames)}});
  }
  // Names come from other processes and need not be UTF-8.
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<RankStacks> rank_stacks_from_json(std::string_view text) {
  if (text.size() > kLongestStacks) return std::nullopt;
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object() || !member(object, "rank")) return std::nullopt;
  RankStacks stacks;
  stacks.rank = static_cast<int>(integer_in(object, "rank"));
  stacks.local_rank = static_cast<int>(integer_in(object, "local_rank"));
  stacks.pid = static_cast<pid_t>(integer_in(object, "pid"));
  stacks.host = text_in(object, "host");
  stacks.captured_at = text_in(object, "captured_at");
  const json* stopped = member(object, "stopped_ms");
  if (stopped && stopped->is_number()) stacks.stopped_ms = stopped->get<double>();
  stacks.note = text_in(object, "note");
  const json* missing = member(object, "python_missing");
  stacks.python_missing = missing && missing->is_boolean() && missing->get<bool>();
  each_in(object, "threads", kMostThreads,
          [&](const json& one) { stacks.threads.push_back(thread_in(one)); });
  each_in(object, "python", kMostThreads, [&](const json& one) {
    const json* main = member(one, "main");
    stacks.python.push_back(
        {text_in(one, "name"), main && main->is_boolean() && main->get<bool>(), frames_in(one)});
  });
  return stacks;
}

bool add_unwound(RankStacks& stacks, std::string_view line) {
  const json object = json::parse(line, nullptr, false);
  const std::int64_t tid = integer_in(object, "tid");
  const auto thread = std::find_if(stacks.threads.begin(), stacks.threads.end(),
                                   [&](const ThreadStack& one) { return one.tid == tid; });
  if (tid == 0 || thread == stacks.threads.end()) return false;
  thread->frames = frames_in(object);
  const std::string note = text_in(object, "note");
  if (thread->note.empty()) thread->note = note;
  return true;
}

std::string to_text(const StackFrame& frame) {
  std::string text = frame.function;
  if (text.empty()) {
    char offset[32];
    std::snprintf(offset, sizeof offset, "0x%llx", static_cast<unsigned long long>(frame.offset));
    text = frame.module.empty() ? offset : base_name(frame.module) + "+" + offset;
  }
  if (!frame.file.empty()) {
    text += " at " + frame.file;
    if (frame.line != 0) text.append(":").append(std::to_string(frame.line));
  } else if (!frame.function.empty() && !frame.module.empty()) {
    text += " in " + base_name(frame.module);
  }
  return rendezvous::escaped(text);
}

std::string to_text(const RankStacks& stacks) {
  std::string text = "rank " + std::to_string(stacks.rank) + " (local rank " +
                     std::to_string(stacks.local_rank) + ", pid " + std::to_string(stacks.pid) + ") on " +
                     stacks.host + ", " + stacks.captured_at + "\n";
  if (!stacks.note.empty()) text += "  " + stacks.note + "\n";
  if (stacks.python_missing) text += std::string("  ") + kHowToGetPython + "\n";
  for (const PythonThread& thread : stacks.python) {
    text +=
        "  Python thread " + thread.name + (thread.main ? " (main)\n" : "\n") + frames_text(thread.frames);
  }
  for (const ThreadStack& thread : stacks.threads) text += thread_text(thread);
  return text;
}

}  // namespace cpprun::launcher
