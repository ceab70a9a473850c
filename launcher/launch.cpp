#include "launcher/launch.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "launcher/agent/agent.hpp"
#include "launcher/dry_run.hpp"
#include "launcher/health/progress_pages.hpp"
#include "launcher/health/stuck_policy.hpp"
#include "launcher/health/timer_server.hpp"
#include "launcher/job_stores.hpp"
#include "launcher/process/guardian.hpp"
#include "launcher/process/local_runner.hpp"
#include "launcher/process/patient_write.hpp"
#include "launcher/process/topology.hpp"
#include "launcher/process/visible_device.hpp"
#include "launcher/python_path.hpp"
#include "launcher/report/own_error_file.hpp"
#include "launcher/vital_task.hpp"
#include "launcher/worker_command.hpp"
#include "rendezvous/async/failure_of.hpp"
#include "rendezvous/open_files.hpp"
#include "rendezvous/this_host.hpp"

extern char** environ;

namespace cpprun::launcher {

using namespace boost::asio::experimental::awaitable_operators;

namespace {

// A reader of stderr that takes nothing for so long will not read the report.
constexpr std::chrono::milliseconds kReportPatience{2000};

std::string own_folder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

WorkerCommand find_command_here(const LaunchConfig& config) {
  return find_command(config, {std::getenv("PATH"), std::getenv("PYTHON_EXEC"), std::getenv("VIRTUAL_ENV"),
                               std::getenv("CONDA_PREFIX"), own_folder()});
}

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional<std::string>(value) : std::nullopt;
}

std::vector<std::string> own_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry; ++entry) entries.emplace_back(*entry);
  return entries;
}

// Where AMD's variable is in use it says the same: the two together would be taken for a choice of a choice.
void show_gpus(const std::vector<int>& gpus) {
  std::string list;
  for (const int gpu : gpus) list.append(list.empty() ? "" : ",").append(std::to_string(gpu));
  ::setenv("CUDA_VISIBLE_DEVICES", list.c_str(), 1);
  if (const char* amd = std::getenv("HIP_VISIBLE_DEVICES"); amd && *amd) {
    ::setenv("HIP_VISIBLE_DEVICES", list.c_str(), 1);
  }
}

// What every worker inherits: our own environment, and the defaults that torchrun adds to it.
std::vector<std::string> worker_environment(const LaunchConfig& config) {
  if (config.nproc_per_node > 1 && !std::getenv("OMP_NUM_THREADS")) {
    spdlog::info("OMP_NUM_THREADS is not set; each worker gets 1, so that {} workers do not crowd the cores",
                 config.nproc_per_node);
    ::setenv("OMP_NUM_THREADS", "1", 1);
  }
  ::setenv("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", 0);
  ::setenv("TORCHELASTIC_SIGNALS_TO_HANDLE", config.signals_text.c_str(), 1);
  const std::string python_path = with_progress_module(variable("PYTHONPATH").value_or(""), own_folder());
  if (!python_path.empty()) ::setenv("PYTHONPATH", python_path.c_str(), 1);
  return own_environment();
}

// What is decided for each local rank before anything starts, so that a wrong wish costs nothing.
struct RankPlan {
  std::vector<worker::Variables> variables;
  std::vector<CpuSet> cpus;
};

std::vector<CpuSet> bind_ranks(const LaunchConfig& config) {
  std::vector<CpuSet> ranks =
      decide_binding({*config.numa_binding, read_topology(), own_cpus(),
                      read_gpu_nodes(variable("CUDA_VISIBLE_DEVICES")), config.nproc_per_node});
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    spdlog::debug("local rank {} runs on CPUs {}", rank, to_text(ranks[rank]));
  }
  return ranks;
}

RankPlan plan_ranks(const LaunchConfig& config) {
  RankPlan plan;
  try {
    if (config.virtual_local_rank) {
      plan.variables = one_device_each(config.nproc_per_node,
                                       {variable("CUDA_VISIBLE_DEVICES"), variable("HIP_VISIBLE_DEVICES")});
    }
    if (config.numa_binding) plan.cpus = bind_ranks(config);
  } catch (const std::invalid_argument& error) {
    throw UsageError(error.what());
  }
  return plan;
}

WorkerSpec worker_spec(const LaunchConfig& config, const WorkerCommand& command, const RankPlan& ranks,
                       const sigset_t& signal_mask) {
  WorkerSpec spec;
  spec.name = command.name;
  spec.role = config.role;
  spec.executable = command.executable;
  spec.argv = command.argv;
  spec.environment = worker_environment(config);
  spec.own_variables = ranks.variables;
  spec.cpus = ranks.cpus;
  spec.local_world_size = config.nproc_per_node;
  spec.max_restarts = config.max_restarts;
  spec.stop_grace = config.shutdown_timeout;
  spec.redirects = config.redirects;
  spec.prefix_template = config.prefix_template;
  spec.hostname = rendezvous::host_name();
  spec.signal_mask = signal_mask;
  // As they are now: this process may have more for its own connections, and select(2) in a worker counts on
  // few.
  spec.open_files = rendezvous::open_file_limits();
  return spec;
}

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

