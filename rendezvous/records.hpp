// What an agent and the run's leader tell each other: one report of each agent, one order for each agent.
// Both are states, not events: the latest holds, so that one that is lost or comes twice does no harm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/join_protocol.hpp"
#include "rendezvous/rendezvous_handler.hpp"

namespace cpprun::rendezvous {

// A node's place in a round.
struct Ticket {
  std::int64_t serial = 0;  // of the offer; grows over all leaders of a run; 0: none
  int round = -1;
  int rank = -1;
  int nodes = 0;
  int restarts = 0;  // charged before this round
  // The round that ran before: a new leader needs to know of whom it needs more than half.
  std::int64_t after_serial = 0;
  int after_nodes = 0;

  bool operator==(const Ticket&) const = default;
};

enum class AgentState {
  Waiting,   // has no workers; wants a place
  Running,   // has workers of the round `run`
  Finished,  // its workers of that round ended well
  Leaving,   // wants no place any more, and still has workers
  Gone,      // has no workers and wants no place
};

struct Report {
  std::string id;  // of the agent, unique
  Node node;
  AgentState state = AgentState::Waiting;
  Ticket run;                          // the last round whose workers it started
  Ticket offered;                      // the last place that it has accepted
  std::optional<StoreEndpoint> store;  // from rank 0 of `offered`: that round's workers' store
  std::optional<RoundEnd> end;         // how it wants the round `run` to end

  bool operator==(const Report&) const = default;
};

// Its workers are alive, or may be.
bool has_workers(const Report& report);

struct Order {
  enum class Kind {
    Wait,       // for a place; `text` says for what
    Park,       // the round is full; wait as a spare, without a limit
    Offer,      // accept `ticket`, if you have no workers; rank 0 opens the workers' store
    Run,        // all have accepted: start the workers
    End,        // the round `ticket` ends as `end` says: stop the workers
    Finished,   // the job is done, well
    Refused,    // there is no place for this node; `text` says why
    Elsewhere,  // nobody leads here
  };
  Kind kind = Kind::Wait;
  std::string text;
  std::string notice;  // what this node's user should know; goes with every order to it
  Ticket ticket;
  WorkerSpan workers;
  StoreEndpoint store;
  RoundEnd end;  // else: the verdict on the round before, for its nodes

  bool operator==(const Order&) const = default;
};

// As they travel. Reading gives nothing for text that is no such record.
std::string to_json(const Report& report);
std::string to_json(const Order& order);
std::optional<Report> report_from_json(const std::string& text);
std::optional<Order> order_from_json(const std::string& text);

}  // namespace cpprun::rendezvous
