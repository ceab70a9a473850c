// A worker for scripts/bench/launch: writes down when it starts, and on the first attempt when its rank 0
// fails.
//
// Usage: stamping_worker FOLDER. Writes FOLDER/start.<attempt>.<rank>, and rank 0 of attempt 0 also
// FOLDER/exit, each holding CLOCK_MONOTONIC in nanoseconds. Attempt 0: rank 0 waits until rank 1 has started,
// stamps and exits 1; rank 1 waits for its end. Later attempts exit 0 at once. Native, so that no
// interpreter's start is measured.

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace {

const std::chrono::seconds kLongest{30};  // for a peer that never comes, or a signal that never comes

void stamp(const std::filesystem::path& file) {
  std::ofstream(file) << std::chrono::steady_clock::now().time_since_epoch().count() << std::flush;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string rank = environment("RANK");
  const std::string attempt = environment("TORCHELASTIC_RESTART_COUNT");
  if (argc != 2 || rank.empty() || attempt.empty()) {
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  stamp(folder / ("start." + attempt + "." + rank));
  if (attempt != "0") {
    return 0;
  }
  if (rank != "0") {
    std::this_thread::sleep_for(kLongest);
    return 3;
  }
  const std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::now() + kLongest;
  while (!std::filesystem::exists(folder / "start.0.1")) {
    if (std::chrono::steady_clock::now() > deadline) {
      return 3;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  stamp(folder / "exit");
  _exit(1);
}
