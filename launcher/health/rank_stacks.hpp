// The stacks of one rank: what is written to disk, sent between nodes and compared. Pure.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cpprun::launcher {

struct StackFrame {
  std::string function;      // empty where no symbol is known
  std::string module;        // path of the file that the code is in; for Python empty
  std::uint64_t offset = 0;  // in the module, where the function is not known
  std::string file;          // of the source, may be empty
  int line = 0;
};

struct ThreadStack {
  pid_t tid = 0;
  std::string name;
  std::string state;                // "S", "D", ...: the kernel's letter
  std::string wchan;                // the kernel's function in which it sleeps; may be empty
  std::vector<std::string> kernel;  // functions of its stack in the kernel, innermost first
  std::vector<StackFrame> frames;   // innermost first; the same for Python
  std::string note;                 // why frames are missing; else empty
};

struct PythonThread {
  std::string name;
  bool main = false;  // the one that runs the script
  std::vector<StackFrame> frames;
};

struct RankStacks {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  std::string host;
  std::string captured_at;           // ISO-8601, UTC
  double stopped_ms = 0;             // the longest that its threads may have stood still
  std::vector<ThreadStack> threads;  // the main thread first
  std::vector<PythonThread> python;  // empty where the worker is no Python, or it was not to be had
  std::string note;                  // what is missing and why; else empty
  bool python_missing = false;       // it is CPython, and nothing that is there could tell its frames
};

// How to get those, on one line.
inline constexpr const char* kHowToGetPython =
    "Python frames are missing: import cpprun_progress in the script, or install py-spy";

std::string to_json(const RankStacks& stacks);

// Nothing for a text that is no such object or longer than kLongestStacks. Parts of a wrong kind or beyond
// reason are left out, since the text may come from another node; never throws.
constexpr std::size_t kLongestStacks = 4 * 1024 * 1024;
std::optional<RankStacks> rank_stacks_from_json(std::string_view text);

// "compute(int) at model.cpp:12", "libc.so.6+0x1234"
std::string to_text(const StackFrame& frame);
// What a person reads: the rank, then its Python threads, then the native ones.
std::string to_text(const RankStacks& stacks);

// Takes over the frames that one line of cpprun-stacks names. False for a line that is none of this rank's.
bool add_unwound(RankStacks& stacks, std::string_view line);

}  // namespace cpprun::launcher
