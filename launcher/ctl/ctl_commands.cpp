#include "launcher/ctl/ctl_commands.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "launcher/ctl/choose_job.hpp"
#include "launcher/ctl/control_client.hpp"
#include "launcher/ctl/control_socket.hpp"
#include "launcher/ctl/running_jobs.hpp"
#include "launcher/ctl/status_text.hpp"
#include "launcher/health/progress_pages.hpp"
#include "launcher/launch.hpp"

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;

// Of an agent that is about to be listed among others, and of one that was named.
constexpr std::chrono::milliseconds kListPatience{2'000};
constexpr std::chrono::milliseconds kStatusPatience{10'000};
constexpr std::chrono::milliseconds kStacksPatience{150'000};

int print(const std::string& text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return written ? kGood : kSystemRefused;
}

// Of their sockets, where `job` is a path; else none.
std::vector<fs::path> folders_named(const std::string& job) {
  const fs::path path(job);
  if (path.filename() == kControlSocket) return {path.has_parent_path() ? path.parent_path() : fs::path(".")};
  if (job.empty()) return {};
  std::vector<fs::path> folders = folders_meant(path);
  const bool is_path = job.find('/') != std::string::npos || folders.size() > 1 || folders.front() != path;
  std::error_code ignored;
  if (!is_path && !fs::exists(path / kControlSocket, ignored)) return {};
  return folders;
}

bool process_is_gone(pid_t pid) {
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

struct JobHere {
  fs::path folder;
  StatusAnswer answer;
};

// Those that answer, and those that are there and do not. What dead ones left is removed.
std::vector<JobHere> jobs_here() {
  std::vector<JobHere> jobs;
  for (const ControlPlace& place : listed_jobs(list_of_jobs())) {
    StatusAnswer answer{place.launcher, {}, {}};
    try {
      answer.json = ask(place.folder, "status", kListPatience);
    } catch (const ControlError& error) {
      const bool nobody = error.kind == ControlError::Kind::Nobody;
      if (nobody && process_is_gone(place.launcher)) leave(place);
      if (nobody) continue;
      answer.trouble = error.what();
    }
    jobs.push_back({place.folder, std::move(answer)});
  }
  return jobs;
}

std::vector<KnownJob> known(const std::vector<JobHere>& jobs) {
  std::vector<KnownJob> known;
  for (const JobHere& job : jobs) {
    const nlohmann::json status = nlohmann::json::parse(job.answer.json, nullptr, false);
    const bool named = status.is_object() && status.contains("run_id") && status["run_id"].is_string();
    known.push_back({job.answer.launcher, named ? status["run_id"].get<std::string>() : std::string(),
                     !job.answer.json.empty()});
  }
  return known;
}

// Those of `folders` whose jobs answer, or the trouble with the last.
std::vector<JobHere> jobs_at(const std::vector<fs::path>& folders) {
  std::vector<JobHere> jobs;
  for (const fs::path& folder : folders) {
    try {
      jobs.push_back({folder, {0, ask(folder, "status", kStatusPatience), {}}});
    } catch (const ControlError&) {
      if (jobs.empty() && &folder == &folders.back()) throw;
    }
  }
  return jobs;
}

fs::path only_folder(const std::vector<fs::path>& folders) {
  if (folders.size() == 1) return folders.front();
  const std::vector<JobHere> jobs = jobs_at(folders);
  if (jobs.size() == 1) return jobs.front().folder;
  std::string names;
  for (const JobHere& job : jobs) names += (names.empty() ? "" : ", ") + job.folder.string();
  throw NoSuchJob("several jobs keep their logs there; name one by its folder: " + names);
}

std::vector<StatusAnswer> answers_of(const std::string& job) {
  std::vector<StatusAnswer> answers;
  const std::vector<fs::path> folders = folders_named(job);
  if (!folders.empty()) {
    for (JobHere& one : jobs_at(folders)) answers.push_back(std::move(one.answer));
    return answers;
  }
  const std::vector<JobHere> jobs = jobs_here();
  if (job.empty()) {
    for (const JobHere& one : jobs) answers.push_back(one.answer);
    return answers;
  }
  for (const std::size_t i : matching_jobs(known(jobs), job)) {
    StatusAnswer answer = jobs[i].answer;
    if (answer.json.empty()) answer.json = ask(jobs[i].folder, "status", kStatusPatience);
    answers.push_back(std::move(answer));
  }
  return answers;
}

}  // namespace

int show_status(const std::string& job, bool json) {
  ProgressPages::remove_abandoned();  // as jobs_here() does with what else dead jobs left
  const std::vector<StatusAnswer> answers = answers_of(job);
  if (json) return print(jobs_json(answers));
  if (answers.empty()) return print("No job of yours runs on this host.\n");
  if (job.empty()) return print(job_table(answers));
  std::string text;
  for (const StatusAnswer& answer : answers) text += (text.empty() ? "" : "\n") + job_text(answer.json);
  return print(text);
}

int show_stacks(const std::string& job, bool json) {
  const std::vector<fs::path> folders = folders_named(job);
  fs::path folder;
  if (folders.empty()) {
    const std::vector<JobHere> jobs = jobs_here();
    folder = jobs[only_job(known(jobs), job)].folder;
  } else {
    folder = only_folder(folders);
  }
  const std::string answer = ask(folder, "stacks", kStacksPatience);
  return print(json ? answer + "\n" : stacks_text(answer));
}

}  // namespace cpprun::launcher