// Everything that lives as long as the agent. Parts first, the group whose tasks use them last.
class AgentProcess {
 public:
  AgentProcess(const LaunchConfig& config, const WorkerCommand& command, const RankPlan& ranks,
               const RunFolder& folder, const Guardianship& guardianship, const AgentSeat& seat)
      : config_(config),
        agent_config_{config.run_id, command.interpreter, own_master_addr(config), reach_store()},
        spec_(worker_spec(config, command, ranks, seat.original_mask)),
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
        tasks_(io_.get_executor()) {
    // Every handler is in place: what the guardian held back may come.
    sigset_t none;
    ::sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
  }

  RunResult run() {
    std::exception_ptr failure;
    asio::co_spawn(io_, run_agent(), [&](std::exception_ptr error) { failure = error; });
    io_.run();
    if (failure) std::rethrow_exception(failure);
    return std::move(*result_);
  }

  bool abandoned() const { return runner_.abandoned(); }

 private:
  awaitable<void> run_agent() {
    tasks_.start(vital(reaper_.run()));
    tasks_.start(vital(stop_signal_.watch_signals()));
    tasks_.start(vital(stop_signal_.watch_guardian()));
    if (timers_) tasks_.start(vital(watch_timers()));
    if (consoles_.err.is_terminal()) tasks_.start(vital(watch_terminal()));
    const std::chrono::milliseconds limit =
        stuck_limit(std::getenv("TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT"));
    if (limit.count() > 0) tasks_.start(vital(runner_.watch_stuck(limit)));
    std::string last_word = "the agent that led the run has ended";
    std::exception_ptr failure;
    try {
      result_ = co_await open_and_run();
      const StoppedBy* stopped = std::get_if<StoppedBy>(&*result_);
      events_.agent_ended(stopped ? "stopped by " + signal_name(stopped->signal) : std::string());
    } catch (const std::exception& error) {
      failure = std::current_exception();
      events_.agent_ended(error.what());
      last_word += std::string(": ") + error.what();
    }
    if (handler_) co_await handler_->close(std::move(last_word));
    tasks_.cancel();
    co_await tasks_.join();
    if (failure) std::rethrow_exception(failure);
  }

  awaitable<RunResult> open_and_run() {
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
    LoggedRendezvous handler(*handler_, events_);
    Agent agent(agent_config_, spec_, handler, runner_, stop_signal_, folder_);
    co_return co_await agent.run();
  }

  worker::Variables round_environment(const Attempt& attempt) const {
    const bool alone = attempt.workers.front().group_world_size == 1;
    if (alone || std::getenv("GLOO_SOCKET_IFNAME")) return {};
    return gloo_interface(stores_, attempt.node_address);
  }

  awaitable<void> watch_timers() {
    for (;;) {
      const ExpiredTimer expired = co_await timers_->next_expired();
      runner_.end_overdue(expired);
    }
  }

  awaitable<void> watch_terminal() {
    asio::signal_set resized(io_, SIGWINCH);
    for (;;) {
      co_await resized.async_wait(asio::use_awaitable);
      runner_.resize_terminals();
    }
  }

  // Null where the workers go to their store themselves.
  std::function<rendezvous::StoreEndpoint(const rendezvous::StoreEndpoint&)> reach_store() {
    if (!config_.store_proxy) return nullptr;
    return [this](const rendezvous::StoreEndpoint& workers) { return stores_.reach(workers); };
  }

  const LaunchConfig& config_;
  const AgentConfig agent_config_;
  const WorkerSpec spec_;
  const RunFolder& folder_;
  EventLog events_;
  asio::io_context io_{1};
  JobStores stores_;
  std::unique_ptr<rendezvous::RendezvousHandler> handler_;  // null until the stores are open
  Reaper reaper_;
  StopSignal stop_signal_;
  Consoles consoles_;
  ProgressPages pages_;
  LocalRunner runner_;
  std::unique_ptr<TimerServer> timers_;
  std::optional<RunResult> result_;
  async::TaskGroup tasks_;
};

