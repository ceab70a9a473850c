// What one finds behind an endpoint, from what the coordinator there does. Pure.
#pragma once

#include "rendezvous/coordinator.hpp"
#include "rendezvous/council/frames.hpp"
#include "rendezvous/membership.hpp"

namespace cpprun::rendezvous {

// `own_agent`: of the same process; null before it has begun.
inline CouncilStatus status_of(const Coordinator& coordinator, const Membership* own_agent) {
  if (coordinator.leads()) return CouncilStatus::Leads;
  const bool idle = coordinator.idle() && !(own_agent && own_agent->of_a_run());
  return idle ? CouncilStatus::Idle : CouncilStatus::Standby;
}

}  // namespace cpprun::rendezvous
