#include "launcher/agent/rank_assignment.hpp"

#include <cstddef>

namespace cpprun::launcher {

std::vector<WorkerRanks> assign_ranks(const rendezvous::WorkerSpan& span, int local_world_size) {
  std::vector<WorkerRanks> ranks;
  ranks.reserve(static_cast<std::size_t>(local_world_size));
  for (int local = 0; local < local_world_size; ++local) {
    ranks.push_back({local, span.first_rank + local, span.first_role_rank + local, span.world_size,
                     span.role_world_size});
  }
  return ranks;
}

}  // namespace cpprun::launcher
