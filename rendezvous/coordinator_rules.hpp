// What the user has said about a run as a whole. Each agent knows it; where a daemon leads, the first agent's
// holds.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "rendezvous/join_protocol.hpp"

namespace cpprun::rendezvous {

struct CoordinatorRules {
  RoundRule round;
  int max_restarts = 0;
  std::chrono::milliseconds last_call{30'000};     // for more nodes in the first round, once there are enough
  std::chrono::milliseconds death_limit{3'000};    // of silence: the agent is taken for dead
  std::chrono::milliseconds stop_margin{1'000};    // after that its workers are gone
  std::chrono::milliseconds company{1'000};        // how long a newcomer waits for others before a restart
  std::chrono::milliseconds accept_limit{60'000};  // for an offered place
  int endpoints = 1;                               // at which a leader may be
  int own_endpoint = 0;                            // this one's
};

// As it travels; which endpoint is the leader's own is its own affair. Reading gives nothing for text that is
// no such record, or one with values out of range.
std::string to_json(const CoordinatorRules& rules);
std::optional<CoordinatorRules> rules_from_json(const std::string& text);

// What a node's user has said otherwise than the run has it, though the node can take part: "--max-restarts
// 3, not 0". Empty where that is nothing.
std::string differences(const CoordinatorRules& node, const CoordinatorRules& run);

}  // namespace cpprun::rendezvous
