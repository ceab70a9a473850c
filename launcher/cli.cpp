#include "launcher/cli.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <random>

#include "launcher/device_count.hpp"
#include "launcher/process/exit_status.hpp"
#include "launcher/process/line_filter.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

constexpr std::uint16_t kDefaultMasterPort = 29500;
constexpr std::uint16_t kDefaultRendezvousPort = 29400;
constexpr int kMostWorkers = 10'000;  // of one node; more is a slip of the keyboard

// Options as text: what they mean is decided below, so that each refusal can be a sentence.
struct RawOptions {
  std::string nnodes = "1:1";
  std::string nproc_per_node = "1";
  std::string role = "default";
  bool virtual_local_rank = false;
  std::string numa_binding;
  bool standalone = false;
  std::string rdzv_backend = "static";
  std::string rdzv_endpoint;
  std::string rdzv_id = "none";
  std::string rdzv_conf;
  std::string node_rank = "0";
  std::string master_addr = "127.0.0.1";
  std::string master_port;
  std::string local_addr;
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  std::string max_restarts = "0";
  std::string monitor_interval = "0.1";
  std::string start_method = "spawn";
  std::string shutdown_timeout;
  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  std::string log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  std::string prefix_template;
  std::string local_ranks_filter;
  std::string event_log_handler = "null";
  std::string duplicate_stdout_filters;
  std::string duplicate_stderr_filters;
};

