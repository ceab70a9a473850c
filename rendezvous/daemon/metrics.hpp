// What a daemon tells Prometheus: its text format, version 0.0.4. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/daemon/run_registry.hpp"
#include "rendezvous/store/store_use.hpp"

namespace cpprun::rendezvous {

struct StoreReading {
  std::string name;  // the label of its series; none without
  store::StoreUse use;
};

struct DaemonReading {
  std::vector<StoreReading> stores;  // first the one that agents' port leads to, which has no name
  std::vector<RunReading> runs;
  std::uint64_t runs_opened = 0;
  std::uint64_t openings_refused = 0;
};

std::string to_prometheus(const DaemonReading& reading);

}  // namespace cpprun::rendezvous
