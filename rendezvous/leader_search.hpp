// Which endpoints an agent asks for its run's leader, and in which order. Pure.
#pragma once

#include <chrono>
#include <optional>

#include "rendezvous/membership.hpp"

namespace cpprun::rendezvous {

class LeaderSearch {
 public:
  struct Step {
    int endpoint;
    bool to_be_counted;  // stay there though nobody leads: with others that have lost their leader
  };

  explicit LeaderSearch(int endpoints) : endpoints_(endpoints) {}

  // A turn around the endpoints: only to the leader while the agent still follows it. A member of a round
  // that has lost its leader begins behind that one's endpoint, which is left out in the first turn: it was
  // tried until now. It is counted for no other while the former leader's leases to other agents, which rest on
  // this one, may last.
  void begin_turn(const Membership& membership, Membership::TimePoint now);
  // Nothing: the turn is over.
  std::optional<Step> next_step();
  // The endpoint of the last step answers, and nobody leads there. Who has lost the leader is counted at the
  // first of them all: a place that does not depend on who led, or agents of different pasts would never
  // meet.
  void answered(int endpoint);
  // The agent is led from there.
  void led_from(int endpoint) {
    leader_ = endpoint;
    followed_ = true;
  }

 private:
  int endpoints_;
  int leader_ = 0;
  bool followed_ = false;  // at the beginning of the last turn, or since
  int first_ = 0;
  int left_ = 0;  // endpoints of this turn
  int all_ = 0;
  bool may_be_counted_ = false;
  std::optional<int> standby_;
};

// How often to send a sign of life. A leader that takes agents for dead sooner than this node's user has
// said, as its leases tell, is told more often; a lease that is about to end is no reason for a flood.
std::chrono::milliseconds next_beat_interval(std::chrono::milliseconds own, std::chrono::nanoseconds lease);

}  // namespace cpprun::rendezvous
