// Who takes part in a round and as which rank. Pure; what the run's leader decides for all.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rendezvous/rendezvous_handler.hpp"

namespace cpprun::rendezvous {

// One agent that asks to take part.
struct Node {
  std::string host;
  int pid = 0;
  int min_nodes = 0;  // that it expects the run to have
  int max_nodes = 0;
  std::optional<int> wished_rank;  // --node-rank
  std::string address;             // as its peers reach it
  std::string role;                // of its workers
  int workers = 0;                 // how many
  // Of the run, as this node's user would have them (coordinator_rules.hpp); empty: unsaid.
  std::string rules = {};

  bool operator==(const Node&) const = default;
};

struct Candidate {
  int arrival;  // their order in time
  Node node;
  std::optional<int> previous_rank = std::nullopt;  // of a survivor: in the round before
};

struct RoundRule {
  int min_nodes;             // with which a round may begin
  int max_nodes;             // of a round
  bool ranks_given = false;  // each node's rank is its wished one (static rendezvous)
};

struct Seating {
  std::vector<Candidate> seated;   // in the order given
  std::vector<Candidate> surplus;  // have no place while the seated ones live
};
// Survivors are seated, then who came first; where ranks are given, the first of each rank below the rule's
// nodes.
Seating seat(std::vector<Candidate> candidates, const RoundRule& rule);

// Group ranks for the nodes of a round, in their order. Survivors keep their order among themselves and,
// where the round's size lets them, their rank; a wish that is free is granted; the others fill the holes by
// their hosts' natural order (host9 before host10), then by arrival.
std::vector<int> assign_group_ranks(const std::vector<Candidate>& seated);

// What workers each node has, from all nodes in the order of their group ranks. Global ranks run on in that
// order; role ranks count only the workers of the same role.
std::vector<WorkerSpan> worker_spans(const std::vector<Node>& nodes);

// "host9" < "host10": runs of digits compare as numbers.
bool natural_less(const std::string& a, const std::string& b);

// "node 1 (hostB, pid 77)", or "hostB (pid 77)" without a rank.
std::string describe(const Node& node, std::optional<int> rank);
std::string describe(const Candidate& candidate);
// "1 of 2 nodes have joined (node 1 (hostB, pid 77)); missing: node 0", "2 of 2 to 4 nodes have joined
// (...)".
std::string describe(const Seating& seating, const RoundRule& rule);

}  // namespace cpprun::rendezvous
