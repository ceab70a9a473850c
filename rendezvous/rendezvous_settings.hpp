// What the user may say about a rendezvous: endpoint and --rdzv-conf. Pure.
#pragma once

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

}  // namespace cpprun::rendezvous
