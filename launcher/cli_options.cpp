#include "launcher/cli_options.hpp"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <set>

#include "launcher/text.hpp"

namespace cpprun::launcher {

using rendezvous::FileValue;

namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Lists stand behind ",...".
const std::string kMore = ",...";

// Asked of the person at the keyboard only; torchrun's too have no variable.
bool only_typed(const std::string& name) {
  return name == "--help" || name == "--version" || name == "--print-completion";
}

bool in_file(const OptionEntry& option) {
  return !option.variable.empty() && option.name != "--config";
}

// Options without a default whose empty text is a slip, such as that of an unset shell variable.
bool may_be_empty(const std::string& name) {
  static const std::set<std::string> kNever{"--master-port", "--shutdown-timeout", "--gpus",
                                            "--config",      "--verdict-rules",    "--print-completion"};
  return kNever.count(name) == 0;
}

std::string variable_of(const std::string& long_name) {
  std::string name = "PET_";
  for (const char c : long_name.substr(2)) {
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  }
  return name;
}

std::string with_dashes(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return name;
}

// torchrun's flags read a number from their variables; words are clear too.
bool switch_value(const std::string& option, const std::string& text) {
  static const std::set<std::string> kOn{"true", "yes", "on"};
  static const std::set<std::string> kOff{"false", "no", "off"};
  std::string word = trim(text);
  for (char& c : word) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (const std::optional<int> number = whole_number(word)) return *number != 0;
  if (kOn.count(word) != 0) return true;
  if (kOff.count(word) != 0) return false;
  throw BadValue{option, "'" + text + "' is not 1 or 0", text};
}

std::string joined(const FileValue& value, const std::string& where) {
  std::string text;
  for (const std::string& part : value.texts) {
    if (value.kind == FileValue::Kind::List && part.find(',') != std::string::npos) {
      throw UsageError(where + ": an element of '" + value.key +
                       "' holds a comma; write the whole list as one text");
    }
    text += (text.empty() ? "" : ",") + part;
  }
  return text;
}

}  // namespace

bool OptionEntry::is_list() const {
  return ends_with(takes, kMore);
}

std::vector<std::string> OptionEntry::words() const {
  std::vector<std::string> words;
  for (const std::string& word : split(takes, '|')) {
    const bool literal = !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
      return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '-' || c == '_';
    });
    if (literal) words.push_back(word);
  }
  return words;
}

Options::Options() {
  add_nodes_and_workers();
  add_rendezvous();
  add_program();
  add_restarts();
  add_output();
  add_general();
}

void Options::option(const std::string& names, std::string& value, const std::string& takes,
                     const std::string& help, const std::string& fallback) {
  Slot slot;
  slot.target = &value;
  for (const std::string& name : split(names, ',')) {
    const bool first_long = name.rfind("--", 0) == 0 && slot.entry.name.empty();
    if (first_long) {
      slot.entry.name = name;
    } else {
      slot.entry.aliases.push_back(name);
    }
  }
  if (!only_typed(slot.entry.name)) slot.entry.variable = variable_of(slot.entry.name);
  slot.entry.group = group_;
  slot.entry.takes = takes;
  slot.entry.fallback = fallback.empty() ? value : fallback;
  slot.entry.help = help;
  slots_.push_back(std::move(slot));
}

void Options::flag(const std::string& names, bool& value, const std::string& help) {
  std::string no_text;
  option(names, no_text, "", help);
  slots_.back().target = &value;
}

