#include "progress_in_c.h"

#include "worker_runtime/contract/cpprun_progress.h"

int tell_progress_in_c(void) {
  struct cpprun_section_entry outer;
  cpprun_progress_phase(CPPRUN_PHASE_COMPILING);
  cpprun_progress_heartbeat();
  cpprun_progress_step(41);
  cpprun_progress_collective(7);
  cpprun_progress_message("in C");
  cpprun_progress_section("c section");
  cpprun_progress_enter("inner", &outer);
  cpprun_progress_leave(&outer);
  return cpprun_progress_open();
}