std::string variable_of(const std::string& long_name) {
  std::string name = "PET_";
  for (const char c : long_name.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

class HelpFormatter : public CLI::Formatter {
 public:
  std::string make_usage(const CLI::App*, std::string) const override {
    return "Usage: cpprun [options] program [arguments...]\n";
  }
};

class Options {
 public:
  Options()
      : app_("Runs one worker per GPU or CPU slot, watches them, and restarts them together.", "cpprun") {
    app_.formatter(std::make_shared<HelpFormatter>());
    app_.set_version_flag("--version", CPPRUN_VERSION);
    app_.get_formatter()->column_width(40);
    add_nodes_and_workers();
    add_rendezvous();
    add_program();
    add_restarts();
    add_output();
    app_.footer(
        "Every option takes its default from PET_<NAME>, such as PET_NPROC_PER_NODE.\n"
        "Exit codes: 0 all workers ended well, 1 a worker failed, 2 wrong usage, 3 rendezvous failed,\n"
        "4 the system refused, 128+N stopped by signal N. See cpprun(1).");
  }

  CLI::App& app() { return app_; }
  const RawOptions& raw() const { return raw_; }

 private:
  void option(const std::string& names, std::string& value, const std::string& metavar,
              const std::string& help) {
    CLI::Option* added = app_.add_option(names, value, help)->group(group_)->type_name(metavar)->take_last();
    if (!value.empty()) added->default_str(value);
    added->envname(
        variable_of(added->get_name(false, true).substr(added->get_name(false, true).rfind("--"))));
  }
  void flag(const std::string& names, bool& value, const std::string& help) {
    CLI::Option* added = app_.add_flag(names, value, help)->group(group_)->take_last();
    added->envname(
        variable_of(added->get_name(false, true).substr(added->get_name(false, true).rfind("--"))));
  }

  void add_nodes_and_workers() {
    group_ = "Nodes and workers";
    option("--nnodes", raw_.nnodes, "N|MIN:MAX", "number of nodes, or a range");
    option("--nproc-per-node", raw_.nproc_per_node, "N|auto|cpu|gpu", "workers on this node");
    option("--role", raw_.role, "NAME", "role of the workers; stands in the prefix of teed lines");
    flag("--virtual-local-rank", raw_.virtual_local_rank,
         "each worker sees one device and is told LOCAL_RANK=0");
    option("--numa-binding", raw_.numa_binding, "MODE",
           "CPUs near a worker's GPU: node, socket, exclusive or core-complex");
    option("--node-rank", raw_.node_rank, "N", "rank of this node (static rendezvous)");
    option("--local-addr", raw_.local_addr, "ADDR", "address of this node as its peers reach it");
  }
  void add_rendezvous() {
    group_ = "Rendezvous";
    flag("--standalone", raw_.standalone, "one node, no rendezvous; the default for one node");
    option("--rdzv-backend", raw_.rdzv_backend, "NAME", "static or c10d");
    option("--rdzv-endpoint", raw_.rdzv_endpoint, "HOST[:PORT]", "where the nodes meet");
    option("--rdzv-id", raw_.rdzv_id, "ID", "name of the run, equal on all nodes");
    option("--rdzv-conf", raw_.rdzv_conf, "K=V,...", "settings of the rendezvous");
    option("--master-addr", raw_.master_addr, "ADDR", "address of rank 0's node (static rendezvous)");
    option("--master-port", raw_.master_port, "PORT",
           "port of the workers' store (static rendezvous) [29500]");
  }
  void add_program() {
    group_ = "Program";
    flag("-m,--module", raw_.module, "the program is a Python module");
    flag("--no-python", raw_.no_python, "run the program by itself, never under Python");
    flag("--run-path", raw_.run_path, "run the Python script as __main__ and record its exception");
  }
  void add_restarts() {
    group_ = "Restarts and ends";
    option("--max-restarts", raw_.max_restarts, "N", "times to restart the workers after a failure");
    option("--shutdown-timeout", raw_.shutdown_timeout, "SECONDS", "from the first signal to SIGKILL [30]");
    option("--signals-to-handle", raw_.signals_to_handle, "NAMES", "signals to pass on to the workers");
    option("--monitor-interval", raw_.monitor_interval, "SECONDS",
           "accepted; cpprun is woken and does not poll");
    option("--start-method", raw_.start_method, "NAME", "accepted: spawn, fork or forkserver");
  }
  void add_output() {
    group_ = "Output";
    option("--log-dir", raw_.log_dir, "DIR", "keep logs here");
    option("-r,--redirects", raw_.redirects, "0-3|MAP",
           "streams to files: 1 stdout, 2 stderr, 3 both, or 0:3,1:2");
    option("-t,--tee", raw_.tee, "0-3|MAP", "streams to files and to the console");
    option("--log-line-prefix-template", raw_.prefix_template, "TEXT",
           "prefix of teed lines: ${role_name} ${rank} ${local_rank} ${hostname}");
    option("--local-ranks-filter", raw_.local_ranks_filter, "RANKS", "show only these local ranks: 0,2");
    option("--event-log-handler", raw_.event_log_handler, "NAME",
           "write events: null, console, dynamic_rendezvous or file:PATH");
    option("--duplicate-stdout-filters", raw_.duplicate_stdout_filters, "TEXTS",
           "teed lines with one of these also go to filtered_stdout.log");
    option("--duplicate-stderr-filters", raw_.duplicate_stderr_filters, "TEXTS", "the same for stderr");
  }

  CLI::App app_;
  RawOptions raw_;
  std::string group_;
};

// The option that `typed` means: dashes or underscores, whole or cut short.
CLI::Option* find_option(CLI::App& app, const std::string& typed) {
  std::string name = typed;
  if (name.rfind("--", 0) == 0) std::replace(name.begin(), name.end(), '_', '-');
  if (CLI::Option* exact = app.get_option_no_throw(name)) return exact;
  std::vector<std::string> known;
  std::vector<std::string> begun;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& long_name : option->get_lnames()) {
      known.push_back("--" + long_name);
      if (name.size() > 2 && ("--" + long_name).rfind(name, 0) == 0) begun.push_back("--" + long_name);
    }
  }
  if (begun.size() == 1) return app.get_option(begun.front());
  if (begun.size() > 1) {
    throw UsageError("the option " + typed + " is ambiguous: it may mean " + begun[0] + " or " + begun[1]);
  }
  const std::optional<std::string> guess = nearest(name, known);
  throw UsageError("unknown option " + typed + (guess ? "; did you mean " + *guess + "?" : "") +
                   " (cpprun --help lists all)");
}

