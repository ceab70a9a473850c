// Which of the jobs that run here somebody means. Pure.
#pragma once

#include <sys/types.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace cpprun::launcher {

struct KnownJob {
  pid_t launcher;
  std::string run_id;   // empty where it is not known
  bool answers = true;  // false: what it is called is not known
};

// There is none such, or more than one; a sentence.
struct NoSuchJob : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The positions of those whose pid or run id is `wanted`; a pid comes first. Throws NoSuchJob, never returns
// none.
std::vector<std::size_t> matching_jobs(const std::vector<KnownJob>& jobs, const std::string& wanted);

// The only one of the given ones; with an empty `wanted`, of all. Throws NoSuchJob, naming the pids to choose
// from.
std::size_t only_job(const std::vector<KnownJob>& jobs, const std::string& wanted);

}  // namespace cpprun::launcher
