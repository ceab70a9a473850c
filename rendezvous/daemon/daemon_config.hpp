// What the operator has asked of cpprund: from the command line and a JSON file of the same names, where the
// command line wins.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "rendezvous/daemon/run_registry.hpp"
#include "rendezvous/store/secret.hpp"
#include "rendezvous/store/server_config.hpp"

namespace cpprun::rendezvous {

// The sentence says which option or file is wrong and what would be right. Exit code 2.
struct ConfigError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

struct BindAddress {
  std::optional<asio::ip::address> address;  // none: every interface
  std::uint16_t port = 0;                    // 0: one of the kernel's choice
};

// A namespace of its own for clients that cannot say which they mean: it has its own port.
struct NamedStore {
  std::string name;        // 1 to 64 letters, digits, '.', '_' and '-'; once only
  std::uint16_t port = 0;  // at the address of `bind`; 0: one of the kernel's choice
};

struct DaemonConfig {
  BindAddress bind{std::nullopt, 29400};  // of the store and of the agents
  std::optional<BindAddress> http;        // of /healthz and /metrics
  std::optional<int> ready_fd;
  std::chrono::milliseconds drain_limit{30'000};
  RegistryLimits runs;
  store::ServerLimits store;                    // of each store by itself
  std::shared_ptr<const store::Secret> secret;  // of the agents and the store's clients; null: none
  std::vector<NamedStore> stores;
  std::string log_level = "info";
};

// Nothing where help or the version was asked for; that is in `printed` then. Throws ConfigError.
std::optional<DaemonConfig> parse_daemon_config(int argc, const char* const* argv, std::string& printed);

}  // namespace cpprun::rendezvous
