#include "launcher/agent_process.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "launcher/text.hpp"
#include "launcher/vital_task.hpp"
#include "rendezvous/async/failure_of.hpp"
#include "rendezvous/error_text.hpp"
#include "rendezvous/this_host.hpp"

namespace cpprun::launcher {

using namespace boost::asio::experimental::awaitable_operators;

namespace {

// Gloo binds to what the host's own name resolves to, which on many machines is 127.0.0.1: between hosts it
// is told the interface that leads to the other nodes.
worker::Variables gloo_interface(const JobStores& stores, const std::string& node_address) {
  boost::system::error_code is_name;
  std::optional<asio::ip::address> address = stores.reached_at();
  if (!address) address = asio::ip::make_address(node_address, is_name);
  const std::string interface = is_name ? "" : rendezvous::interface_of(*address);
  if (interface.empty()) return {};
  return {{"GLOO_SOCKET_IFNAME", interface}};
}

EventSource event_source(const LaunchConfig& config, const WorkerSpec& spec) {
  return {config.run_id, spec.role, spec.hostname, config.standalone ? "c10d" : config.rdzv_backend,
          std::filesystem::path(spec.executable).filename().string()};
}

EventLog open_event_log(const LaunchConfig& config, const WorkerSpec& spec) {
  try {
    return EventLog(config.events, event_source(config, spec));
  } catch (const std::system_error& error) {
    throw UsageError(name_of("--event-log-handler", config) + ": " + error.what());
  }
}

// Null unless this job's workers were promised a timer file (torch's watchdog).
std::unique_ptr<TimerServer> serve_timers(asio::io_context& io, const std::string& path) {
  if (path.empty()) return nullptr;
  try {
    return std::make_unique<TimerServer>(io, path);
  } catch (const std::system_error& error) {
    throw UsageError(std::string("TORCHELASTIC_TIMER_FILE: ") + error.what());
  }
}

std::optional<std::string> own_master_addr(const LaunchConfig& config) {
  const bool given = config.meets_peers() && config.rdzv_backend == "static";
  return given ? std::optional<std::string>(config.endpoints.front().host) : std::nullopt;
}

// What those who ask are told of this run, as far as it does not change.
JobStatus job_status(const LaunchConfig& config, const WorkerSpec& spec, const RunFolder& folder,
                     pid_t launcher) {
  JobStatus status;
  status.version = CPPRUN_VERSION;
  status.run_id = config.run_id;
  status.program = spec.name;
  status.host = spec.hostname;
  status.launcher = launcher;
  status.agent = ::getpid();
  if (config.meets_peers()) status.rendezvous = config.rdzv_backend + " at " + meeting_points(config);
  status.max_restarts = config.max_restarts;
  status.folder = folder.path().string();
  status.started = std::chrono::system_clock::now();
  return status;
}

}  // namespace

AgentProcess::AgentProcess(const LaunchConfig& config, const std::string& interpreter, WorkerSpec spec,
                           const RunFolder& folder, const Guardianship& guardianship, const AgentSeat& seat,
                           StackTools tools)
    : config_(config),
      agent_config_{config.run_id,
                    interpreter,
                    own_master_addr(config),
                    reach_store(),
                    [this](const Attempt& attempt) { health_.begin(attempt); },
                    [this] { health_.end(); },
                    [this](std::string why) { return health_.take_stacks(std::move(why)); },
                    [this](std::vector<int> lost) { return health_.last_words(std::move(lost)); }},
      spec_(std::move(spec)),
      folder_(folder),
      events_(open_event_log(config, spec_)),
      stores_(io_, config),
      reaper_(io_),
      stop_signal_(io_, config.signals_to_handle, seat.guardian_pipe),
      consoles_{Console(io_.get_executor(), STDOUT_FILENO), Console(io_.get_executor(), STDERR_FILENO)},
      pages_(guardianship.progress_folder),
      runner_(io_, reaper_, spec_, folder_, consoles_, events_, pages_,
              [this](const Attempt& attempt) { return round_environment(attempt); }),
      timers_(serve_timers(io_, guardianship.timer_file)),
      health_(io_, config.hang_limits, runner_, pages_, events_, folder_, std::move(tools), spec_.hostname,
              interpreter),
      control_(io_, guardianship.control, job_status(config, spec_, folder, guardianship.control.launcher),
               runner_, health_),
      tasks_(io_.get_executor()) {
  // Every handler is in place: what the guardian held back may come.
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

RunResult AgentProcess::run() {
  std::exception_ptr failure;
  asio::co_spawn(io_, run_agent(), [&](std::exception_ptr error) { failure = error; });
  io_.run();
  if (failure) std::rethrow_exception(failure);
  return std::move(*result_);
}

awaitable<void> AgentProcess::run_agent() {
  tasks_.start(vital(reaper_.run()));
  tasks_.start(vital(stop_signal_.watch_signals()));
  tasks_.start(vital(stop_signal_.watch_guardian()));
  health_.start(tasks_);
  tasks_.start(vital(control_.run()));
  if (timers_) tasks_.start(vital(watch_timers()));
  if (consoles_.err.is_terminal()) tasks_.start(vital(watch_terminal()));
  std::string last_word = "the agent that led the run has ended";
  std::exception_ptr failure;
  try {
    result_ = co_await open_and_run();
    const StoppedBy* stopped = std::get_if<StoppedBy>(&*result_);
    events_.agent_ended(stopped ? "stopped by " + signal_name(stopped->signal) : std::string());
  } catch (const std::exception& error) {
    failure = std::current_exception();
    events_.agent_ended(rendezvous::error_text(error));
    last_word += ": " + rendezvous::error_text(error);
    if (agent_) failure_ = agent_->failure();
    leaves_logs_ = agent_ && agent_->has_failed();
  }
  const bool text_lost = consoles_.out.lost_text() || consoles_.err.lost_text();
  leaves_logs_ = leaves_logs_ || (text_lost && folder_.holds_output());
  if (handler_) co_await handler_->close(std::move(last_word));
  tasks_.cancel();
  co_await tasks_.join();
  if (failure) std::rethrow_exception(failure);
}

awaitable<RunResult> AgentProcess::open_and_run() {
  awaitable<std::exception_ptr> opened = async::failure_of(stores_.open());
  awaitable<void> told_to_stop = stop_signal_.wait();
  const std::variant<std::exception_ptr, std::monostate> first =
      co_await (std::move(opened) || std::move(told_to_stop));
  if (first.index() == 1) {
    const int signal = stop_signal_.take();
    spdlog::warn("received {}", signal_name(signal));
    co_return StoppedBy{signal};
  }
  if (std::get<0>(first)) std::rethrow_exception(std::get<0>(first));
  stores_.serve(tasks_);
  handler_ = stores_.make_handler();
  logged_handler_.emplace(*handler_, events_);
  agent_.emplace(agent_config_, spec_, *logged_handler_, runner_, stop_signal_, folder_);
  control_.show(*agent_);
  co_return co_await agent_->run();
}

worker::Variables AgentProcess::round_environment(const Attempt& attempt) const {
  const bool alone = attempt.workers.front().group_world_size == 1;
  if (alone || std::getenv("GLOO_SOCKET_IFNAME")) return {};
  return gloo_interface(stores_, attempt.node_address);
}

awaitable<void> AgentProcess::watch_timers() {
  for (;;) {
    const ExpiredTimer expired = co_await timers_->next_expired();
    if (runner_.owns(expired))
      co_await health_.take_stacks("a timer of process " + std::to_string(expired.pid) + " ran out");
    runner_.end_overdue(expired);
  }
}

awaitable<void> AgentProcess::watch_terminal() {
  asio::signal_set resized(io_, SIGWINCH);
  for (;;) {
    co_await resized.async_wait(asio::use_awaitable);
    runner_.resize_terminals();
  }
}

// Null where the workers go to their store themselves.
std::function<rendezvous::StoreEndpoint(const rendezvous::StoreEndpoint&)> AgentProcess::reach_store() {
  if (!config_.store_proxy) return nullptr;
  return [this](const rendezvous::StoreEndpoint& workers) { return stores_.reach(workers); };
}

}  // namespace cpprun::launcher
