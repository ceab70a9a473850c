#include "launcher/process/local_runner.hpp"

#include <spdlog/spdlog.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "launcher/process/child_process.hpp"
#include "launcher/process/error_file.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/temporary_folder.hpp"
#include "launcher/process/topology.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

// After SIGKILL a process ends at once, unless the kernel holds it.
constexpr std::chrono::seconds kKillLimit{10};
// Between two looks for processes that were forked while their parents were being killed.
constexpr std::chrono::milliseconds kKillAgain{20};
// A reader of our output that takes nothing for so long is taken for stuck.
constexpr std::chrono::seconds kReaderPatience{10};
// The same once the user wants the end now.
constexpr std::chrono::seconds kShortPatience{1};
// The stderr of a worker that has ended comes to its end soon, unless a process that it left behind holds it.
constexpr std::chrono::milliseconds kWordsPatience{300};
// For a worker with a cause of its own, after one that only tells of others: longer than a node is silent
// before it counts as lost (3 s), which is such a cause too.
constexpr std::chrono::seconds kCausePatience{5};

// The inherited variables, with `ours` in place of those of the same name, and `own` in place of both.
std::vector<std::string> merged(const std::vector<std::string>& inherited, const worker::Variables& ours,
                                const worker::Variables& own) {
  std::set<std::string> names;
  std::vector<std::string> result;
  for (const worker::Variables* variables : {&own, &ours}) {
    for (const auto& [name, value] : *variables) {
      if (!names.insert(name).second) continue;
      std::string entry = name;
      entry += '=';
      entry += value;
      result.push_back(std::move(entry));
    }
  }
  for (const std::string& entry : inherited) {
    if (names.count(entry.substr(0, entry.find('='))) == 0) result.push_back(entry);
  }
  return result;
}

// The errno of a failed exec, 0 after a good one. Once only: it empties the pipe.
int read_exec_error(int fd) {
  int cause = 0;
  return ::read(fd, &cause, sizeof cause) == static_cast<ssize_t>(sizeof cause) ? cause : 0;
}

std::vector<std::string> places_of(const RunFolder& folder) {
  std::error_code unknown;
  std::vector<std::string> places{std::filesystem::current_path(unknown).string(),
                                  temporary_folder().path.string(), "/dev/shm"};
  if (folder.exists()) places.push_back(folder.path().string());
  return places;
}

bool children_left() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

}  // namespace

LocalRunner::LocalRunner(asio::io_context& io, Reaper& reaper, const WorkerSpec& spec,
                         const RunFolder& folder, Consoles& consoles, EventLog& events, ProgressPages& pages,
                         RoundEnvironment round_environment)
    : io_(io),
      reaper_(reaper),
      spec_(spec),
      folder_(folder),
      consoles_(consoles),
      events_(events),
      pages_(pages),
      round_environment_(std::move(round_environment)),
      resources_(places_of(folder)) {}

LocalRunner::~LocalRunner() {
  // Reached with workers alive only when an error flies past: nothing may outlive the agent.
  if (children_left()) {
    for (const ProcessEntry& entry : descendants(::getpid())) ::kill(entry.pid, SIGKILL);
  }
}

void LocalRunner::start(const Attempt& attempt) {
  for (const Worker& worker : workers_) reaper_.forget(worker.pid);
  workers_.clear();
  stopping_ = false;
  ends_recorded_ = false;
  told_stopping_ = false;
  alone_ = attempt.workers.front().group_world_size == 1;
  resources_.begin();
  pumps_ = std::make_unique<async::TaskGroup>(io_.get_executor());
  folder_.create_attempt(attempt.number, static_cast<int>(attempt.workers.size()));
  pages_.make(attempt.number, static_cast<int>(attempt.workers.size()));
  environment_ = merged(spec_.environment, round_environment_(attempt), {});
  open_filtered_logs(attempt.number);
  events_.ranks_assigned(attempt.workers.front());
  for (const worker::WorkerEnv& env : attempt.workers) start_worker(attempt, env);
}

