// --event-log-handler: writes what happens to a job as JSON lines, to stderr or to a file.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "launcher/report/event.hpp"
#include "launcher/report/failure_report.hpp"
#include "rendezvous/rendezvous_handler.hpp"
#include "worker_runtime/contract/worker_env.hpp"

namespace cpprun::launcher {

class EventLog {
 public:
  // Throws std::system_error naming the file that cannot be opened.
  EventLog(const EventDestination& destination, EventSource source);
  // Writes what a slow reader of stderr has not taken yet, within a limit.
  ~EventLog();
  EventLog(const EventLog&) = delete;
  EventLog& operator=(const EventLog&) = delete;

  // A round was joined. Written once it is known which start of the workers it was for.
  void rendezvous_joined(const rendezvous::RendezvousInfo& info, std::chrono::steady_clock::duration took);
  // `env` is that of any worker of the attempt.
  void ranks_assigned(const worker::WorkerEnv& env);
  void worker_started(const WorkerRanks& ranks, pid_t pid);
  // `failure` is null for one that did not fail by itself: it ended well, or was ended by the agent.
  void worker_ended(const EventWorker& worker, const WorkerFailure* failure);
  // A worker hangs, in the agent's eyes.
  void hang_found(const WorkerRanks& ranks, pid_t pid, const std::string& what);
  // Stacks of all workers of this node are on disk.
  void stacks_taken(const std::string& path);
  // The first signal goes to the workers, or to what they left behind.
  void stopping(int signal);
  // `error` is empty when the agent did its work to the end, whatever became of the workers.
  void agent_ended(const std::string& error);

 private:
  using SteadyTime = std::chrono::steady_clock::time_point;

  bool on() const { return fd_ >= 0; }
  Event event(const char* state) const;
  void write(const Event& event);
  void write_joined();

  EventSource source_;
  bool console_;
  int fd_ = -1;
  std::string pending_;  // stderr's reader is slow
  SteadyTime began_;
  SteadyTime joined_at_;
  std::optional<Event> joined_;  // not written yet
  std::optional<int> group_rank_;
  std::optional<int> group_world_size_;
  int restarts_ = 0;
};

// Tells the log of the rounds that `inner` joins. Both outlive it.
class LoggedRendezvous : public rendezvous::RendezvousHandler {
 public:
  LoggedRendezvous(rendezvous::RendezvousHandler& inner, EventLog& log) : inner_(inner), log_(log) {}
  awaitable<std::optional<rendezvous::RendezvousInfo>> next_rendezvous() override;
  awaitable<rendezvous::RoundEvent> round_ended() override { return inner_.round_ended(); }
  awaitable<rendezvous::FinishEvent> finish() override { return inner_.finish(); }
  awaitable<async::Deadline> fenced_before(async::Deadline limit) override {
    return inner_.fenced_before(limit);
  }
  void end_round(rendezvous::RoundEnd wanted) override { inner_.end_round(std::move(wanted)); }
  awaitable<rendezvous::RoundEnd> settled() override { return inner_.settled(); }
  void leave(rendezvous::RoundEnd wanted) override { inner_.leave(std::move(wanted)); }
  awaitable<void> close(std::string why) override { return inner_.close(std::move(why)); }

 private:
  rendezvous::RendezvousHandler& inner_;
  EventLog& log_;
};

}  // namespace cpprun::launcher
