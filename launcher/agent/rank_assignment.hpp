// Who is who among the workers of one node. Pure.
#pragma once

#include <vector>

#include "rendezvous/rendezvous_handler.hpp"

namespace cpprun::launcher {

struct WorkerRanks {
  int local;
  int global;
  int role;
  int world_size;
  int role_world_size;
};

// In the order of their local ranks.
std::vector<WorkerRanks> assign_ranks(const rendezvous::WorkerSpan& span, int local_world_size);

}  // namespace cpprun::launcher