void LocalRunner::open_filtered_logs(int attempt) {
  filtered_ = {};
  if (!folder_.exists()) return;
  const std::filesystem::path folder = folder_.attempt_folder(attempt);
  const RedirectPolicy& policy = spec_.redirects;
  if (!policy.out_filters.empty()) {
    filtered_.out =
        std::make_unique<FilteredLog>((folder / "filtered_stdout.log").string(), policy.out_filters);
  }
  if (!policy.err_filters.empty()) {
    filtered_.err =
        std::make_unique<FilteredLog>((folder / "filtered_stderr.log").string(), policy.err_filters);
  }
}

void LocalRunner::start_worker(const Attempt& attempt, const worker::WorkerEnv& env) {
  worker::WorkerEnv mine = env;
  std::string rank_folder;
  if (folder_.exists()) {
    rank_folder = folder_.rank_folder(attempt.number, env.local_rank).string();
    mine.error_file = rank_folder + "/error.json";
  }
  mine.progress_page = pages_.file_of(env.local_rank);
  const std::string prefix =
      line_prefix(spec_.prefix_template, {spec_.role, env.rank, env.local_rank, spec_.hostname});
  Worker worker;
  worker.ranks = {env.local_rank, env.rank, env.role_rank, env.world_size, env.role_world_size};
  worker.error_file = mine.error_file;
  worker.streams = open_streams(io_.get_executor(), routes_of(spec_.redirects, env.local_rank), rank_folder,
                                prefix, consoles_, filtered_);
  ProcessSpec process;
  process.executable = spec_.executable;
  for (const std::string& argument : spec_.argv) {
    // The program's own name is not a template.
    process.argv.push_back(process.argv.empty()
                               ? argument
                               : substitute(argument, {{"local_rank", std::to_string(env.local_rank)}}));
  }
  const std::size_t local_rank = static_cast<std::size_t>(env.local_rank);
  process.environment =
      merged(environment_, worker::to_variables(mine),
             spec_.own_variables.empty() ? worker::Variables() : spec_.own_variables.at(local_rank));
  process.signal_mask = spec_.signal_mask;
  process.open_files = spec_.open_files;
  process.umask = spec_.umask;
  if (!spec_.cpus.empty()) process.affinity = affinity_mask(spec_.cpus.at(local_rank));
  if (worker.streams.out.child_end.valid()) process.stdout_fd = worker.streams.out.child_end.get();
  if (worker.streams.err.child_end.valid()) process.stderr_fd = worker.streams.err.child_end.get();
  const StartedProcess started = start_process(process);
  worker.pid = started.pid;
  worker.started = std::chrono::system_clock::now();
  worker.exec_error_pipe = FileDescriptor(started.exec_error_fd);
  reaper_.watch(started.pid);
  resources_.watch(started.pid);
  events_.worker_started(worker.ranks, started.pid);
  for (WorkerStream* stream : {&worker.streams.out, &worker.streams.err}) {
    stream->child_end = FileDescriptor();
    if (!stream->pump) continue;
    pumps_->start(stream->pump->read());
    pumps_->start(stream->pump->show());
  }
  spdlog::debug("started rank {} (local_rank {}) as pid {}", env.rank, env.local_rank, started.pid);
  workers_.push_back(std::move(worker));
}

awaitable<std::optional<WorkerFailure>> LocalRunner::ended() {
  for (;;) {
    std::size_t done = 0;
    for (const Worker& worker : workers_) {
      const std::optional<ProcessEnd> end = reaper_.end_of(worker.pid);
      if (end && succeeded(end->status) && worker.condemned.empty()) ++done;
    }
    if (done == workers_.size()) co_return std::nullopt;
    if (!failures().empty()) co_return co_await settled_cause();
    co_await reaper_.collected().wait();
  }
}

OutputPump* LocalRunner::speaking() {
  for (Worker& worker : workers_) {
    OutputPump* pump = worker.streams.err.pump.get();
    if (pump && pump->source_fd() >= 0 && reaper_.end_of(worker.pid)) return pump;
  }
  return nullptr;
}