// Hands the options to CLI11 and returns the program and its arguments.
std::vector<std::string> take_options(CLI::App& app, const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const auto at = arguments.begin() + static_cast<std::ptrdiff_t>(i);
    if (word == "--") return {at + 1, arguments.end()};
    if (word.size() < 2 || word[0] != '-') return {at, arguments.end()};
    const bool is_long = word[1] == '-';
    const std::size_t name_end = is_long ? std::min(word.find('='), word.size()) : 2;
    const std::string name = word.substr(0, name_end);
    CLI::Option* option = find_option(app, name);
    const bool has_value = name_end < word.size();
    const std::string value = has_value ? word.substr(name_end + (is_long ? 1 : 0)) : "";
    if (option->get_items_expected_max() == 0) {
      if (has_value) throw UsageError("the option " + name + " takes no value");
      option->add_result("true");
    } else if (has_value) {
      option->add_result(value);
    } else if (i + 1 < arguments.size()) {
      option->add_result(arguments[++i]);
    } else {
      throw UsageError("the option " + name + " needs a value");
    }
  }
  return {};
}

[[noreturn]] void refuse(const std::string& option, const std::string& value, const std::string& expected) {
  throw UsageError(option + ": '" + value + "' is not " + expected);
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

double positive_seconds(const std::string& option, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !(value > 0) || value > 1e9)
    refuse(option, text, "a positive number of seconds");
  return value;
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
  if (config.min_nodes != config.max_nodes) {
    throw UsageError("--nnodes " + raw.nnodes + ": a number of nodes that changes is not supported by this version");
  }
  if (config.max_nodes > 1 && raw.standalone) {
    throw UsageError("--standalone is for one node, and --nnodes says " + raw.nnodes);
  }
  config.node_rank = number("--node-rank", raw.node_rank, 0, config.max_nodes - 1);
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
  const std::optional<int> value = whole_number(trim(text));
  if (!value || *value < 1 || *value > kMostWorkers) {
    refuse("--nproc-per-node", text,
           "a whole number from 1 to " + std::to_string(kMostWorkers) + ", nor auto, cpu or gpu");
  }
  return *value;
}

// Where several nodes meet.
void set_meeting_point(LaunchConfig& config, const RawOptions& raw) {
  if (raw.rdzv_id.empty()) throw UsageError("--rdzv-id is empty: several nodes need the same name of their run");
  const bool is_static = raw.rdzv_backend == "static";
  if (is_static && raw.rdzv_endpoint.empty()) {
    config.rendezvous_endpoint = {raw.master_addr, config.master_port.value_or(kDefaultMasterPort)};
  } else {
    config.rendezvous_endpoint = rendezvous::parse_endpoint(raw.rdzv_endpoint);
  }
  std::optional<std::uint16_t>& port = config.rendezvous_endpoint.port;
  if (!port && is_static) throw rendezvous::SettingsError("'" + raw.rdzv_endpoint + "' lacks its port");
  if (!port) port = kDefaultRendezvousPort;
  if (*port == 0) throw rendezvous::SettingsError("port 0 is for one node: several need a port that all know");
}

