// cpprun-stacks: reads a capture from stdin, and writes one line of JSON for each thread as it is unwound, so
// that whoever ends this program early still has those that are done.
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <new>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/stacks/unwinder.hpp"

namespace {

using namespace cpprun::stacks;

constexpr std::size_t kLongestCapture = std::size_t{256} << 20;
// A minute of computing is far beyond what any capture needs; the caller's patience is shorter still.
constexpr rlim_t kCpuSeconds = 60;
// Mapped ELF files do not count.
constexpr rlim_t kMemory = rlim_t{1} << 30;

constexpr const char* kUsage =
    "usage: cpprun-stacks < CAPTURE\n"
    "\n"
    "Names the frames of a process's threads from a capture that cpprun made; cpprun runs it by itself.\n"
    "One JSON object a line: {\"tid\", \"frames\": [{\"function\", \"module\", \"offset\", \"file\", "
    "\"line\"}], "
    "\"note\"}\n";

void limit(int resource, rlim_t most) {
  rlimit now{};
  if (::getrlimit(resource, &now) != 0 || now.rlim_cur <= most) return;
  now.rlim_cur = most;
  ::setrlimit(resource, &now);
}

void limit_ourselves() {
  limit(RLIMIT_CPU, kCpuSeconds);
  limit(RLIMIT_CORE, 0);
#ifndef __SANITIZE_ADDRESS__  // which takes terabytes of address space for itself
  limit(RLIMIT_DATA, kMemory);
#endif
}

std::optional<std::string> read_capture() {
  std::string text;
  std::string buffer(std::size_t{1} << 20, '\0');
  for (;;) {
    const ssize_t n = ::read(STDIN_FILENO, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 || text.size() > kLongestCapture) return std::nullopt;
    if (n == 0) return text;
    text.append(buffer, 0, static_cast<std::size_t>(n));
  }
}

nlohmann::json as_json(const NamedFrame& frame) {
  nlohmann::json object{{"module", frame.module}, {"offset", frame.offset}};
  if (!frame.function.empty()) object["function"] = frame.function;
  if (!frame.file.empty()) {
    object["file"] = frame.file;
    object["line"] = frame.line;
  }
  return object;
}

bool print(const UnwoundThread& thread) {
  nlohmann::json object{{"tid", thread.tid}, {"frames", nlohmann::json::array()}};
  for (const NamedFrame& frame : thread.frames) object["frames"].push_back(as_json(frame));
  if (!thread.note.empty()) object["note"] = thread.note;
  const std::string line = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  return std::fwrite(line.data(), 1, line.size(), stdout) == line.size() && std::fflush(stdout) == 0;
}

int run() {
  limit_ourselves();
  const std::optional<std::string> text = read_capture();
  const std::optional<ProcessCapture> capture = text ? decode(*text) : std::nullopt;
  if (!capture) {
    std::fputs("cpprun-stacks: stdin holds no capture of this version of cpprun\n", stderr);
    return 2;
  }
  Unwinder unwinder(*capture);
  for (const CapturedThread& thread : capture->threads) {
    if (thread.pc != 0 && !print(unwinder.unwind(thread))) return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view argument = argc == 2 ? argv[1] : "";
  if (argument == "--version") {
    std::puts("cpprun-stacks " CPPRUN_VERSION);
    return 0;
  }
  if (argc > 1) {
    const bool asked = argument == "--help" || argument == "-h";
    std::fputs(kUsage, asked ? stdout : stderr);
    return asked ? 0 : 2;
  }
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cpprun-stacks: %s\n", error.what());
    return 1;
  }
}