awaitable<WorkerFailure> LocalRunner::settled_cause() {
  const async::Deadline causes = async::Deadline::after(kCausePatience);
  async::Deadline words = async::Deadline::after(kWordsPatience);
  std::size_t known = 0;
  for (;;) {
    const std::vector<WorkerFailure> failed = failures();
    if (failed.size() != known) words = async::Deadline::after(kWordsPatience);
    known = failed.size();
    OutputPump* pump = speaking();
    if (pump && !words.passed()) {
      co_await pump->progressed().wait_until(words.time());
      continue;
    }
    const WorkerFailure& root = root_cause(failed);
    const bool nobody_else = alone_ && !workers_left();
    if (!may_follow_from_another(root.verdict.cls) || nobody_else || causes.passed()) co_return root;
    co_await reaper_.collected().wait_until(causes.time());
  }
}

void LocalRunner::send(int signal) {
  std::set<pid_t> led;
  for (const Worker& worker : workers_) {
    if (reaper_.end_of(worker.pid)) continue;
    led.insert(worker.pid);
    ::kill(-worker.pid, signal);
    // One that is stopped would not hear of it before it is killed.
    ::kill(-worker.pid, SIGCONT);
  }
  // What workers left behind, or moved out of their group, is not told of SIGUSR1 and the like, only to end.
  const int others = signal == SIGKILL ? SIGKILL : SIGTERM;
  for (const ProcessEntry& entry : descendants(::getpid())) {
    if (!entry.zombie && led.count(entry.group) == 0) ::kill(entry.pid, others);
  }
}

awaitable<void> LocalRunner::stop(int signal, std::chrono::milliseconds grace) {
  if (!stopping_) {
    stopping_ = true;
    for (Worker& worker : workers_) worker.alive_at_stop = !reaper_.end_of(worker.pid);
  }
  if (children_left()) {
    if (!std::exchange(told_stopping_, true)) events_.stopping(signal);
    send(signal);
    const bool gone = signal != SIGKILL && co_await wait_until_gone(async::Deadline::after(grace));
    if (!gone) co_await kill_all();
  }
  co_await drain(signal == SIGKILL ? kShortPatience : kReaderPatience);
  pages_.remove_files();
  record_ends();
}

// Once for each start, though a stop may be cancelled and begun again.
void LocalRunner::record_ends() {
  if (std::exchange(ends_recorded_, true)) return;
  const std::vector<WorkerFailure> failed = failures();
  for (const Worker& worker : workers_) {
    const std::vector<WorkerFailure>::const_iterator failure =
        std::find_if(failed.begin(), failed.end(), [&](const WorkerFailure& candidate) {
          return candidate.ranks.local == worker.ranks.local && !candidate.stopped_by_agent;
        });
    const std::optional<ProcessEnd> end = reaper_.end_of(worker.pid);
    events_.worker_ended(
        {worker.ranks, worker.pid, end ? std::optional<ExitStatus>(end->status) : std::nullopt},
        failure == failed.end() ? nullptr : &*failure);
  }
}

bool LocalRunner::workers_left() const {
  return std::any_of(workers_.begin(), workers_.end(),
                     [this](const Worker& worker) { return !reaper_.end_of(worker.pid); });
}

awaitable<bool> LocalRunner::wait_until_gone(async::Deadline limit) {
  bool told_the_rest = !workers_left();
  while (children_left()) {
    if (limit.passed()) co_return false;
    if (!told_the_rest && !workers_left()) {
      // What the workers left behind may ignore the signal that they got: a shell's background jobs ignore
      // SIGINT.
      told_the_rest = true;
      send(SIGTERM);
    }
    co_await reaper_.collected().wait_until(limit.time());
  }
  co_return true;
}

