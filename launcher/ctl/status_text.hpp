// What cpprunctl shows of the answers that it got. Pure. Agents of other versions may answer: what is missing
// or of another kind is left out.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace cpprun::launcher {

// What one job said, or why it did not.
struct StatusAnswer {
  pid_t launcher = 0;   // 0: not known
  std::string json;     // as job_status.hpp makes it; empty: none came
  std::string trouble;  // a sentence; empty: none
};

// A line for each job.
std::string job_table(const std::vector<StatusAnswer>& answers);

// All that one job said: some lines, then a line for each worker.
std::string job_text(const std::string& status_json);

// An array of what the jobs said; one that said nothing is {"pid": ..., "error": "..."}.
std::string jobs_json(const std::vector<StatusAnswer>& answers);

// Of an answer to `stacks`: its "text", with a last line for the nodes that did not answer.
std::string stacks_text(const std::string& stacks_json);

}  // namespace cpprun::launcher
