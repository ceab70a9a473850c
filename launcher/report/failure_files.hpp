// What a failed attempt leaves on disk for people and programs:
//
//   attempt_<n>/failure.json
//   attempt_<n>/post_mortem/{page.txt,post_mortem.json}
#pragma once

#include <sys/types.h>

#include <string>

#include "launcher/process/log_layout.hpp"
#include "launcher/report/failure_report.hpp"

namespace cpprun::launcher {

// Each file whole or not at all, for its owner only; older ones are replaced. Trouble is logged. Does nothing
// without a folder.
void write_failure_files(const RunFolder& folder, const FailureReport& report);

// For the guardian: the agent (`pid`) was ended by a signal, and nobody else will say so. The report goes to
// the last attempt. Does nothing where there is none, or the folder is a temporary one, which goes with the
// agent.
void write_agent_end(const RunFolder& folder, FailureReport report, pid_t pid, const ExitStatus& status);

}  // namespace cpprun::launcher
