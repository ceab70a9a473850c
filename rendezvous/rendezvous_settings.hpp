// What the user may say about a rendezvous: endpoint and --rdzv-conf. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>

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

// Keys and values of --rdzv-conf, "k=v,k=v".
using Settings = std::map<std::string, std::string>;

// Throws SettingsError for an entry without key or value.
Settings parse_settings(const std::string& text);

struct RendezvousLimits {
  std::chrono::milliseconds join_timeout{600'000};       // a whole join
  std::chrono::milliseconds connect_timeout{60'000};     // of that, until the store has answered
  std::chrono::milliseconds keep_alive_interval{1'000};  // between two heartbeats of a node
  int keep_alive_attempts = 3;                           // heartbeats missed by a node that is dead
  // How long newcomers leave the places of nodes that are still stopping the workers of the round before.
  std::chrono::milliseconds survivor_patience{35'000};
  std::optional<bool> is_host;  // serve the store, whatever the endpoint says
};
// From --rdzv-conf; times in seconds. The static backend's join and connect take their limit from `timeout`
// (900 s), the others' from `join_timeout` and `read_timeout`. Every time must be one, also
// those that this product has no use for; other keys are left alone, as torchrun leaves all that it does not
// know. Throws SettingsError.
RendezvousLimits limits_of(const Settings& settings, bool static_backend);

}  // namespace cpprun::rendezvous
