#include "tests/bench/progress_cost.h"
#include "worker_runtime/contract/cpprun_progress.hpp"

int main() {
  namespace progress = cpprun::progress;
  if (!progress::open()) return 1;
  TIME("heartbeat", progress::heartbeat());
  TIME("step", progress::step(i));
  TIME("collective", progress::collective(i));
  TIME("phase", progress::phase(progress::Phase::Training));
  TIME("section", progress::section("forward and backward"));
  TIME("section, entered and left", progress::Section("forward and backward"));
  TIME("message", progress::message("shard 17 of 1000, example 123456"));
  return 0;
}
