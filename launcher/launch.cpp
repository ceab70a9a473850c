#include "launcher/launch.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "launcher/agent/agent.hpp"
#include "launcher/dry_run.hpp"
#include "launcher/process/guardian.hpp"
#include "launcher/process/local_runner.hpp"
#include "launcher/process/patient_write.hpp"
#include "launcher/worker_command.hpp"
#include "rendezvous/static_rendezvous.hpp"
#include "rendezvous/store/store_server.hpp"

extern char** environ;

namespace cpprun::launcher {
namespace {

// A reader of stderr that takes nothing for so long will not read the report.
constexpr std::chrono::milliseconds kReportPatience{2000};

std::string own_folder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

std::string own_hostname() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "localhost";
}

WorkerCommand find_command_here(const LaunchConfig& config) {
  return find_command(config, {std::getenv("PATH"), std::getenv("PYTHON_EXEC"), std::getenv("VIRTUAL_ENV"),
                               std::getenv("CONDA_PREFIX"), own_folder()});
}

std::vector<std::string> own_environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry; ++entry) entries.emplace_back(*entry);
  return entries;
}

// Where AMD's variable is in use it says the same: the two together would be taken for a choice of a choice.
void show_gpus(const std::vector<int>& gpus) {
  std::string list;
  for (const int gpu : gpus) list += (list.empty() ? "" : ",") + std::to_string(gpu);
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
  if (!config.gpus.empty()) show_gpus(config.gpus);
  return own_environment();
}

WorkerSpec worker_spec(const LaunchConfig& config, const WorkerCommand& command,
                       const sigset_t& signal_mask) {
  WorkerSpec spec;
  spec.name = command.name;
  spec.role = config.role;
  spec.executable = command.executable;
  spec.argv = command.argv;
  spec.environment = worker_environment(config);
  spec.local_world_size = config.nproc_per_node;
  spec.max_restarts = config.max_restarts;
  spec.stop_grace = config.shutdown_timeout;
  spec.redirects = config.redirects;
  spec.prefix_template = config.prefix_template;
  spec.hostname = own_hostname();
  spec.signal_mask = signal_mask;
  return spec;
}

asio::ip::tcp::acceptor bind_worker_store(asio::io_context& io, const LaunchConfig& config) {
  std::optional<asio::ip::address> address;  // every interface, unless nobody outside may come
  if (config.standalone) address = asio::ip::address_v4::loopback();
  return store::bind_acceptor(io, address, config.master_port.value_or(0));
}

// Everything that lives as long as the agent. Parts first, the group whose tasks use them last.
class AgentProcess {
 public:
  AgentProcess(const LaunchConfig& config, const WorkerCommand& command, const RunFolder& folder,
               const AgentSeat& seat)
      : config_(config),
        agent_config_{config.run_id, command.interpreter},
        spec_(worker_spec(config, command, seat.original_mask)),
        folder_(folder),
        store_(bind_worker_store(io_, config)),
        reaper_(io_),
        stop_signal_(io_, config.signals_to_handle, seat.guardian_pipe),
        consoles_{Console(io_.get_executor(), STDOUT_FILENO), Console(io_.get_executor(), STDERR_FILENO)},
        runner_(io_, reaper_, spec_, folder_, consoles_),
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
    tasks_.start(store_.run());
    tasks_.start(reaper_.run());
    tasks_.start(stop_signal_.watch_signals());
    tasks_.start(stop_signal_.watch_guardian());
    Agent agent(agent_config_, spec_, handler_, runner_, stop_signal_, folder_,
                [this] { return open_store(); });
    std::exception_ptr failure;
    try {
      result_ = co_await agent.run();
    } catch (...) {
      failure = std::current_exception();
    }
    tasks_.cancel();
    co_await tasks_.join();
    if (failure) std::rethrow_exception(failure);
  }

  StoreEndpoint open_store() {
    store_.start_empty_table();
    return {config_.standalone ? "127.0.0.1" : config_.master_addr, store_.port()};
  }

  const LaunchConfig& config_;
  const AgentConfig agent_config_;
  const WorkerSpec spec_;
  const RunFolder& folder_;
  asio::io_context io_{1};
  store::StoreServer store_;
  rendezvous::StaticRendezvous handler_;
  Reaper reaper_;
  StopSignal stop_signal_;
  Consoles consoles_;
  LocalRunner runner_;
  std::optional<RunResult> result_;
  async::TaskGroup tasks_;
};

int report(const RunResult& result, bool abandoned, const RunFolder& folder) {
  if (const StoppedBy* stopped = std::get_if<StoppedBy>(&result)) return 128 + stopped->signal;
  const Failed* failed = std::get_if<Failed>(&result);
  if (!failed) return abandoned ? kWorkersFailed : kGood;
  std::string text = "\n";
  text += to_text(failed->report);
  spdlog::default_logger()->flush();
  write_patiently(STDERR_FILENO, text, kReportPatience);  // failure.json says the same
  if (folder.exists()) spdlog::info("the logs are in {}", folder.path().string());
  return kWorkersFailed;
}

RunFolder make_run_folder(const LaunchConfig& config) {
  if (!config.redirects.files) return RunFolder::none();
  try {
    return RunFolder::create(config.log_dir, config.run_id);
  } catch (const std::exception& error) {
    throw UsageError(error.what());
  }
}

int print_dry_run(const LaunchConfig& config, const WorkerCommand& command) {
  std::error_code unknown;
  DryRun plan;
  plan.inherited = own_environment();
  plan.spec = worker_spec(config, command, {});
  plan.folder = std::filesystem::current_path(unknown).string();
  plan.temporary_folder = std::filesystem::temp_directory_path(unknown).string();
  std::fputs(to_text(plan, config).c_str(), stdout);
  return std::fflush(stdout) == 0 ? kGood : kSystemRefused;
}

int run_agent_process(const LaunchConfig& config, const WorkerCommand& command, const RunFolder& folder,
                      const AgentSeat& seat) {
  bool keep_logs = false;
  int code = kGood;
  try {
    AgentProcess agent(config, command, folder, seat);
    const RunResult result = agent.run();
    keep_logs = std::holds_alternative<Failed>(result);
    code = report(result, agent.abandoned(), folder);
  } catch (const rendezvous::RendezvousError& error) {
    spdlog::error("{}", error.what());
    code = kRendezvousFailed;
  } catch (const std::system_error& error) {
    spdlog::error("{}", error.what());
    code = kSystemRefused;
  }
  if (!keep_logs) folder.discard();
  spdlog::default_logger()->flush();
  return code;
}

}  // namespace

int launch(const LaunchConfig& config) {
  const WorkerCommand command = find_command_here(config);
  if (config.dry_run) return print_dry_run(config, command);
  const RunFolder folder = make_run_folder(config);
  spdlog::info("{}{}", describe(config),
               command.interpreter.empty() ? "" : ", Python " + command.interpreter);
  const Guardianship guardianship{folder.temporary() ? folder.path().string() : std::string()};
  try {
    return run_guarded(guardianship, [&](const AgentSeat& seat) {
      return run_agent_process(config, command, folder, seat);
    });
  } catch (const std::system_error&) {
    folder.discard();
    throw;
  }
}

}  // namespace cpprun::launcher