void Options::add_nodes_and_workers() {
  group_ = "Nodes and workers";
  option("--nnodes", raw_.nnodes, "N|MIN:MAX",
         "number of nodes, or least and most: they may join and leave (c10d, etcd)");
  option("-n,--nproc-per-node,--ppn", raw_.nproc_per_node, "N|auto|cpu|gpu",
         "workers on this node (-np too): a number; gpu: one for each GPU that a worker would see; cpu: one "
         "for each "
         "CPU that "
         "cpprun may run on; auto: gpu where there are some, else cpu");
  option(
      "--gpus", raw_.gpus, "GPU,...",
      "GPUs of this node that the job may use, such as 2,4,7: sets CUDA_VISIBLE_DEVICES, and the number of "
      "workers unless --nproc-per-node says the same");
  option("--role", raw_.role, "NAME", "role of the workers; stands in the prefix of teed lines");
  flag("--virtual-local-rank", raw_.virtual_local_rank,
       "each worker sees one device and is told LOCAL_RANK=0");
  option("--numa-binding", raw_.numa_binding, "node|socket|exclusive|core-complex",
         "let each worker run only on the CPUs near its GPU", "no binding");
  option("--node-rank", raw_.node_rank, "N", "rank of this node (static rendezvous)");
  option("--local-addr", raw_.local_addr, "ADDR", "address of this node as its peers reach it", "found out");
}

void Options::add_rendezvous() {
  group_ = "Rendezvous";
  flag("--standalone", raw_.standalone,
       "one node, a store on 127.0.0.1 and a free port; the default for one node unless --master-port, "
       "--rdzv-endpoint or --rdzv-backend say otherwise");
  option("--rdzv-backend", raw_.rdzv_backend, "static|c10d|etcd|etcd-v2", "how the nodes meet");
  option("--rdzv-endpoint", raw_.rdzv_endpoint, "HOST[:PORT],...",
         "where the nodes meet (c10d, etcd); the next one leads when the first is lost",
         "localhost, port 29400 for c10d and 2379 for etcd");
  option("--rdzv-id", raw_.rdzv_id, "ID", "name of the run, equal on all nodes");
  option("--rdzv-conf", raw_.rdzv_conf, "K=V,...", "settings of the rendezvous");
  option("--master-addr", raw_.master_addr, "ADDR", "address of rank 0's node (static rendezvous)");
  option("--master-port", raw_.master_port, "PORT", "port of the workers' store (static rendezvous)",
         "29500");
  flag("--store-proxy", raw_.store_proxy,
       "workers reach their store at 127.0.0.1, through this node's agent and one connection; "
       "CPPRUN_RANK0_ADDR is then rank 0's address");
  option("--secret-file", raw_.secret_file, "FILE",
         "the nodes' stores serve only who has this file's bytes, at least 32 random ones, over TLS 1.3; "
         "includes --store-proxy");
}

void Options::add_program() {
  group_ = "Program";
  flag("-m,--module", raw_.module, "the program is a Python module");
  flag("--no-python", raw_.no_python, "run the program by itself, never under Python");
  flag("--run-path", raw_.run_path, "run the Python script as __main__ and record its exception");
}

void Options::add_restarts() {
  group_ = "Restarts and ends";
  option("--max-restarts", raw_.max_restarts, "N", "times to restart the workers after a failure");
  option("--shutdown-timeout", raw_.shutdown_timeout, "SECONDS",
         "from the first signal to SIGKILL; TORCH_ELASTIC_SHUTDOWN_TIMEOUT sets it too", "30");
  option("--signals-to-handle", raw_.signals_to_handle, "SIGNAL,...",
         "signals to pass on to the workers before the job stops");
  option(
      "--hang-detection", raw_.hang_detection, "off|on|K=SECONDS,...",
      "end a job that stands still, with the stacks of all workers: on, or limits for silence, stuck, step, "
      "startup, heartbeat and section.NAME");
  option("--monitor-interval", raw_.monitor_interval, "SECONDS",
         "accepted; cpprun is woken and does not poll");
  option("--start-method", raw_.start_method, "spawn|fork|forkserver",
         "accepted; cpprun forks nothing from Python");
}