awaitable<void> LocalRunner::kill_all() {
  for (const Worker& worker : workers_) {
    if (!reaper_.end_of(worker.pid)) {
      spdlog::warn("rank {} (pid {}) is still there; killing it", worker.ranks.global, worker.pid);
    }
  }
  const async::Deadline limit = async::Deadline::after(kKillLimit);
  while (children_left() && !limit.passed()) {
    send(SIGKILL);
    const async::Deadline again = async::Deadline::after(kKillAgain);
    co_await wait_until_gone(again);
  }
  if (children_left()) {
    abandoned_ = true;
    for (const ProcessEntry& entry : descendants(::getpid())) {
      spdlog::error(
          "process {} did not end {} s after SIGKILL: the kernel holds it in uninterruptible sleep; it is "
          "left behind",
          entry.pid, kKillLimit.count());
    }
  }
}

awaitable<void> LocalRunner::drain(std::chrono::seconds patience) {
  std::uint64_t taken = 0;
  const auto finished = [](const Worker& worker) {
    return (!worker.streams.out.pump || worker.streams.out.pump->finished()) &&
           (!worker.streams.err.pump || worker.streams.err.pump->finished());
  };
  async::Deadline limit = async::Deadline::after(patience);
  for (Worker& worker : workers_) {
    while (!finished(worker)) {
      const std::uint64_t now_taken = consoles_.out.written() + consoles_.err.written();
      if (now_taken != taken) limit = async::Deadline::after(patience);
      taken = now_taken;
      if (limit.passed()) {
        spdlog::warn("some output of rank {} is not shown: its reader took nothing for {} s",
                     worker.ranks.global, kReaderPatience.count());
        break;
      }
      const bool out_open = worker.streams.out.pump && !worker.streams.out.pump->finished();
      OutputPump& pump = out_open ? *worker.streams.out.pump : *worker.streams.err.pump;
      co_await pump.progressed().wait_until(limit.time());
    }
  }
  pumps_->cancel();
  co_await pumps_->join();
}

WorkerFailure LocalRunner::failure_of(Worker& worker, const ProcessEnd& end) {
  WorkerFailure failure;
  failure.ranks = worker.ranks;
  failure.pid = worker.pid;
  failure.status = end.status;
  failure.stopped_by_agent = worker.alive_at_stop && worker.condemned.empty();
  failure.condemned = worker.condemned;
  failure.stuck = worker.stuck;
  failure.when = end.when;
  failure.batch = end.batch;
  failure.moment = end.moment;
  failure.progress = pages_.reading(worker.ranks.local);
  if (worker.exec_error_pipe.valid()) {
    worker.exec_error = read_exec_error(worker.exec_error_pipe.get());
    worker.exec_error_pipe = FileDescriptor();
  }
  failure.exec_error = worker.exec_error;
  if (const std::optional<std::string> left = read_error_file(worker.error_file)) {
    failure.record = worker::parse_error_record(*left);
  }
  const bool left_one = !worker.error_file.empty() && ::access(worker.error_file.c_str(), F_OK) == 0;
  if (left_one) failure.error_file = worker.error_file;
  failure.stderr_tail = tail_of(worker.streams.err);
  failure.peak_memory_kib = end.peak_memory_kib;
  return failure;
}

// Once, and again when the worker has said more or the attempt is over. `evidence` is gathered at the first
// need.
void LocalRunner::judge_worker(Worker& worker, WorkerFailure& failure,
                               std::optional<NodeEvidence>& evidence) {
  const std::size_t words = failure.stderr_tail.size();
  if (worker.judged_words != words || worker.judged_last != ends_recorded_) {
    worker.judged_words = words;
    worker.judged_last = ends_recorded_;
    if (!evidence) evidence = resources_.look();
    std::error_code unknown;
    failure.core_dump =
        core_dump_of(failure.pid, failure.status, std::filesystem::current_path(unknown).string());
    worker.core_dump = failure.core_dump;
    worker.verdict = judge(failure, *evidence, spec_.verdict_rules);
  }
  failure.core_dump = worker.core_dump;
  failure.verdict = worker.verdict;
}

