#include "launcher/dry_run.hpp"

#include <algorithm>
#include <filesystem>
#include <map>

#include "launcher/health/progress_pages.hpp"
#include "launcher/process/log_layout.hpp"
#include "launcher/text.hpp"
#include "worker_runtime/contract/worker_env.hpp"

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;

const std::string kFreePort = "<a free port>";
const std::string kLoopback = "127.0.0.1";

std::string count(int n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

std::string seconds(std::chrono::milliseconds time) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s";
}

// The run's folder, with X for the letters that make it unlike any other.
std::string run_folder(const DryRun& plan, const LaunchConfig& config) {
  if (!config.redirects.files) return "";
  if (!config.log_dir) return (from_root(plan.temporary_folder) / "cpprun_XXXXXXXX").string();
  return (from_root(*config.log_dir) / (folder_name(config.run_id) + "_XXXXXXXX")).string();
}

std::string rendezvous_line(const LaunchConfig& config) {
  std::string port = config.master_port.value_or(0) == 0 ? kFreePort : std::to_string(*config.master_port);
  if (config.standalone) return "none: one node, a store on 127.0.0.1:" + port;
  std::string text = config.rdzv_backend;
  if (config.meets_peers()) {
    text.append(" at ").append(meeting_points(config));
  } else {
    text += " at " + config.master_addr + ":" + port;
  }
  if (config.secret) text += ", with a secret";
  if (config.local_addr) text += ", this node is " + *config.local_addr;
  for (const auto& [key, value] : config.rdzv_settings) {
    text.append(", ").append(key).append("=").append(value);
  }
  return text;
}

// Names whose values come with the rendezvous: the other nodes have a say in them.
bool decided_by_nodes(const std::string& name, const LaunchConfig& config) {
  if (name == "CPPRUN_RANK0_ADDR" && config.meets_peers()) return config.rdzv_backend != "static";
  if (name == "MASTER_ADDR" || name == "MASTER_PORT") {
    if (config.store_proxy) return false;
    return config.meets_peers() && config.rdzv_backend != "static";
  }
  if (config.max_nodes == 1) return false;
  return name == "RANK" || name == "WORLD_SIZE" || name == "GROUP_RANK" || name == "GROUP_WORLD_SIZE" ||
         name == "ROLE_RANK" || name == "ROLE_WORLD_SIZE";
}

std::string shown_value(const std::string& name, const std::string& value, const LaunchConfig& config) {
  if (decided_by_nodes(name, config)) return "<by rendezvous>";
  if (name == "MASTER_PORT" && value == "0") return kFreePort;
  return value == kRandomRunId ? value : shell_quoted(value);
}

worker::Variables own_variables(const DryRun& plan, const LaunchConfig& config, int local_rank,
                                const std::string& error_file) {
  worker::WorkerEnv env;
  env.rank = env.local_rank = env.role_rank = local_rank;
  env.world_size = env.local_world_size = env.role_world_size = plan.spec.local_world_size;
  env.role_name = plan.spec.role;
  const bool several = config.meets_peers();
  env.master_addr = config.keeps_to_itself() ? kLoopback : config.master_addr;
  if (several) env.master_addr = config.endpoints.front().host;
  env.master_port = several ? *config.endpoints.front().port : config.master_port.value_or(0);
  if (config.store_proxy) env.rank0_addr = env.master_addr;
  if (config.store_proxy && several) {
    env.master_addr = kLoopback;
    env.master_port = 0;
  }
  env.max_restarts = plan.spec.max_restarts;
  env.run_id = config.run_id;
  env.use_agent_store = true;
  env.error_file = error_file;
  env.progress_page = ProgressPages::page_file(plan.progress_folder, 0, local_rank);
  worker::Variables variables = worker::to_variables(env);
  if (plan.spec.own_variables.empty()) return variables;
  for (const std::pair<std::string, std::string>& own :
       plan.spec.own_variables.at(static_cast<std::size_t>(local_rank))) {
    const worker::Variables::iterator same = std::find_if(
        variables.begin(), variables.end(),
        [&own](const std::pair<std::string, std::string>& given) { return given.first == own.first; });
    if (same == variables.end()) {
      variables.push_back(own);
    } else {
      same->second = own.second;
    }
  }
  return variables;
}

