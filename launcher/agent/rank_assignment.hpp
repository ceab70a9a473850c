// Who is who in one round: ranks from what each agent brings. Pure.
#pragma once

#include <string>
#include <vector>

namespace cpprun::launcher {

struct NodeWorkers {
  std::string role;
  int local_world_size;
};

struct WorkerRanks {
  int local;
  int global;
  int role;
  int world_size;
  int role_world_size;
};

// The ranks of the workers of the agent `group_rank`, in the order of their local ranks. Global ranks run on
// in the order of the agents; role ranks count only the workers of the same role. `nodes` lists all agents in
// the order of their group ranks.
std::vector<WorkerRanks> assign_ranks(const std::vector<NodeWorkers>& nodes, int group_rank);

}  // namespace cpprun::launcher
