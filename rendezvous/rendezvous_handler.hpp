// How an agent finds its peers: the seam between the agent and the rendezvous backends.
#pragma once

#include <stdexcept>
#include <string>
#include <variant>

#include "rendezvous/async/tokens.hpp"

namespace cpprun::rendezvous {

// What one round gave this agent.
struct RendezvousInfo {
  int group_rank;
  int group_world_size;
  int round;
};

struct MembershipChanged {
  int waiting;  // nodes that wait to join
};
// A failed watch is an event, never a throw: the agent races it with other waits.
struct RendezvousLost {
  std::string reason;
};

// The rendezvous cannot go on.
struct RendezvousError : std::runtime_error {
  enum class Kind { Closed, Timeout, Connection, Corrupt };
  RendezvousError(Kind why, const std::string& what) : std::runtime_error(what), kind(why) {}
  Kind kind;
};

class RendezvousHandler {
 public:
  virtual ~RendezvousHandler() = default;

  // Joins the next round and waits for it to be complete. Throws RendezvousError.
  virtual awaitable<RendezvousInfo> next_rendezvous() = 0;

  // Returns when this round's membership is no longer what it was. Cancel-safe; never throws.
  virtual awaitable<std::variant<MembershipChanged, RendezvousLost>> membership_changed() = 0;
};

}  // namespace cpprun::rendezvous
