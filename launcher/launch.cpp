#include "launcher/launch.hpp"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "launcher/agent_process.hpp"
#include "launcher/dry_run.hpp"
#include "launcher/health/progress_pages.hpp"
#include "launcher/health/timer_server.hpp"
#include "launcher/process/guardian.hpp"
#include "launcher/process/patient_write.hpp"
#include "launcher/process/temporary_folder.hpp"
#include "launcher/process/topology.hpp"
#include "launcher/process/visible_device.hpp"
#include "launcher/python_path.hpp"
#include "launcher/report/failure_files.hpp"
#include "launcher/report/own_error_file.hpp"
#include "launcher/text.hpp"
#include "launcher/worker_command.hpp"
#include "rendezvous/error_text.hpp"
#include "rendezvous/open_files.hpp"
#include "rendezvous/print_text.hpp"
#include "rendezvous/this_host.hpp"

extern char** environ;

namespace cpprun::launcher {

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
                       const AgentSeat& seat) {
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
  spec.verdict_rules = config.verdict_rules;
  spec.signal_mask = seat.original_mask;
  spec.umask = seat.original_umask;
  // As they are now: this process may have more for its own connections, and select(2) in a worker counts on
  // few.
  spec.open_files = rendezvous::open_file_limits();
  return spec;
}

void print_report(const FailureReport& report) {
  spdlog::default_logger()->flush();
  write_patiently(STDERR_FILENO, "\n" + to_text(report), kReportPatience);  // failure.json says the same
}

void name_logs(const RunFolder& folder, bool failed) {
  if (!folder.exists()) return;
  const std::string path = folder.path().string();
  const std::string how =
      failed ? "; `cpprunctl explain " + shell_quoted(path) + "` explains the failure" : "";
  spdlog::info("the logs are in {}{}", path, how);
}

int report(const RunResult& result, bool abandoned) {
  if (const StoppedBy* stopped = std::get_if<StoppedBy>(&result)) {
    record_own_error(own_error_file(), "Signal", "cpprun was stopped by " + signal_name(stopped->signal),
                     128 + stopped->signal);
    return 128 + stopped->signal;
  }
  const Failed* failed = std::get_if<Failed>(&result);
  if (!failed) return abandoned ? kWorkersFailed : kGood;
  print_report(failed->report);
  record_own_failure(own_error_file(), failed->report);
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
  plan.temporary_folder = temporary_folder().path.string();
  plan.progress_folder = ProgressPages::plan_folder("XXXXXXXX");
  return rendezvous::print_text(to_text(plan, config)) ? kGood : kSystemRefused;
}

int run_agent_process(const LaunchConfig& config, const WorkerCommand& command, const RankPlan& ranks,
                      const RunFolder& folder, const Guardianship& guardianship, const AgentSeat& seat) {
  if (!make_run_folder(folder, config)) return kWrongUsage;
  spdlog::info("{}{}", describe(config),
               command.interpreter.empty() ? "" : ", Python " + command.interpreter);
  warn_of_health_check();
  const std::string& timers = guardianship.timer_file;
  if (!timers.empty()) ::setenv("TORCHELASTIC_TIMER_FILE", timers.c_str(), 1);  // for the workers
  bool failed = false;
  int code = kGood;
  std::optional<AgentProcess> agent;
  // An error ended the run after an attempt that failed, and that tells more of it.
  const auto print_last_failure = [&] {
    if (agent && agent->failure()) print_report(*agent->failure());
  };
  try {
    WorkerSpec spec = worker_spec(config, command, ranks, seat);
    rendezvous::raise_open_file_limit();  // pipes and pages of many workers, connections of many agents
    StackTools tools = find_stack_tools(own_folder(), spec.environment, spec.hostname);
    agent.emplace(config, command.interpreter, std::move(spec), folder, guardianship, seat, std::move(tools));
    const RunResult result = agent->run();
    failed = std::holds_alternative<Failed>(result);
    code = report(result, agent->abandoned());
  } catch (const UsageError& error) {
    code = fail("UsageError", error.what(), kWrongUsage);
  } catch (const rendezvous::RendezvousError& error) {
    print_last_failure();
    code = fail("RendezvousError", error.what(), kRendezvousFailed);
  } catch (const std::exception& error) {
    print_last_failure();
    code = fail("SystemError", rendezvous::error_text(error), kSystemRefused);
  }
  failed = failed || (agent && agent->failure());
  const bool keep_logs = failed || (agent && agent->leaves_logs());
  agent.reset();
  if (keep_logs) {
    name_logs(folder, failed);
  } else {
    folder.discard();
  }
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
  Guardianship guardianship;
  if (folder.temporary()) guardianship.temporary_folder = folder.path().string();
  guardianship.progress_folder = ProgressPages::plan_folder(random_suffix());
  guardianship.timer_file = timer_file();
  guardianship.control = plan_control(list_of_jobs(), folder, ::getpid());
  guardianship.agent_ended = [&](pid_t agent, const ExitStatus& status) {
    const FailureReport report{command.name, command.interpreter, rendezvous::host_name(), config.run_id};
    write_agent_end(folder, report, agent, status);
  };
  return run_guarded(guardianship, [&](const AgentSeat& seat) {
    return run_agent_process(config, command, ranks, folder, guardianship, seat);
  });
}

}  // namespace cpprun::launcher
