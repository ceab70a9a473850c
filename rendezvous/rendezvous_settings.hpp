// What the user may say about a rendezvous: endpoint and --rdzv-conf. Pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace cpprun::rendezvous {

// A malformed endpoint or setting; the sentence says which and what it should be.
struct SettingsError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

struct Endpoint {
  std::string host;  // without brackets
  std::optional<std::uint16_t> port;
};

// "host", "host:port", "[v6]", "[v6]:port", or a bare IPv6 address (more than one colon, no brackets).
// Empty text is localhost. Throws SettingsError.
Endpoint parse_endpoint(const std::string& text);
// Several of them, separated by commas, in the order in which they are to lead. Throws SettingsError.
std::vector<Endpoint> parse_endpoints(const std::string& text);

// Keys and values of --rdzv-conf, "k=v,k=v".
using Settings = std::map<std::string, std::string>;

// Throws SettingsError for an entry without key or value.
Settings parse_settings(const std::string& text);

// A key of --rdzv-conf, and the backends for which alone it is; none: it is for all, or torchrun's and
// accepted without effect.
struct KnownSetting {
  std::string key;
  std::vector<std::string> backends;
};
const std::vector<KnownSetting>& known_settings();

struct RendezvousLimits {
  std::chrono::milliseconds join_timeout{600'000};       // a whole join
  std::chrono::milliseconds connect_timeout{60'000};     // of that, until a leader has answered
  std::chrono::milliseconds last_call{30'000};           // for more than the least number of nodes
  std::chrono::milliseconds keep_alive_interval{1'000};  // between two heartbeats of a node
  int keep_alive_attempts = 3;                           // heartbeats missed by a node that is dead
  std::optional<bool> is_host;                           // serve the first endpoint, whatever it says

  // The silence after which a node is dead to its leader, and the leader to a node.
  std::chrono::milliseconds death_limit() const { return keep_alive_interval * keep_alive_attempts; }
  // In which a node that has lost its leader ends its workers.
  std::chrono::milliseconds stop_margin() const {
    return std::min(std::chrono::milliseconds(1000), death_limit() / 3);
  }
};
// From --rdzv-conf; times in seconds. The static backend's join and connect take their limit from `timeout`
// (900 s), the others' from `join_timeout` and `read_timeout`, and etcd's join also from `timeout`. Every
// time must be one, also those that this product has no use for; other keys are left alone, as torchrun
// leaves all that it does not know. Throws SettingsError.
RendezvousLimits limits_of(const Settings& settings, const std::string& backend);

}  // namespace cpprun::rendezvous
