#include "launcher/launch_config.hpp"

#include "rendezvous/store/address_text.hpp"

namespace cpprun::launcher {

std::string describe(const LaunchConfig& config) {
  std::string text = "run ";
  text += config.run_id == "none" ? "without a name of its own (--rdzv-id)" : config.run_id;  // the default
  text += ": " + std::to_string(config.nproc_per_node);
  text += config.nproc_per_node == 1 ? " worker" : " workers";
  text += " a node, " + std::to_string(config.min_nodes);
  if (config.max_nodes != config.min_nodes) text += " to " + std::to_string(config.max_nodes);
  text += config.max_nodes == 1 ? " node, " : " nodes, ";
  text += std::to_string(config.max_restarts) + (config.max_restarts == 1 ? " restart" : " restarts");
  if (config.meets_peers()) text += ", " + config.rdzv_backend + " at " + meeting_points(config);
  return text;
}

std::string name_of(const std::string& option, const LaunchConfig& config) {
  const auto source = config.sources.find(option);
  return source == config.sources.end() ? option : option + " (" + source->second + ")";
}

std::string meeting_points(const LaunchConfig& config) {
  std::string text;
  for (const rendezvous::Endpoint& endpoint : config.endpoints) {
    if (!text.empty()) text += ", then ";
    text += store::to_text(endpoint.host, *endpoint.port);
  }
  return text;
}

}  // namespace cpprun::launcher
