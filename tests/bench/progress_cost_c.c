#include "progress_cost.h"
#include "worker_runtime/contract/cpprun_progress.h"

int main(void) {
  if (!cpprun_progress_open()) return 1;
  TIME("heartbeat", cpprun_progress_heartbeat());
  TIME("step", cpprun_progress_step(i));
  TIME("collective", cpprun_progress_collective(i));
  TIME("phase", cpprun_progress_phase(CPPRUN_PHASE_TRAINING));
  TIME("section", cpprun_progress_section("forward and backward"));
  TIME("message", cpprun_progress_message("shard 17 of 1000, example 123456"));
  return 0;
}