void Options::add_output() {
  group_ = "Output";
  option("--log-dir", raw_.log_dir, "DIR", "keep logs here; /dev/null: make no files at all",
         "a temporary folder, kept after a failure");
  option("-r,--redirects", raw_.redirects, "0|1|2|3|RANK:0-3,...",
         "streams to files: 1 stdout, 2 stderr, 3 both, or by local rank: 0:3,1:2 (the last entry of a rank "
         "counts)");
  option("-t,--tee", raw_.tee, "0|1|2|3|RANK:0-3,...", "streams to files and to the console, spelled alike");
  option("--log-line-prefix-template", raw_.prefix_template, "TEXT",
         "prefix of teed lines, with ${role_name} ${rank} ${local_rank} ${hostname}; "
         "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE sets it too",
         "[${role_name}${local_rank}]:");
  option("--local-ranks-filter", raw_.local_ranks_filter, "RANK,...", "show only these local ranks", "all");
  option("--event-log-handler", raw_.event_log_handler, "null|console|dynamic_rendezvous|file:PATH",
         "write what happens to the job, one JSON object a line");
  option("--duplicate-stdout-filters", raw_.duplicate_stdout_filters, "TEXT,...",
         "teed lines with one of these also go to filtered_stdout.log; ,, is a comma");
  option("--duplicate-stderr-filters", raw_.duplicate_stderr_filters, "TEXT,...", "the same for stderr");
  option("--logs-specs", raw_.logs_specs, "default", "layout of the logs; torchrun's are Python plug-ins");
  option("--verdict-rules", raw_.verdict_rules, "FILE",
         "rules of your own, tried first, by which failures are classed (JSON)");
}

void Options::add_general() {
  group_ = "General";
  option("--config", raw_.config, "FILE",
         "options from a JSON object, such as {\"nproc-per-node\": 2, \"program\": [\"train.py\"]}; the "
         "command line "
         "and PET_ variables win over it");
  flag("--dry-run", raw_.dry_run, "print what would run, rank by rank, and start nothing");
  option("--print-completion", raw_.print_completion, "bash|zsh|fish",
         "print a completion script for a shell");
  flag("-h,--help", raw_.help, "print this");
  flag("--version", raw_.version, "print the version");
}

// Dashes or underscores, whole or cut short.
Options::Slot& Options::find(const std::string& typed) {
  const bool is_long = typed.rfind("--", 0) == 0;
  const std::string name = is_long ? with_dashes(typed) : typed;
  std::vector<std::string> known;
  std::vector<std::string> begun;
  std::set<Slot*> begun_slots;
  for (Slot& slot : slots_) {
    std::vector<std::string> names = slot.entry.aliases;
    names.push_back(slot.entry.name);
    for (const std::string& candidate : names) {
      if (candidate == name) return slot;
      if (candidate.rfind("--", 0) != 0) continue;
      known.push_back(candidate);
      if (name.size() <= 2 || candidate.rfind(name, 0) != 0) continue;
      begun.push_back(candidate);
      begun_slots.insert(&slot);
    }
  }
  if (begun_slots.size() == 1) return **begun_slots.begin();
  if (begun_slots.size() > 1) {
    throw UsageError("the option " + typed + " is ambiguous: it may mean " + begun[0] + " or " + begun[1]);
  }
  throw UsageError("unknown option " + typed + (is_long ? did_you_mean(name, known) : "") +
                   " (cpprun --help lists all)");
}

Options::Slot* Options::find_key(const std::string& key) {
  const std::string name = "--" + with_dashes(key);
  for (Slot& slot : slots_) {
    if (slot.entry.name == name && in_file(slot.entry)) return &slot;
  }
  return nullptr;
}

void Options::set(Slot& slot, const std::string& text, const std::string& source) {
  slot.given = true;
  slot.source = source;
  if (bool** on = std::get_if<bool*>(&slot.target)) {
    **on = switch_value(slot.entry.name, text);
    return;
  }
  if (text.empty() && !may_be_empty(slot.entry.name)) {
    throw UsageError(slot.entry.name + (source.empty() ? "" : " (" + source + ")") +
                     ": the value is empty; leave the option out instead");
  }
  *std::get<std::string*>(slot.target) = text;
}