void LocalRunner::condemn(Worker& worker, const std::string& why) {
  if (!worker.condemned.empty()) return;
  worker.condemned = why;
  worker.condemned_end = ProcessEnd{Signaled{SIGKILL, false}, std::chrono::system_clock::now(),
                                    std::chrono::steady_clock::now(), reaper_.batch()};
  reaper_.collected().notify_all();
}

std::vector<LiveWorker> LocalRunner::live() const {
  std::vector<LiveWorker> live;
  if (stopping_) return live;
  for (const Worker& worker : workers_) {
    if (worker.condemned.empty() && !reaper_.end_of(worker.pid)) live.push_back({worker.ranks, worker.pid});
  }
  return live;
}

void LocalRunner::give_up(int local_rank, const std::string& why, bool held_by_kernel) {
  for (Worker& worker : workers_) {
    if (worker.ranks.local != local_rank || stopping_ || reaper_.end_of(worker.pid)) continue;
    worker.stuck = held_by_kernel;
    condemn(worker, why);
  }
}

LocalRunner::Worker* LocalRunner::owner_of(const ExpiredTimer& expired) {
  const std::optional<ProcessStat> stat = read_stat(expired.pid);
  if (!stat || stat->started != expired.process_started) return nullptr;
  for (Worker& worker : workers_) {
    if (reaper_.end_of(worker.pid)) continue;
    const std::vector<ProcessEntry> below = descendants(worker.pid);
    const bool its_own = worker.pid == expired.pid ||
                         std::any_of(below.begin(), below.end(),
                                     [&](const ProcessEntry& entry) { return entry.pid == expired.pid; });
    if (its_own) return &worker;
  }
  return nullptr;
}

void LocalRunner::end_overdue(const ExpiredTimer& expired) {
  Worker* worker = owner_of(expired);
  if (!worker) return;
  ::kill(expired.pid, expired.signal);
  condemn(*worker, "the timer '" + expired.scope + "' of process " + std::to_string(expired.pid) +
                       " ran out; it was sent " + signal_name(expired.signal));
}

std::vector<WorkerStatus> LocalRunner::statuses() const {
  std::vector<WorkerStatus> statuses;
  for (const Worker& worker : workers_) {
    WorkerStatus status;
    status.ranks = worker.ranks;
    status.pid = worker.pid;
    status.started = worker.started;
    status.condemned = worker.condemned;
    if (const std::optional<ProcessEnd> end = reaper_.end_of(worker.pid)) {
      status.end = WorkerStatus::End{end->status, end->when};
    } else if (const std::optional<ProcessStat> stat = read_stat(worker.pid)) {
      status.process_state = stat->state;
    }
    if (const std::optional<worker::ProgressReading> reading = pages_.reading(worker.ranks.local))
      status.progress = worker::to_json(*reading, std::chrono::steady_clock::now());
    statuses.push_back(std::move(status));
  }
  return statuses;
}

void LocalRunner::resize_terminals() {
  for (const Worker& worker : workers_) {
    if (match_terminal(worker.streams) && !reaper_.end_of(worker.pid)) ::kill(-worker.pid, SIGWINCH);
  }
}

std::vector<WorkerFailure> LocalRunner::failures() {
  std::vector<WorkerFailure> failed;
  std::optional<NodeEvidence> evidence;
  for (Worker& worker : workers_) {
    const std::optional<ProcessEnd> own = reaper_.end_of(worker.pid);
    std::optional<ProcessEnd> end = own;
    if (worker.condemned_end) {
      // What counts is the moment, not what it did when it was told to end.
      worker.condemned_end->status = own ? own->status : worker.condemned_end->status;
      end = worker.condemned_end;
    }
    if (!end || (!worker.condemned_end && succeeded(end->status))) continue;
    failed.push_back(failure_of(worker, *end));
    failed.back().ended = own.has_value();
    judge_worker(worker, failed.back(), evidence);
  }
  return failed;
}

}  // namespace cpprun::launcher
