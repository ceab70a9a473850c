// --dry-run: what a launch would start, rank by rank. Pure.
#pragma once

#include <string>
#include <vector>

#include "launcher/agent/worker_spec.hpp"
#include "launcher/launch_config.hpp"

namespace cpprun::launcher {

struct DryRun {
  WorkerSpec spec;
  std::vector<std::string> inherited;  // "NAME=value": our own environment, before anything was added
  std::string folder;                  // that workers run in
  std::string temporary_folder;        // for logs without --log-dir
  std::string progress_folder;         // of the workers' progress pages
};

// What is known only after a start stands between < and >.
std::string to_text(const DryRun& plan, const LaunchConfig& config);

}  // namespace cpprun::launcher
