// The rendezvous of a job whose membership is given from the start and never changes. With one node there is
// nobody to meet, so it takes no store.
#pragma once

#include "rendezvous/rendezvous_handler.hpp"

namespace cpprun::rendezvous {

class StaticRendezvous : public RendezvousHandler {
 public:
  awaitable<RendezvousInfo> next_rendezvous() override;
  awaitable<std::variant<MembershipChanged, RendezvousLost>> membership_changed() override;

 private:
  int rounds_ = 0;
};

}  // namespace cpprun::rendezvous
