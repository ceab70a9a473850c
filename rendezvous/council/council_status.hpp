// What one finds behind an endpoint, from what the coordinator there does. Pure.
#pragma once

#include "rendezvous/coordinator.hpp"
#include "rendezvous/council/frames.hpp"

namespace cpprun::rendezvous {

inline CouncilStatus status_of(const Coordinator& coordinator) {
  if (coordinator.leads()) return CouncilStatus::Leads;
  return coordinator.idle() ? CouncilStatus::Idle : CouncilStatus::Standby;
}

}  // namespace cpprun::rendezvous
