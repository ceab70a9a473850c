#include "launcher/cli.hpp"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <map>
#include <random>

#include "launcher/cli_notices.hpp"
#include "launcher/cli_options.hpp"
#include "launcher/completion.hpp"
#include "launcher/device_count.hpp"
#include "launcher/help_text.hpp"
#include "launcher/process/exit_status.hpp"
#include "launcher/process/line_filter.hpp"
#include "launcher/text.hpp"
#include "rendezvous/etcd/etcd_options.hpp"

namespace cpprun::launcher {
namespace {

constexpr std::uint16_t kDefaultMasterPort = 29500;
constexpr std::uint16_t kDefaultRendezvousPort = 29400;
constexpr std::uint16_t kDefaultEtcdPort = 2379;
constexpr std::size_t kMostEndpoints = 16;
// What --shutdown-timeout falls back on.
constexpr const char* kShutdownTimeout = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT";
constexpr const char* kStuckTimeout = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT";
constexpr std::size_t kLongestRunId = 4096;
constexpr int kMostWorkers = 10'000;  // of one node; more is a slip of the keyboard

[[noreturn]] void refuse(const std::string& option, const std::string& value, const std::string& expected) {
  throw BadValue{option, "'" + value + "' is not " + expected, value};
}

int number(const std::string& option, const std::string& text, int lowest, int highest = 1'000'000'000) {
  const std::optional<int> value = whole_number(trim(text));
  if (!value || *value < lowest || *value > highest) {
    refuse(option, text,
           "a whole number from " + std::to_string(lowest) +
               (highest < 1'000'000'000 ? " to " + std::to_string(highest) : " up"));
  }
  return *value;
}

void check_seconds(const std::string& option, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value > 0) || value > 1e9) {
    refuse(option, text, "a positive number of seconds");
  }
}

std::string random_id() {
  std::random_device device;
  const auto hex = [&](int digits) {
    std::string text;
    for (int i = 0; i < digits; ++i) text += "0123456789abcdef"[device() % 16];
    return text;
  };
  return hex(8) + "-" + hex(4) + "-4" + hex(3) + "-" + "89ab"[device() % 4] + hex(3) + "-" + hex(12);
}

void set_nodes(LaunchConfig& config, const RawOptions& raw) {
  const std::vector<std::string> parts = split(raw.nnodes, ':');
  if (parts.size() > 2) refuse("--nnodes", raw.nnodes, "of the form N or MIN:MAX");
  config.min_nodes = number("--nnodes", parts.front(), 1);
  config.max_nodes = number("--nnodes", parts.back(), 1);
  if (config.min_nodes > config.max_nodes)
    refuse("--nnodes", raw.nnodes, "a range: its first number is the larger");
  if (config.max_nodes > 1 && raw.standalone) {
    throw UsageError("--standalone is for one node, and --nnodes says " + raw.nnodes);
  }
  config.node_rank = number("--node-rank", raw.node_rank, 0);
  if (config.node_rank >= config.max_nodes) {
    refuse("--node-rank", raw.node_rank, "below the number of nodes, " + std::to_string(config.max_nodes));
  }
}

// As peers are told it: a port has its own option.
void check_address(const std::string& option, const std::string& text) {
  const bool good = !text.empty() && std::count(text.begin(), text.end(), ':') != 1 &&
                    std::all_of(text.begin(), text.end(), [](unsigned char c) {
                      return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_' || c == ':' || c == '%';
                    });
  if (!good) refuse(option, text, "an address: a host's name or its IPv4 or IPv6 number, without a port");
}

std::vector<int> listed_gpus(const std::string& text) {
  std::vector<int> gpus;
  if (text.empty()) return gpus;
  const int installed = count_gpus(nullptr);
  for (const std::string& entry : split(text, ',')) {
    const std::optional<int> gpu = whole_number(trim(entry));
    if (!gpu || *gpu < 0) refuse("--gpus", text, "a list of GPUs by their numbers from 0 up, such as 2,4,7");
    if (std::find(gpus.begin(), gpus.end(), *gpu) != gpus.end()) {
      refuse("--gpus", text, "a list of different GPUs: " + std::to_string(*gpu) + " is there twice");
    }
    if (installed > 0 && *gpu >= installed) {
      refuse("--gpus", text,
             "a list of this machine's GPUs, which are 0 to " + std::to_string(installed - 1));
    }
    gpus.push_back(*gpu);
  }
  return gpus;
}

int workers_per_node(const std::string& text) {
  if (text == "cpu") return count_cpus();
  const bool gpu = text == "gpu";
  if (gpu || text == "auto") {
    const int gpus = count_gpus(std::getenv("CUDA_VISIBLE_DEVICES"));
    if (gpus == 0 && gpu)
      throw UsageError("--nproc-per-node gpu: this machine has no GPU that a worker could see");
    return gpus > 0 ? gpus : count_cpus();
  }
  if (text == "xpu") {
    refuse("--nproc-per-node", text, "something that cpprun can count; give the number of workers");
  }
  const std::optional<int> value = whole_number(trim(text));
  if (!value || *value < 1 || *value > kMostWorkers) {
    refuse("--nproc-per-node", text,
           "a whole number from 1 to " + std::to_string(kMostWorkers) + ", nor auto, cpu or gpu");
  }
  return *value;
}

// A list of GPUs gives the number of workers; a number beside it must say the same.
int workers_on(const std::vector<int>& gpus, const Options& options) {
  const std::string& text = options.raw().nproc_per_node;
  if (gpus.empty()) return workers_per_node(text);
  const int listed = static_cast<int>(gpus.size());
  if (!options.given("--nproc-per-node") || text == "gpu" || text == "auto") return listed;
  if (workers_per_node(text) != listed) {
    refuse("--nproc-per-node", text,
           "the number of GPUs that --gpus lists, " + std::to_string(listed) + "; leave one of the two out");
  }
  return listed;
}

// torchrun refuses the same names: options of their own say these things.
void check_settings(const rendezvous::Settings& settings) {
  static const std::map<std::string, std::string> kOptions{
      {"backend", "--rdzv-backend"}, {"endpoint", "--rdzv-endpoint"}, {"run_id", "--rdzv-id"},
      {"min_nodes", "--nnodes"},     {"max_nodes", "--nnodes"},       {"local_addr", "--local-addr"}};
  for (const auto& [key, value] : settings) {
    if (const auto named = kOptions.find(key); named != kOptions.end()) {
      refuse("--rdzv-conf", key, "one of its keys; use " + named->second);
    }
  }
}

std::vector<rendezvous::Endpoint> endpoints_in(const RawOptions& raw) {
  try {
    return rendezvous::parse_endpoints(raw.rdzv_endpoint);
  } catch (const rendezvous::SettingsError& error) {
    throw BadValue{"--rdzv-endpoint", error.what(), ""};
  }
}

void set_backend(LaunchConfig& config, const RawOptions& raw) {
  config.rdzv_backend = raw.rdzv_backend;
  if (raw.rdzv_backend == "etcd-v2") {
    config.rdzv_backend = "etcd";
    config.notices.emplace_back("--rdzv-backend etcd-v2: etcd is spoken to in its version 3, as with etcd");
    return;
  }
  for (const char* known : {"static", "c10d", "etcd"}) {
    if (raw.rdzv_backend == known) return;
  }
  refuse("--rdzv-backend", raw.rdzv_backend, "a backend of this version: static, c10d, etcd or etcd-v2");
}

void set_settings(LaunchConfig& config, const RawOptions& raw) {
  try {
    config.rdzv_settings = rendezvous::parse_settings(raw.rdzv_conf);
    check_settings(config.rdzv_settings);
    config.rdzv_limits = rendezvous::limits_of(config.rdzv_settings, config.rdzv_backend);
    if (config.rdzv_backend == "etcd") rendezvous::etcd_options_of(config.rdzv_settings);  // throws if wrong
  } catch (const rendezvous::SettingsError& error) {
    throw BadValue{"--rdzv-conf", error.what(), ""};
  }
}

[[noreturn]] void refuse_without_port(const RawOptions& raw) {
  throw BadValue{"--rdzv-endpoint", "'" + raw.rdzv_endpoint + "' lacks its port", ""};
}

// Where agents meet: several, or one that was told where.
void set_meeting_point(LaunchConfig& config, const RawOptions& raw,
                       const std::vector<rendezvous::Endpoint>& given) {
  if (raw.rdzv_id.empty() && config.max_nodes > 1)
    throw BadValue{"--rdzv-id", "several nodes need the same name of their run", ""};
  const bool is_static = raw.rdzv_backend == "static";
  const bool by_master = is_static && raw.rdzv_endpoint.empty();
  if (is_static && config.min_nodes != config.max_nodes) {
    refuse("--nnodes", raw.nnodes,
           "a fixed number, as --rdzv-backend static needs (c10d and etcd take a range)");
  }
  if (is_static && given.size() > 1) {
    throw BadValue{"--rdzv-endpoint", "a list of endpoints is for --rdzv-backend c10d or etcd", ""};
  }
  if (given.size() > kMostEndpoints) {
    throw BadValue{"--rdzv-endpoint", "at most " + std::to_string(kMostEndpoints) + " endpoints can be given",
                   ""};
  }
  if (!by_master && is_static && !given.front().port) refuse_without_port(raw);
  config.endpoints = given;
  if (by_master) config.endpoints = {{raw.master_addr, config.master_port.value_or(kDefaultMasterPort)}};
  const bool etcd = config.rdzv_backend == "etcd";
  for (rendezvous::Endpoint& endpoint : config.endpoints) {
    if (!endpoint.port) endpoint.port = etcd ? kDefaultEtcdPort : kDefaultRendezvousPort;
    if (*endpoint.port != 0) continue;
    throw BadValue{
        by_master ? "--master-port" : "--rdzv-endpoint",
        etcd ? "etcd listens at no port 0" : "port 0 is for one node: several need a port that all know", ""};
  }
}

void set_rendezvous(LaunchConfig& config, const RawOptions& raw) {
  const std::vector<rendezvous::Endpoint> endpoints = endpoints_in(raw);
  const rendezvous::Endpoint& endpoint = endpoints.front();
  set_backend(config, raw);
  set_settings(config, raw);
  config.run_id = raw.rdzv_id;
  config.master_addr = raw.master_addr;
  if (!raw.master_port.empty()) {
    config.master_port = static_cast<std::uint16_t>(number("--master-port", raw.master_port, 0, 65535));
  }
  if (!raw.local_addr.empty()) config.local_addr = raw.local_addr;
  if (raw.rdzv_id.size() > kLongestRunId)
    refuse("--rdzv-id", raw.rdzv_id.substr(0, 32) + "...", "short enough");
  const bool is_static = raw.rdzv_backend == "static";
  const bool is_etcd = config.rdzv_backend == "etcd";
  const bool nowhere = is_static ? raw.rdzv_endpoint.empty() && !config.master_port
                                 : raw.rdzv_endpoint.empty() || (endpoint.port == 0 && !is_etcd);
  config.standalone = raw.standalone || (config.max_nodes == 1 && nowhere);
  if (raw.rdzv_id.empty() || (config.standalone && raw.rdzv_id == "none")) config.run_id = random_id();
  if (!config.standalone && (config.max_nodes > 1 || !is_static))
    return set_meeting_point(config, raw, endpoints);
  if (config.standalone || raw.rdzv_endpoint.empty()) {
    if (!config.master_port) config.master_port = config.standalone ? std::uint16_t{0} : kDefaultMasterPort;
    return;
  }
  if (!endpoint.port) refuse_without_port(raw);
  config.master_addr = endpoint.host;
  config.master_port = endpoint.port;
}

void set_store_access(LaunchConfig& config, const RawOptions& raw) {
  config.store_proxy = raw.store_proxy || !raw.secret_file.empty();
  if (raw.secret_file.empty()) return;
  try {
    config.secret = std::make_shared<store::Secret>(store::Secret::from_file(raw.secret_file));
  } catch (const store::SecretError& error) {
    throw BadValue{"--secret-file", error.what(), ""};
  }
  if (store::readable_by_others(raw.secret_file)) {
    config.notices.emplace_back(
        "other users of this machine can read the file of --secret-file: 'chmod 600' it");
  }
}

void set_ends(LaunchConfig& config, const RawOptions& raw) {
  config.max_restarts = number("--max-restarts", raw.max_restarts, 0);
  check_seconds("--monitor-interval", raw.monitor_interval);
  if (raw.start_method != "spawn" && raw.start_method != "fork" && raw.start_method != "forkserver") {
    refuse("--start-method", raw.start_method, "spawn, fork or forkserver");
  }
  const char* inherited = std::getenv(kShutdownTimeout);
  const bool given = !raw.shutdown_timeout.empty();
  if (given || (inherited && *inherited)) {
    config.shutdown_timeout =
        std::chrono::seconds(number(given ? "--shutdown-timeout" : kShutdownTimeout,
                                    given ? raw.shutdown_timeout : inherited, 0, 1'000'000));
  }
  try {
    config.hang_limits = parse_hang_limits(raw.hang_detection);
    if (!config.hang_limits.stuck) config.hang_limits.stuck = stuck_limit(std::getenv(kStuckTimeout));
  } catch (const HangLimitsError& error) {
    throw BadValue{"--hang-detection", error.what(), ""};
  }
  config.signals_text = raw.signals_to_handle;
  for (const std::string& entry : split(raw.signals_to_handle, ',')) {
    const std::string name = trim(entry);
    if (name.empty()) continue;
    const int signal = signal_number(name);
    if (signal == 0 || signal == SIGKILL || signal == SIGSTOP || signal == SIGCHLD) {
      refuse("--signals-to-handle", name, "a signal that can be passed on");
    }
    config.signals_to_handle.push_back(signal);
  }
}

void set_output(LaunchConfig& config, const RawOptions& raw) {
  if (!raw.log_dir.empty()) config.log_dir = raw.log_dir;
  config.redirects.files = raw.log_dir != "/dev/null";
  const auto selection = [](const char* option, const std::string& text) {
    try {
      return StreamSelection::parse(text);
    } catch (const std::invalid_argument& error) {
      throw BadValue{option, error.what(), ""};
    }
  };
  config.redirects.redirects = selection("--redirects", raw.redirects);
  config.redirects.tee = selection("--tee", raw.tee);
  if (!raw.local_ranks_filter.empty()) {
    for (const std::string& rank : split(raw.local_ranks_filter, ',')) {
      config.redirects.shown_ranks.insert(number("--local-ranks-filter", rank, 0));
    }
  }
  try {
    config.events = EventDestination::parse(raw.event_log_handler);
  } catch (const std::invalid_argument& error) {
    throw BadValue{"--event-log-handler", error.what(), raw.event_log_handler};
  }
  config.redirects.out_filters = parse_filters(raw.duplicate_stdout_filters);
  config.redirects.err_filters = parse_filters(raw.duplicate_stderr_filters);
  if (!config.redirects.files &&
      (!config.redirects.out_filters.empty() || !config.redirects.err_filters.empty()))
    throw UsageError(
        "--duplicate-stdout-filters and --duplicate-stderr-filters need log files, and --log-dir "
        "/dev/null makes none");
  config.prefix_template = raw.prefix_template;
  if (const char* inherited = std::getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
      config.prefix_template.empty() && inherited) {
    config.prefix_template = inherited;
  }
  if (raw.logs_specs != "default") {
    refuse("--logs-specs", raw.logs_specs,
           "default: other layouts are Python plug-ins, and cpprun loads none");
  }
}

void set_verdict_rules(LaunchConfig& config, const RawOptions& raw) {
  config.verdict_rules = VerdictRules::built_in();
  if (raw.verdict_rules.empty()) return;
  try {
    const std::string text = rendezvous::read_config_file(raw.verdict_rules);
    config.verdict_rules = VerdictRules::parse(text, raw.verdict_rules).before(config.verdict_rules);
  } catch (const rendezvous::ConfigFileError& error) {
    throw BadValue{"--verdict-rules", error.what(), ""};
  } catch (const VerdictRuleError& error) {
    throw BadValue{"--verdict-rules", error.what(), ""};
  }
}

bool print_instead(const Options& options, std::string& printed) {
  const RawOptions& raw = options.raw();
  if (raw.help) {
    printed = help_text(options.entries());
  } else if (raw.version) {
    printed = "cpprun " CPPRUN_VERSION "\n";
  } else if (!raw.print_completion.empty()) {
    const std::optional<Shell> shell = shell_called(raw.print_completion);
    if (!shell) refuse("--print-completion", raw.print_completion, "bash, zsh or fish");
    printed = completion_script(*shell, options.entries());
  }
  return !printed.empty();
}

std::string read_config(const std::string& path) {
  try {
    return rendezvous::read_config_file(path);
  } catch (const rendezvous::ConfigFileError& error) {
    throw BadValue{"--config", error.what(), ""};
  }
}

LaunchConfig decide(const Options& options, const std::vector<std::string>& program) {
  const RawOptions& raw = options.raw();
  if (program.empty()) {
    throw UsageError("no program to run; expected: cpprun [options] program [arguments...]");
  }
  if (raw.module && raw.no_python && !raw.run_path)
    throw UsageError("--module and --no-python exclude each other");
  LaunchConfig config;
  config.command = program;
  config.module = raw.module;
  config.no_python = raw.no_python;
  config.run_path = raw.run_path;
  config.role = raw.role;
  config.virtual_local_rank = raw.virtual_local_rank;
  config.numa_binding = parse_numa_binding(raw.numa_binding);
  if (!config.numa_binding && !raw.numa_binding.empty())
    refuse("--numa-binding", raw.numa_binding, "node, socket, exclusive or core-complex");
  set_nodes(config, raw);
  check_address("--master-addr", raw.master_addr);
  if (!raw.local_addr.empty()) check_address("--local-addr", raw.local_addr);
  config.gpus = listed_gpus(raw.gpus);
  config.nproc_per_node = workers_on(config.gpus, options);
  set_rendezvous(config, raw);
  set_store_access(config, raw);
  set_ends(config, raw);
  set_output(config, raw);
  set_verdict_rules(config, raw);
  config.dry_run = raw.dry_run;
  if (raw.dry_run && config.run_id != raw.rdzv_id) config.run_id = kRandomRunId;
  config.sources = options.sources();
  for (const BadValue& odd : odd_values(config)) config.notices.emplace_back(options.explain(odd).what());
  return config;
}

}  // namespace

std::optional<LaunchConfig> parse_command_line(const std::vector<std::string>& arguments,
                                               std::string& printed) {
  Options options;
  try {
    std::vector<std::string> program = options.take_arguments(arguments);
    if (print_instead(options, printed)) return std::nullopt;
    options.take_environment();
    if (const std::string& path = options.raw().config; !path.empty()) {
      std::vector<std::string> in_file =
          options.take_file(rendezvous::parse_config(read_config(path), path), path);
      if (program.empty()) program = std::move(in_file);
    }
    return decide(options, program);
  } catch (const BadValue& bad) {
    throw options.explain(bad);
  } catch (const rendezvous::ConfigFileError& error) {
    throw UsageError(error.what());
  }
}

}  // namespace cpprun::launcher
