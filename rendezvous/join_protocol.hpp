// Who takes part in a round and as which rank. Pure; what the store's host decides for all.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace cpprun::rendezvous {

// One agent that asks to take part.
struct Node {
  std::string host;
  int pid = 0;
  int nodes = 0;                     // that it expects the run to have
  std::optional<int> wished_rank;    // --node-rank
  std::optional<int> previous_rank;  // in the round before
};

// As the store holds it. Reading gives nothing for text that is no node.
std::string to_json(const Node& node);
std::optional<Node> node_from_json(const std::string& text);

struct Member {
  int slot;  // number of its arrival in the round
  Node node;
};

struct RoundRule {
  int nodes;         // that make the round complete
  bool ranks_given;  // each node's rank is its wished one (static rendezvous)
};

struct Seating {
  std::vector<Member> seated;   // in the order of arrival
  std::vector<Member> surplus;  // have no place while the seated ones live
};
// Survivors of the round before are seated, then who came first; where ranks are given, the first of each
// rank below the rule's nodes.
Seating seat(const std::vector<Member>& members, const RoundRule& rule);

// Group ranks for the members of a complete round, in their order. Survivors keep their rank; a wish that is
// free is granted; the others fill the holes by their hosts' natural order (host9 before host10), then by
// arrival.
std::vector<int> assign_group_ranks(const std::vector<Member>& members);

// "host9" < "host10": runs of digits compare as numbers.
bool natural_less(const std::string& a, const std::string& b);

// "node 1 (hostB, pid 77)", or "hostB (pid 77)" for one without rank.
std::string describe(const Node& node);
// "1 of 2 nodes have joined (node 1 (hostB, pid 77)); missing: node 0".
std::string describe(const Seating& seating, const RoundRule& rule);

}  // namespace cpprun::rendezvous
