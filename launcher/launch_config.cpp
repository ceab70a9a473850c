#include "launcher/launch_config.hpp"

namespace cpprun::launcher {

std::string describe(const LaunchConfig& config) {
  std::string text = "run " + config.run_id + ": " + std::to_string(config.nproc_per_node) +
                     (config.nproc_per_node == 1 ? " worker" : " workers") + " a node, " +
                     std::to_string(config.min_nodes);
  if (config.max_nodes != config.min_nodes) text += " to " + std::to_string(config.max_nodes);
  text += config.max_nodes == 1 ? " node, " : " nodes, ";
  text += std::to_string(config.max_restarts) + (config.max_restarts == 1 ? " restart" : " restarts");
  return text;
}

}  // namespace cpprun::launcher
