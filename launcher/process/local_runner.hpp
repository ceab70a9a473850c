// Workers as processes of this machine.
#pragma once

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/agent/worker_spec.hpp"
#include "launcher/ctl/job_status.hpp"
#include "launcher/health/hang_monitor.hpp"
#include "launcher/health/progress_pages.hpp"
#include "launcher/health/resource_evidence.hpp"
#include "launcher/health/timer_table.hpp"
#include "launcher/process/log_layout.hpp"
#include "launcher/process/reaper.hpp"
#include "launcher/process/worker_runner.hpp"
#include "launcher/process/worker_streams.hpp"
#include "launcher/report/event_log.hpp"
#include "rendezvous/async/deadline.hpp"
#include "rendezvous/async/task_group.hpp"

namespace cpprun::launcher {

// The variables that a round adds to the workers' inherited environment.
using RoundEnvironment = std::function<worker::Variables(const Attempt&)>;

class LocalRunner : public WorkerRunner {
 public:
  // All arguments outlive the runner.
  LocalRunner(asio::io_context& io, Reaper& reaper, const WorkerSpec& spec, const RunFolder& folder,
              Consoles& consoles, EventLog& events, ProgressPages& pages, RoundEnvironment round_environment);
  ~LocalRunner() override;

  void start(const Attempt& attempt) override;
  awaitable<std::optional<WorkerFailure>> ended() override;
  awaitable<void> stop(int signal, std::chrono::milliseconds grace) override;
  std::vector<WorkerFailure> failures() override;
  bool abandoned() const override { return abandoned_; }

  // A process has overrun the time that it set itself: it gets its signal, and the worker that it is or
  // descends from has failed. One that is none of ours, or gone, is left alone.
  void end_overdue(const ExpiredTimer& expired);
  // The process is that of a worker here that runs.
  bool owns(const ExpiredTimer& expired) { return owner_of(expired) != nullptr; }
  // Those that run and are not yet given up; none while they are being stopped.
  std::vector<LiveWorker> live() const;
  // The worker hangs: it has failed, for this reason. `held_by_kernel`: not even SIGKILL may end it.
  void give_up(int local_rank, const std::string& why, bool held_by_kernel);
  // Those of the present attempt or the last, in the order of their local ranks.
  std::vector<WorkerStatus> statuses() const;
  // Our own terminal has another size now: the workers' pseudo-terminals get it too, and they are told.
  void resize_terminals();

 private:
  struct Worker {
    WorkerRanks ranks{};
    pid_t pid = 0;
    std::chrono::system_clock::time_point started;
    FileDescriptor exec_error_pipe;
    int exec_error = 0;
    std::string error_file;
    WorkerStreams streams;
    bool alive_at_stop = false;
    std::string condemned;  // why it has failed in our eyes, though it has not ended
    bool stuck = false;
    std::optional<ProcessEnd> condemned_end;  // for as long as it has no real one
    Verdict verdict;
    std::string core_dump;
    std::size_t judged_words =
        SIZE_MAX;              // bytes of stderr that the verdict knew; SIZE_MAX: there is none yet
    bool judged_last = false;  // after the attempt's end
  };

  void open_filtered_logs(int attempt);
  void start_worker(const Attempt& attempt, const worker::WorkerEnv& env);
  void send(int signal);
  void record_ends();
  void condemn(Worker& worker, const std::string& why);
  Worker* owner_of(const ExpiredTimer& expired);  // null: none of ours
  // Some have failed: the root cause, once they have said what they had to say and, where the first ones
  // only tell of others, a worker with a cause of its own may have followed.
  awaitable<WorkerFailure> settled_cause();
  // The stderr of a worker that has ended, where more of it is to come; else null.
  OutputPump* speaking();
  WorkerFailure failure_of(Worker& worker, const ProcessEnd& end);
  void judge_worker(Worker& worker, WorkerFailure& failure, std::optional<NodeEvidence>& evidence);
  bool workers_left() const;
  awaitable<bool> wait_until_gone(async::Deadline limit);
  awaitable<void> kill_all();
  awaitable<void> drain(std::chrono::seconds patience);

  asio::io_context& io_;
  Reaper& reaper_;
  const WorkerSpec& spec_;
  const RunFolder& folder_;
  Consoles& consoles_;
  EventLog& events_;
  ProgressPages& pages_;
  RoundEnvironment round_environment_;
  std::vector<std::string> environment_;  // inherited by the workers of the present attempt
  FilteredLogs filtered_;                 // of the attempt
  ResourceEvidence resources_;
  bool alone_ = true;  // no other node has a part in the attempt
  std::vector<Worker> workers_;
  bool stopping_ = false;
  bool ends_recorded_ = false;
  bool told_stopping_ = false;
  bool abandoned_ = false;
  std::unique_ptr<async::TaskGroup> pumps_;  // last: its tasks refer to the workers' streams
};

}  // namespace cpprun::launcher
