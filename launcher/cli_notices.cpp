#include "launcher/cli_notices.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>

#include "launcher/health/hang_limits.hpp"
#include "launcher/log.hpp"
#include "launcher/text.hpp"
#include "rendezvous/store/address_text.hpp"

namespace cpprun::launcher {
namespace {

bool has(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

// torchrun takes any key.
void look_at_settings(const LaunchConfig& config, std::vector<BadValue>& odd) {
  std::vector<std::string> known;
  for (const rendezvous::KnownSetting& setting : rendezvous::known_settings()) known.push_back(setting.key);
  for (const auto& [key, value] : config.rdzv_settings) {
    if (!has(known, key)) {
      odd.push_back(
          {"--rdzv-conf", "the unknown key '" + key + "' has no effect" + did_you_mean(key, known), ""});
    }
  }
  if (!config.meets_peers()) return;
  for (const rendezvous::KnownSetting& setting : rendezvous::known_settings()) {
    const bool given = config.rdzv_settings.count(setting.key) != 0;
    if (!given || setting.backends.empty() || has(setting.backends, config.rdzv_backend)) continue;
    std::string backends = setting.backends.front();
    if (setting.backends.size() > 1) backends.append(" and ").append(setting.backends.back());
    odd.push_back({"--rdzv-conf",
                   "the key '" + setting.key + "' has no effect with --rdzv-backend " + config.rdzv_backend +
                       "; it is for " + backends,
                   ""});
  }
}

void look_at_nodes(const LaunchConfig& config, std::vector<BadValue>& odd) {
  std::set<std::string> points;
  for (const rendezvous::Endpoint& endpoint : config.endpoints) {
    const std::string point = store::to_text(endpoint.host, *endpoint.port);
    if (!points.insert(point).second)
      odd.push_back({"--rdzv-endpoint", "'" + point + "' is there twice", ""});
  }
  if (std::any_of(config.run_id.begin(), config.run_id.end(), rendezvous::is_control)) {
    odd.push_back({"--rdzv-id", "'" + config.run_id + "' holds characters that cannot be seen", ""});
  }
}

// Ranks begin at 0.
void look_at_ranks(const LaunchConfig& config, std::vector<BadValue>& odd) {
  const std::set<int>& shown = config.redirects.shown_ranks;
  for (const auto& [option, highest] :
       {std::pair{"--redirects", config.redirects.redirects.highest_rank()},
        std::pair{"--tee", config.redirects.tee.highest_rank()},
        std::pair{"--local-ranks-filter", shown.empty() ? -1 : *shown.rbegin()}}) {
    if (highest < config.nproc_per_node) continue;
    odd.push_back({option, "no worker of this node has the local rank " + std::to_string(highest), ""});
  }
}

// Quoted, and what is to be said of it.
std::string said_of(std::string value, const char* what) {
  return value.insert(0, "'").append("' ").append(what);
}

void look_at_variables(std::vector<BadValue>& odd) {
  const char* level = std::getenv("LOGLEVEL");
  if (level && *level && !is_log_level(level)) {
    odd.push_back({"LOGLEVEL",
                   said_of(level, "is none of DEBUG, INFO, WARNING, ERROR and CRITICAL; it counts as INFO"),
                   ""});
  }
  const char* name = "TORCHELASTIC_UNINTERRUPTIBLE_STATE_TIMEOUT";
  const char* limit = std::getenv(name);
  if (limit && *limit && std::string(limit) != "0" && !stuck_limit(limit)) {
    odd.push_back(
        {name, said_of(limit, "is not a positive number of seconds; nobody looks for stuck workers"), ""});
  }
}

}  // namespace

std::vector<BadValue> odd_values(const LaunchConfig& config) {
  std::vector<BadValue> odd;
  look_at_nodes(config, odd);
  look_at_settings(config, odd);
  look_at_ranks(config, odd);
  look_at_variables(odd);
  return odd;
}

}  // namespace cpprun::launcher