// What a worker's environment has and ours has not, or otherwise; the worker's own first.
worker::Variables changed_variables(const DryRun& plan, worker::Variables own) {
  std::map<std::string, std::string> inherited;
  const auto parts = [](const std::string& entry) {
    const std::size_t equals = entry.find('=');
    return std::pair<std::string, std::string>(entry.substr(0, equals), entry.substr(equals + 1));
  };
  for (const std::string& entry : plan.inherited) inherited.insert(parts(entry));
  std::map<std::string, std::string> added;
  for (const std::string& entry : plan.spec.environment) {
    const auto [name, value] = parts(entry);
    const std::map<std::string, std::string>::const_iterator before = inherited.find(name);
    if (before == inherited.end() || before->second != value) added[name] = value;
  }
  for (const auto& [name, value] : own) added.erase(name);
  own.insert(own.end(), added.begin(), added.end());
  return own;
}

std::string command_line(const DryRun& plan, int local_rank) {
  std::string line = shell_quoted(plan.spec.executable);
  for (std::size_t i = 1; i < plan.spec.argv.size(); ++i) {
    line += " " + shell_quoted(substitute(plan.spec.argv[i], {{"local_rank", std::to_string(local_rank)}}));
  }
  return line;
}

// `filters`: lines with one of them are written a second time.
std::string destination(const StreamRoute& route, const std::string& file, const std::string& prefix,
                        const std::vector<std::string>& filters) {
  if (!route.file) return route.console ? "shown" : "dropped";
  if (!route.console) return file;
  std::string text = file + ", and shown with the prefix " + shell_quoted(prefix);
  for (std::size_t i = 0; i < filters.size(); ++i) {
    text += (i == 0 ? ", lines also filtered by " : ", ") + shell_quoted(filters[i]);
  }
  return text;
}

std::string rank_text(const DryRun& plan, const LaunchConfig& config, int local_rank) {
  const std::string root = run_folder(plan, config);
  const std::string folder =
      root.empty() ? "" : (fs::path(root) / "attempt_0" / std::to_string(local_rank)).string();
  const WorkerRoutes routes = routes_of(plan.spec.redirects, local_rank);
  const std::string prefix =
      line_prefix(plan.spec.prefix_template, {plan.spec.role, local_rank, local_rank, plan.spec.hostname});
  std::string text = "\nlocal rank " + std::to_string(local_rank) + "\n";
  text += "  command: " + command_line(plan, local_rank) + "\n";
  text += "  folder:  " + plan.folder + "\n";
  if (!plan.spec.cpus.empty()) {
    text += "  cpus:    " + to_text(plan.spec.cpus.at(static_cast<std::size_t>(local_rank))) + "\n";
  }
  const RedirectPolicy& redirects = plan.spec.redirects;
  text +=
      "  stdout:  " + destination(routes.out, folder + "/stdout.log", prefix, redirects.out_filters) + "\n";
  text +=
      "  stderr:  " + destination(routes.err, folder + "/stderr.log", prefix, redirects.err_filters) + "\n";
  text += "  environment, beside what is inherited:\n";
  const worker::Variables own =
      own_variables(plan, config, local_rank, folder.empty() ? "" : folder + "/error.json");
  for (const auto& [name, value] : changed_variables(plan, own)) {
    text += "    " + name + "=" + shown_value(name, value, config) + "\n";
  }
  return text;
}

}  // namespace

std::string to_text(const DryRun& plan, const LaunchConfig& config) {
  const std::string nodes = config.min_nodes == config.max_nodes
                                ? count(config.max_nodes, "node")
                                : std::to_string(config.min_nodes) + " to " + count(config.max_nodes, "node");
  std::string text = "Nothing is started. cpprun would run:\n\n";
  text += "run:        " + config.run_id + "\n";
  text += "workers:    " + count(plan.spec.local_world_size, "worker") + " a node, " + nodes + ", role " +
          config.role + "\n";
  text += "restarts:   " + std::to_string(plan.spec.max_restarts) + "\n";
  text += "rendezvous: " + rendezvous_line(config) + "\n";
  text += "stop:       by " + config.signals_text + "; SIGKILL after " + seconds(plan.spec.stop_grace) + "\n";
  if (config.hang_limits.any()) text += "hangs:      " + to_text(config.hang_limits) + "\n";
  const std::string root = run_folder(plan, config);
  text += "logs:       " + (root.empty() ? "none" : root) +
          (root.empty() || config.log_dir ? "" : ", kept after a failure only") + "\n";
  for (int rank = 0; rank < plan.spec.local_world_size; ++rank) text += rank_text(plan, config, rank);
  return text;
}

}  // namespace cpprun::launcher
