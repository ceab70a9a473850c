#include "launcher/report/event_log.hpp"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "launcher/process/patient_write.hpp"

namespace cpprun::launcher {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kMostPending = 256 * 1024;
constexpr milliseconds kLastPatience{1000};

std::string as_message(const std::string& text) {
  const nlohmann::json object = {{"message", text}};
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The error record where the worker left one, as torchrun writes it.
std::string raw_error(const WorkerFailure& failure) {
  if (failure.record) return worker::to_json(*failure.record);
  return as_message(failure_message(failure));
}

}  // namespace

EventLog::EventLog(const EventDestination& destination, EventSource source)
    : source_(std::move(source)),
      console_(destination.console),
      began_(steady_clock::now()),
      joined_at_(began_) {
  if (console_) fd_ = STDERR_FILENO;
  if (destination.file.empty()) return;
  // A FIFO that nobody reads is refused rather than waited for.
  fd_ = ::open(destination.file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw std::system_error(errno, std::generic_category(), "cannot open the event log " + destination.file);
  }
}

EventLog::~EventLog() {
  if (console_) write_patiently(fd_, pending_, kLastPatience);
  if (fd_ >= 0 && !console_) ::close(fd_);
}

Event EventLog::event(const char* state) const {
  Event event;
  event.state = state;
  event.when = std::chrono::system_clock::now();
  event.total_run_time = std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - began_);
  event.group_rank = group_rank_;
  event.group_world_size = group_world_size_;
  event.agent_restarts = restarts_;
  return event;
}

void EventLog::write(const Event& event) {
  if (!on()) return;
  const std::string line = to_json(source_, event) + "\n";
  if (console_) {
    if (pending_.size() < kMostPending) pending_ += line;
    pending_.erase(0, write_patiently(fd_, pending_, milliseconds::zero()));
    return;
  }
  ssize_t n;
  do {
    n = ::write(fd_, line.data(), line.size());
  } while (n < 0 && errno == EINTR);
  if (n == static_cast<ssize_t>(line.size())) return;
  spdlog::error("cannot write the event log: {}; it gets no further events",
                n < 0 ? std::generic_category().message(errno) : "it took a part of a line only");
  ::close(fd_);
  fd_ = -1;
}

void EventLog::rendezvous_joined(const rendezvous::RendezvousInfo& info, steady_clock::duration took) {
  group_rank_ = info.group_rank;
  group_world_size_ = info.group_world_size;
  joined_at_ = steady_clock::now();
  joined_ = event("RENDEZVOUS");
  joined_->duration = took;
}

void EventLog::write_joined() {
  if (!joined_) return;
  joined_->agent_restarts = restarts_;
  write(*joined_);
  joined_.reset();
}

void EventLog::ranks_assigned(const worker::WorkerEnv& env) {
  restarts_ = env.restart_count;
  group_rank_ = env.group_rank;
  group_world_size_ = env.group_world_size;
  write_joined();
  Event assigned = event("ASSIGN_WORKER_RANKS");
  assigned.duration = steady_clock::now() - joined_at_;
  write(assigned);
}

void EventLog::worker_started(const WorkerRanks& ranks, pid_t pid) {
  Event started = event("START");
  started.worker = EventWorker{ranks, pid, std::nullopt};
  write(started);
}

void EventLog::worker_ended(const EventWorker& worker, const WorkerFailure* failure) {
  const bool well = worker.status && succeeded(*worker.status);
  const char* state = failure ? "FAILED" : well ? "SUCCEEDED" : "TERMINATED";
  Event ended = event(state);
  ended.worker = worker;
  if (failure) ended.raw_error = raw_error(*failure);
  write(ended);
}

void EventLog::hang_found(const WorkerRanks& ranks, pid_t pid, const std::string& what) {
  Event found = event("HANG");
  found.worker = EventWorker{ranks, pid, std::nullopt};
  found.raw_error = as_message(what);
  write(found);
}

void EventLog::stacks_taken(const std::string& path) {
  Event taken = event("STACKS");
  taken.raw_error = as_message(path);
  write(taken);
}

void EventLog::stopping(int signal) {
  Event stopping = event("STOPPING");
  stopping.raw_error = as_message(signal_name(signal));
  write(stopping);
}

void EventLog::agent_ended(const std::string& error) {
  write_joined();
  Event ended = event(error.empty() ? "SUCCEEDED" : "FAILED");
  ended.raw_error = error;
  write(ended);
}

awaitable<std::optional<rendezvous::RendezvousInfo>> LoggedRendezvous::next_rendezvous() {
  const steady_clock::time_point began = steady_clock::now();
  const std::optional<rendezvous::RendezvousInfo> info = co_await inner_.next_rendezvous();
  if (info) log_.rendezvous_joined(*info, steady_clock::now() - began);
  co_return info;
}

}  // namespace cpprun::launcher
