// The registry of cpprun's options: names, variables, defaults, meaning, and where each value came from.
// Parser, config file, help and completion all read this one list.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "launcher/launch_config.hpp"
#include "rendezvous/config_file.hpp"

namespace cpprun::launcher {

// Options as text: what they mean is decided by the command line, so that each refusal can be a sentence.
struct RawOptions {
  std::string nnodes = "1:1";
  std::string nproc_per_node = "1";
  std::string gpus;
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
  bool store_proxy = false;
  std::string secret_file;
  bool module = false;
  bool no_python = false;
  bool run_path = false;
  std::string max_restarts = "0";
  std::string monitor_interval = "0.1";
  std::string start_method = "spawn";
  std::string shutdown_timeout;
  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  std::string hang_detection = "off";
  std::string log_dir;
  std::string redirects = "0";
  std::string tee = "0";
  std::string prefix_template;
  std::string local_ranks_filter;
  std::string event_log_handler = "null";
  std::string duplicate_stdout_filters;
  std::string duplicate_stderr_filters;
  std::string logs_specs = "default";
  std::string verdict_rules;
  std::string config;
  bool dry_run = false;
  std::string print_completion;
  bool help = false;
  bool version = false;
};

struct OptionEntry {
  std::string name;                  // with dashes: "--nproc-per-node"
  std::vector<std::string> aliases;  // "-n", "--ppn"
  std::string variable;              // "PET_NPROC_PER_NODE"; empty where only the command line counts
  std::string group;
  // What may be given, alternatives between bars: words in lower case and digits as they are, words in upper
  // case stand for a value. ",..." at the end: a list. Empty for a flag.
  std::string takes;
  std::string fallback;  // the default as help shows it; empty for none
  std::string help;

  bool is_flag() const { return takes.empty(); }
  bool is_list() const;
  std::vector<std::string> words() const;  // the values that can be spelled out: auto, cpu, gpu
};

// A value that is not what its option takes. Options::explain says where it came from, and guesses what was
// meant.
struct BadValue {
  std::string option;    // or the variable that the value came from
  std::string sentence;  // "'x' is not ..."
  std::string value;     // empty where it is not one word
};

class Options {
 public:
  Options();
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  // What has been given before stays: flags first, then the environment, then the file. Throw UsageError and
  // BadValue. Return the program and its arguments, empty where there is none.
  std::vector<std::string> take_arguments(const std::vector<std::string>& arguments);
  void take_environment();
  std::vector<std::string> take_file(const std::vector<rendezvous::FileValue>& values,
                                     const std::string& path);

  const RawOptions& raw() const { return raw_; }
  bool given(const std::string& name) const;
  std::vector<OptionEntry> entries() const;
  UsageError explain(const BadValue& bad) const;
  // Of the options that were not typed: the variable, or file and line, by their names.
  std::map<std::string, std::string> sources() const;

 private:
  struct Slot {
    OptionEntry entry;
    std::variant<std::string*, bool*> target;
    bool given = false;
    std::string source;  // beside the command line: the variable, or file and line
  };

  void option(const std::string& names, std::string& value, const std::string& takes, const std::string& help,
              const std::string& fallback = "");
  void flag(const std::string& names, bool& value, const std::string& help);
  void add_nodes_and_workers();
  void add_rendezvous();
  void add_program();
  void add_restarts();
  void add_output();
  void add_general();

  Slot& find(const std::string& typed);
  Slot* find_key(const std::string& key);
  void set(Slot& slot, const std::string& text, const std::string& source);
  void set_from_file(const rendezvous::FileValue& value, const std::string& where);

  RawOptions raw_;
  std::string group_;
  std::vector<Slot> slots_;
};

}  // namespace cpprun::launcher
