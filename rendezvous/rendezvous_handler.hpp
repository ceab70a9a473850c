// How an agent finds its peers: the seam between the agent and the rendezvous backends.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/async/deadline.hpp"
#include "rendezvous/async/tokens.hpp"

namespace cpprun::rendezvous {

struct StoreEndpoint {
  std::string address;
  std::uint16_t port = 0;

  bool operator==(const StoreEndpoint&) const = default;
};

// The ranks of one node's workers: those of its local rank 0, from which the others run on.
struct WorkerSpan {
  int first_rank = 0;
  int world_size = 0;
  int first_role_rank = 0;
  int role_world_size = 0;

  bool operator==(const WorkerSpan&) const = default;
};

// What one round gave this agent.
struct RendezvousInfo {
  int group_rank;
  int group_world_size;
  int round;            // from 0, of the workers' starts; equal on all nodes
  int restarts;         // earlier rounds whose end was charged to the restart budget, job-wide
  std::string address;  // of this node as its peers reach it
  WorkerSpan workers;   // of this node
  StoreEndpoint store;  // of this round's workers, empty at its start
};

// How a round ends before its workers are done. Several agents may want to end it; the first one's word holds
// for all.
struct RoundEnd {
  bool charged = false;  // against the restart budget
  bool final = false;    // no further round
  std::string sentence;  // why, for people
  std::string cause;     // why, for the other agents; opaque to the rendezvous
  // Ranks of the round's nodes that were lost; of one that has left, where the others do not go on without
  // it.
  std::vector<int> lost{};

  bool operator==(const RoundEnd&) const = default;
};
// This agent has been without a leader for so long that the others may soon go on without it: its workers are
// to be gone within `grace`. An event, never a throw: the agent races it with other waits.
struct RendezvousLost {
  std::string reason;
  std::chrono::milliseconds grace;
};
using RoundEvent = std::variant<RoundEnd, RendezvousLost>;

struct AllFinished {};
using FinishEvent = std::variant<AllFinished, RoundEnd, RendezvousLost>;

// The rendezvous cannot go on.
struct RendezvousError : std::runtime_error {
  enum class Kind { Closed, Timeout, Connection, Corrupt };
  RendezvousError(Kind why, const std::string& what) : std::runtime_error(what), kind(why) {}
  Kind kind;
};

// Opens the store of the workers of a round, empty, on the node with group rank 0, and says where they find
// it, given this node's address. No worker of an earlier round is left when it is called.
using OpenWorkerStore = std::function<StoreEndpoint(const std::string& own_address)>;

class RendezvousHandler {
 public:
  virtual ~RendezvousHandler() = default;

  // Joins the next round and waits for it to be complete. Nothing: the job ended well without this node, a
  // spare. Throws RendezvousError. When cancelled, the agent may still leave() and close().
  virtual awaitable<std::optional<RendezvousInfo>> next_rendezvous() = 0;

  // Returns when this round cannot go on. Cancel-safe; never throws.
  virtual awaitable<RoundEvent> round_ended() = 0;

  // The exit barrier: this node's workers have ended well. Waits for the other nodes' without a limit, as
  // long as these live. Cancel-safe; never throws.
  virtual awaitable<FinishEvent> finish() = 0;

  // While this node's workers are being stopped for whatever reason, with `limit` for the last of them:
  // returns when the others may go on without this node before that, and says until when. Cancel-safe; never
  // throws.
  virtual awaitable<async::Deadline> fenced_before(async::Deadline limit) = 0;

  // Asks for the end of the round, for all nodes. Returns at once; settled() tells what became of it.
  virtual void end_round(RoundEnd wanted) = 0;

  // After the round's end, when this node's workers are gone: how the round ended in the end. The verdict may
  // wait for the other nodes' workers: a failure that follows from the loss of a node is not charged.
  // Cancel-safe; never throws.
  virtual awaitable<RoundEnd> settled() = 0;

  // This node wants to go, whatever the round's state, and will close() when its workers are gone; the others
  // are told. Returns at once.
  virtual void leave(RoundEnd wanted) = 0;

  // This node's workers are gone. Ends all that the handler has running; a leader first lets its peers read
  // the last word, which is `why` where there was none. Bounded; never throws. The last call.
  virtual awaitable<void> close(std::string why) = 0;
};

}  // namespace cpprun::rendezvous
