#include "launcher/ctl/choose_job.hpp"

#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

std::string pids(const std::vector<KnownJob>& jobs, const std::vector<std::size_t>& which) {
  std::string text;
  for (const std::size_t i : which) text += (text.empty() ? "" : ", ") + std::to_string(jobs[i].launcher);
  return text;
}

}  // namespace

std::vector<std::size_t> matching_jobs(const std::vector<KnownJob>& jobs, const std::string& wanted) {
  std::vector<std::size_t> by_run;
  std::vector<std::string> run_ids;
  std::vector<std::size_t> silent;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    if (std::to_string(jobs[i].launcher) == wanted) return {i};
    if (jobs[i].run_id == wanted) by_run.push_back(i);
    run_ids.push_back(jobs[i].run_id);
    if (!jobs[i].answers) silent.push_back(i);
  }
  if (!by_run.empty()) return by_run;
  if (!silent.empty()) {
    throw NoSuchJob("no job of yours on this host that answers has the pid or run id '" + wanted + "'" +
                    did_you_mean(wanted, run_ids) +
                    "; it may be one that does not answer: " + pids(jobs, silent));
  }
  throw NoSuchJob("no job of yours on this host has the pid or run id '" + wanted + "'" +
                  did_you_mean(wanted, run_ids) + "; cpprunctl status lists them");
}

std::size_t only_job(const std::vector<KnownJob>& jobs, const std::string& wanted) {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < jobs.size(); ++i) found.push_back(i);
  if (!wanted.empty()) found = matching_jobs(jobs, wanted);
  if (found.empty()) throw NoSuchJob("no job of yours runs on this host");
  if (found.size() == 1) return found.front();
  const std::string several = wanted.empty() ? std::to_string(found.size()) + " jobs run here"
                                             : "several jobs have the run id '" + wanted + "'";
  throw NoSuchJob(several + "; name one by its pid: " + pids(jobs, found));
}

}  // namespace cpprun::launcher
