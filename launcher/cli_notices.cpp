#include "launcher/cli_notices.hpp"

#include <algorithm>
#include <string>

#include "launcher/text.hpp"

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

}  // namespace

std::vector<BadValue> odd_values(const LaunchConfig& config) {
  std::vector<BadValue> odd;
  look_at_settings(config, odd);
  return odd;
}

}  // namespace cpprun::launcher
