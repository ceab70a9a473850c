// How an agent finds its peers: the seam between the agent and the rendezvous backends.
#pragma once

#include <stdexcept>
#include <string>
#include <variant>

#include "rendezvous/async/tokens.hpp"
#include "rendezvous/store/store.hpp"

namespace cpprun::rendezvous {

// What one round gave this agent.
struct RendezvousInfo {
  int group_rank;
  int group_world_size;
  int round;            // from 0; equal on all nodes
  int restarts;         // earlier rounds whose end was charged to the restart budget, job-wide
  std::string address;  // of this node as its peers reach it
};

// How a round ends before its workers are done. Several agents may want to end it; the first one's word holds
// for all.
struct RoundEnd {
  bool charged;          // against the restart budget
  bool final;            // no further round
  std::string sentence;  // why, for people
  std::string cause;     // why, for the other agents; opaque to the rendezvous
};
// A node has gone without a word. Told to the store's host, who decides what follows.
struct NodeLost {
  std::string what;  // a sentence that names it
};
// The store cannot be reached any more. A failed watch is an event, never a throw: the agent races it with
// other waits.
struct RendezvousLost {
  std::string reason;
};
using RoundEvent = std::variant<RoundEnd, NodeLost, RendezvousLost>;

struct AllFinished {};
using FinishEvent = std::variant<AllFinished, RoundEnd, NodeLost, RendezvousLost>;

// The rendezvous cannot go on.
struct RendezvousError : std::runtime_error {
  enum class Kind { Closed, Timeout, Connection, Corrupt };
  RendezvousError(Kind why, const std::string& what) : std::runtime_error(what), kind(why) {}
  Kind kind;
};

class RendezvousHandler {
 public:
  virtual ~RendezvousHandler() = default;

  // Joins the next round and waits for it to be complete. Throws RendezvousError. When cancelled, the agent
  // may still leave() and close().
  virtual awaitable<RendezvousInfo> next_rendezvous() = 0;

  // The keys of the present round, empty at its start.
  virtual store::Store& round_store() = 0;

  // Returns when this round cannot go on. Cancel-safe; never throws.
  virtual awaitable<RoundEvent> round_ended() = 0;

  // The exit barrier: this node's workers have ended well. Waits for the other nodes' without a limit, as
  // long as these live. Cancel-safe; never throws.
  virtual awaitable<FinishEvent> finish() = 0;

  // Ends the round for all nodes and returns how it ends: as wanted, or as another agent was first to say.
  // Without a store, as wanted. Bounded; never throws.
  virtual awaitable<RoundEnd> end_round(RoundEnd wanted) = 0;

  // This node goes, whatever the round's state; the others are told. Bounded; never throws.
  virtual awaitable<void> leave(RoundEnd wanted) = 0;

  // Ends all that the handler has running; the store's host first lets its peers read the last word. Bounded;
  // never throws. The last call.
  virtual awaitable<void> close() = 0;
};

}  // namespace cpprun::rendezvous