void set_rendezvous(LaunchConfig& config, const RawOptions& raw) {
  config.rdzv_backend = raw.rdzv_backend;
  config.rdzv_endpoint = raw.rdzv_endpoint;
  config.run_id = raw.rdzv_id;
  config.master_addr = raw.master_addr;
  if (!raw.master_port.empty()) {
    config.master_port = static_cast<std::uint16_t>(number("--master-port", raw.master_port, 0, 65535));
  }
  if (!raw.local_addr.empty()) config.local_addr = raw.local_addr;
  if (raw.rdzv_backend != "static" && raw.rdzv_backend != "c10d") {
    refuse("--rdzv-backend", raw.rdzv_backend, "a backend of this version: static or c10d");
  }
  const bool nothing_said = raw.rdzv_backend == "static" && raw.rdzv_endpoint.empty() && !config.master_port;
  config.standalone = raw.standalone || (config.max_nodes == 1 && nothing_said);
  if (raw.rdzv_id.empty() || (config.standalone && raw.rdzv_id == "none")) config.run_id = random_id();
  try {
    config.rdzv_settings = rendezvous::parse_settings(raw.rdzv_conf);
    config.rdzv_limits = rendezvous::limits_of(config.rdzv_settings, raw.rdzv_backend == "static");
    if (config.max_nodes > 1) return set_meeting_point(config, raw);
    if (config.standalone || (raw.rdzv_backend == "static" && raw.rdzv_endpoint.empty())) {
      if (!config.master_port) config.master_port = config.standalone ? std::uint16_t{0} : kDefaultMasterPort;
      return;
    }
    const rendezvous::Endpoint endpoint = rendezvous::parse_endpoint(raw.rdzv_endpoint);
    config.master_addr = endpoint.host;
    if (raw.rdzv_backend == "static") {
      if (!endpoint.port) throw rendezvous::SettingsError("'" + raw.rdzv_endpoint + "' lacks its port");
      config.master_port = endpoint.port;
    } else {
      if (config.local_addr) config.master_addr = *config.local_addr;
      config.master_port = 0;
    }
  } catch (const rendezvous::SettingsError& error) {
    throw UsageError(std::string("--rdzv-endpoint/--rdzv-conf: ") + error.what());
  }
}

void set_ends(LaunchConfig& config, const RawOptions& raw) {
  config.max_restarts = number("--max-restarts", raw.max_restarts, 0);
  positive_seconds("--monitor-interval", raw.monitor_interval);
  if (raw.start_method != "spawn" && raw.start_method != "fork" && raw.start_method != "forkserver") {
    refuse("--start-method", raw.start_method, "spawn, fork or forkserver");
  }
  std::string timeout = raw.shutdown_timeout;
  if (const char* inherited = std::getenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT"); timeout.empty() && inherited) {
    timeout = inherited;
  }
  if (!timeout.empty()) {
    config.shutdown_timeout = std::chrono::seconds(number("--shutdown-timeout", timeout, 0, 1'000'000));
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
      throw UsageError(std::string(option) + ": " + error.what());
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
    throw UsageError(std::string("--event-log-handler: ") + error.what());
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
}

}  // namespace

std::optional<LaunchConfig> parse_command_line(const std::vector<std::string>& arguments,
                                               std::string& printed) {
  Options options;
  LaunchConfig config;
  config.command = take_options(options.app(), arguments);
  try {
    options.app().parse(std::vector<std::string>{});
  } catch (const CLI::CallForHelp&) {
    printed = options.app().help();
    return std::nullopt;
  } catch (const CLI::CallForVersion&) {
    printed = "cpprun " CPPRUN_VERSION "\n";
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    // Only variables come this way: the command line was looked at above.
    throw UsageError("a PET_ variable is wrong: " + std::string(error.what()) +
                     " (a flag's variable is 1 or 0)");
  }
  const RawOptions& raw = options.raw();
  if (config.command.empty()) {
    throw UsageError("no program to run; expected: cpprun [options] program [arguments...]");
  }
  if (raw.module && raw.no_python && !raw.run_path)
    throw UsageError("--module and --no-python exclude each other");
  config.module = raw.module;
  config.no_python = raw.no_python;
  config.run_path = raw.run_path;
  config.role = raw.role;
  config.virtual_local_rank = raw.virtual_local_rank;
  config.numa_binding = parse_numa_binding(raw.numa_binding);
  if (!config.numa_binding && !raw.numa_binding.empty())
    refuse("--numa-binding", raw.numa_binding, "node, socket, exclusive or core-complex");
  set_nodes(config, raw);
  config.nproc_per_node = workers_per_node(raw.nproc_per_node);
  set_rendezvous(config, raw);
  set_ends(config, raw);
  set_output(config, raw);
  return config;
}

}  // namespace cpprun::launcher