std::vector<std::string> Options::take_arguments(const std::vector<std::string>& arguments) {
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const std::vector<std::string>::const_iterator at = arguments.begin() + static_cast<std::ptrdiff_t>(i);
    if (word == "--") return {at + 1, arguments.end()};
    if (word.size() < 2 || word[0] != '-') return {at, arguments.end()};
    const bool is_long = word[1] == '-';
    const bool is_np = word == "-np";  // mpirun's, the only short option of two letters
    const std::size_t name_end = is_long ? std::min(word.find('='), word.size()) : 2;
    const std::string name = word.substr(0, name_end);
    Slot& slot = find(name);
    const bool has_value = name_end < word.size() && !is_np;
    const std::string value = has_value ? word.substr(name_end + (is_long ? 1 : 0)) : "";
    if (slot.entry.is_flag()) {
      if (has_value) throw UsageError("the option " + name + " takes no value");
      set(slot, "1", "");
    } else if (has_value) {
      set(slot, value, "");
    } else if (i + 1 < arguments.size()) {
      set(slot, arguments[++i], "");
    } else {
      throw UsageError("the option " + word + " needs a value");
    }
  }
  return {};
}

void Options::take_environment() {
  for (Slot& slot : slots_) {
    if (slot.given || slot.entry.variable.empty()) continue;
    const char* value = std::getenv(slot.entry.variable.c_str());
    if (value && *value) set(slot, value, slot.entry.variable);
  }
}

std::vector<std::string> Options::take_file(const std::vector<FileValue>& values, const std::string& path) {
  std::set<std::string> seen;
  std::vector<std::string> program;
  for (const FileValue& value : values) {
    const std::string where = path + ", line " + std::to_string(value.line);
    if (!seen.insert(with_dashes(value.key)).second) {
      throw UsageError(where + ": the key '" + value.key + "' is there twice");
    }
    if (value.key != "program") {
      set_from_file(value, where);
    } else if (value.kind != FileValue::Kind::List || value.texts.empty()) {
      throw UsageError(where + ": the key 'program' takes an array: the program and its arguments");
    } else {
      program = value.texts;
    }
  }
  return program;
}

void Options::set_from_file(const FileValue& value, const std::string& where) {
  Slot* slot = find_key(value.key);
  if (!slot) {
    std::vector<std::string> known{"program"};
    for (const Slot& other : slots_) {
      if (in_file(other.entry)) known.push_back(other.entry.name.substr(2));
    }
    throw UsageError(where + ": unknown key '" + value.key + "'" +
                     did_you_mean(with_dashes(value.key), known));
  }
  using Kind = FileValue::Kind;
  const bool is_flag = slot->entry.is_flag();
  const bool is_list = slot->entry.is_list();
  const bool fits = is_flag ? value.kind == Kind::Switch
                            : value.kind == Kind::Text || (is_list && value.kind == Kind::List);
  if (!fits) {
    throw UsageError(where + ": the key '" + value.key + "' takes " +
                     (is_flag   ? "true or false"
                      : is_list ? "text, a number or an array of these"
                                : "text or a number"));
  }
  const std::string text = joined(value, where);
  if (!slot->given) set(*slot, text, where);
}

bool Options::given(const std::string& name) const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [&](const Slot& slot) { return slot.entry.name == name && slot.given; });
}

std::vector<OptionEntry> Options::entries() const {
  std::vector<OptionEntry> entries;
  for (const Slot& slot : slots_) entries.push_back(slot.entry);
  return entries;
}

std::map<std::string, std::string> Options::sources() const {
  std::map<std::string, std::string> sources;
  for (const Slot& slot : slots_) {
    if (!slot.source.empty()) sources[slot.entry.name] = slot.source;
  }
  return sources;
}

UsageError Options::explain(const BadValue& bad) const {
  std::string source;
  std::vector<std::string> words;
  for (const Slot& slot : slots_) {
    if (slot.entry.name != bad.option) continue;
    source = slot.source;
    words = slot.entry.words();
  }
  return UsageError(bad.option + (source.empty() ? "" : " (" + source + ")") + ": " + bad.sentence +
                    did_you_mean(bad.value, words));
}

}  // namespace cpprun::launcher