int report(const RunResult& result, bool abandoned, const RunFolder& folder) {
  if (const StoppedBy* stopped = std::get_if<StoppedBy>(&result)) {
    record_own_error(own_error_file(), "Signal", "cpprun was stopped by " + signal_name(stopped->signal),
                     128 + stopped->signal);
    return 128 + stopped->signal;
  }
  const Failed* failed = std::get_if<Failed>(&result);
  if (!failed) return abandoned ? kWorkersFailed : kGood;
  std::string text = "\n";
  text += to_text(failed->report);
  spdlog::default_logger()->flush();
  write_patiently(STDERR_FILENO, text, kReportPatience);  // failure.json says the same
  record_own_failure(own_error_file(), failed->report);
  if (folder.exists()) spdlog::info("the logs are in {}", folder.path().string());
  return kWorkersFailed;
}

RunFolder plan_run_folder(const LaunchConfig& config) {
  if (!config.redirects.files) return RunFolder::none();
  try {
    return RunFolder::plan(config.log_dir, config.run_id);
  } catch (const std::system_error& error) {
    throw UsageError(error.what());
  }
}

// In the agent, when a guardian already knows what to remove.
bool make_run_folder(const RunFolder& folder, const LaunchConfig& config) {
  try {
    folder.make();
    return true;
  } catch (const std::system_error& error) {
    const std::string option = config.log_dir ? name_of("--log-dir", config) + ": " : "";
    fail("UsageError", option + error.what(), kWrongUsage);
    spdlog::default_logger()->flush();
    return false;
  }
}

// Empty unless TORCHELASTIC_ENABLE_FILE_TIMER asks for a server of timers.
std::string timer_file() {
  if (variable("TORCHELASTIC_ENABLE_FILE_TIMER") != "1") return "";
  const std::string named = variable("TORCHELASTIC_TIMER_FILE").value_or("");
  return named.empty() ? temporary_timer_file() : named;
}

void warn_of_health_check() {
  const std::optional<std::string> port = variable("TORCHELASTIC_HEALTH_CHECK_PORT");
  if (port)
    spdlog::warn("No health check server started: TORCHELASTIC_HEALTH_CHECK_PORT={} has no effect", *port);
}

int print_dry_run(const LaunchConfig& config, const WorkerCommand& command, const RankPlan& ranks,
                  std::vector<std::string> inherited) {
  std::error_code unknown;
  DryRun plan;
  plan.inherited = std::move(inherited);
  plan.spec = worker_spec(config, command, ranks, {});
  plan.folder = std::filesystem::current_path(unknown).string();
  plan.temporary_folder = std::filesystem::temp_directory_path(unknown).string();
  plan.progress_folder = ProgressPages::plan_folder("XXXXXXXX");
  const bool written = std::fputs(to_text(plan, config).c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  return written ? kGood : kSystemRefused;
}

int run_agent_process(const LaunchConfig& config, const WorkerCommand& command, const RankPlan& ranks,
                      const RunFolder& folder, const Guardianship& guardianship, const AgentSeat& seat) {
  if (!make_run_folder(folder, config)) return kWrongUsage;
  spdlog::info("{}{}", describe(config),
               command.interpreter.empty() ? "" : ", Python " + command.interpreter);
  warn_of_health_check();
  const std::string& timers = guardianship.timer_file;
  if (!timers.empty()) ::setenv("TORCHELASTIC_TIMER_FILE", timers.c_str(), 1);  // for the workers
  bool keep_logs = false;
  int code = kGood;
  try {
    AgentProcess agent(config, command, ranks, folder, guardianship, seat);
    const RunResult result = agent.run();
    keep_logs = std::holds_alternative<Failed>(result);
    code = report(result, agent.abandoned(), folder);
  } catch (const UsageError& error) {
    code = fail("UsageError", error.what(), kWrongUsage);
  } catch (const rendezvous::RendezvousError& error) {
    code = fail("RendezvousError", error.what(), kRendezvousFailed);
  } catch (const std::exception& error) {
    code = fail("SystemError", error.what(), kSystemRefused);
  }
  if (!keep_logs) folder.discard();
  spdlog::default_logger()->flush();
  return code;
}

}  // namespace

int launch(const LaunchConfig& config) {
  const WorkerCommand command = find_command_here(config);
  const std::vector<std::string> inherited = own_environment();
  if (!config.gpus.empty()) show_gpus(config.gpus);
  const RankPlan ranks = plan_ranks(config);
  for (const std::string& notice : config.notices) spdlog::warn("{}", notice);
  if (config.dry_run) return print_dry_run(config, command, ranks, inherited);
  const RunFolder folder = plan_run_folder(config);
  const Guardianship guardianship{folder.temporary() ? folder.path().string() : std::string(),
                                  ProgressPages::plan_folder(random_suffix()), timer_file()};
  return run_guarded(guardianship, [&](const AgentSeat& seat) {
    return run_agent_process(config, command, ranks, folder, guardianship, seat);
  });
}

}  // namespace cpprun::launcher
