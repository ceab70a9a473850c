#include "launcher/agent/rank_assignment.hpp"

namespace cpprun::launcher {

std::vector<WorkerRanks> assign_ranks(const std::vector<NodeWorkers>& nodes, int group_rank) {
  const NodeWorkers& mine = nodes.at(static_cast<std::size_t>(group_rank));
  int world_size = 0;
  int role_world_size = 0;
  int first_global = 0;
  int first_role = 0;
  for (int node = 0; node < static_cast<int>(nodes.size()); ++node) {
    const NodeWorkers& workers = nodes[static_cast<std::size_t>(node)];
    const int of_my_role = workers.role == mine.role ? workers.local_world_size : 0;
    if (node < group_rank) {
      first_global += workers.local_world_size;
      first_role += of_my_role;
    }
    world_size += workers.local_world_size;
    role_world_size += of_my_role;
  }
  std::vector<WorkerRanks> ranks;
  ranks.reserve(static_cast<std::size_t>(mine.local_world_size));
  for (int local = 0; local < mine.local_world_size; ++local) {
    ranks.push_back({local, first_global + local, first_role + local, world_size, role_world_size});
  }
  return ranks;
}

}  // namespace cpprun::launcher
