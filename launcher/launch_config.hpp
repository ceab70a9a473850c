// Everything the user asked for, checked: the value that the command line, the environment and nothing else
// turn into.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "launcher/health/hang_limits.hpp"
#include "launcher/process/binding.hpp"
#include "launcher/process/redirect_policy.hpp"
#include "launcher/report/event.hpp"
#include "launcher/report/verdict_rules.hpp"
#include "rendezvous/rendezvous_settings.hpp"
#include "rendezvous/store/secret.hpp"

namespace cpprun::launcher {

// Wrong usage or configuration; the sentence says what is wrong and what would be right. Exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Stands in a dry run's config for the run id that a start would draw.
inline constexpr const char* kRandomRunId = "<random>";

struct LaunchConfig {
  // nodes and workers
  int min_nodes = 1;
  int max_nodes = 1;
  int nproc_per_node = 1;
  std::vector<int> gpus;  // --gpus; empty: those that cpprun itself sees
  std::string role = "default";
  int node_rank = 0;  // of static rendezvous; else a wish where it is not 0
  bool virtual_local_rank = false;
  std::optional<NumaBinding> numa_binding;

  // rendezvous
  bool standalone = false;
  std::string rdzv_backend = "static";
  std::string run_id;
  rendezvous::Settings rdzv_settings;
  rendezvous::RendezvousLimits rdzv_limits;
  std::vector<rendezvous::Endpoint>
      endpoints;  // where agents meet, each with a port; none: this one is alone

  bool meets_peers() const { return !endpoints.empty(); }
  // The workers' store is on 127.0.0.1, where nobody else can reach it.
  bool keeps_to_itself() const { return standalone || (store_proxy && !meets_peers()); }
  std::string master_addr = "127.0.0.1";
  std::optional<std::uint16_t> master_port;
  std::optional<std::string> local_addr;
  std::shared_ptr<const store::Secret> secret;  // of the job; null: none
  bool store_proxy = false;                     // workers reach their store through their own node's agent

  // what to run
  bool module = false;
  bool no_python = false;
  bool run_path = false;             // beats the other two
  std::vector<std::string> command;  // the program and its arguments, as typed

  // restarts and ends
  int max_restarts = 0;
  std::chrono::milliseconds shutdown_timeout{30'000};
  std::vector<int> signals_to_handle;
  HangLimits hang_limits;  // off unless asked for
  std::string signals_text;

  // output
  std::optional<std::string> log_dir;
  RedirectPolicy redirects;
  std::string prefix_template;
  EventDestination events;
  VerdictRules verdict_rules;  // the user's, then the built-in ones

  std::vector<std::string> notices;  // of what was asked for and is not quite what happens

  std::map<std::string, std::string>
      sources;  // of options that were not typed: the variable, or file and line

  bool dry_run = false;  // print what would run instead of running it
};

// One line for the log: what is about to run.
std::string describe(const LaunchConfig& config);

// "--log-dir", with its source where it was not typed: for refusals that come after the command line.
std::string name_of(const std::string& option, const LaunchConfig& config);

// "host:29400, then other:29400"; empty for a node that meets nobody.
std::string meeting_points(const LaunchConfig& config);

}  // namespace cpprun::launcher
