#include "rendezvous/join_protocol.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace cpprun::rendezvous {
namespace {

constexpr std::size_t kNamedNodes = 8;  // in a sentence; of a large job the rest is a number

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The run of digits at `at` without its leading zeros.
std::string number_at(const std::string& text, std::size_t& at) {
  std::size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  std::size_t begin = at;
  while (begin + 1 < end && text[begin] == '0') ++begin;
  at = end;
  return text.substr(begin, end - begin);
}

// The first of `all` names, which may be more than are given.
std::string list(const std::vector<std::string>& names, std::size_t all) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamedNodes); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (all > kNamedNodes) text += " and " + std::to_string(all - kNamedNodes) + " more";
  return text;
}

}  // namespace

Seating seat(std::vector<Candidate> candidates, const RoundRule& rule) {
  Seating seating;
  std::set<int> taken;
  if (!rule.ranks_given) {
    std::stable_partition(candidates.begin(), candidates.end(),
                          [](const Candidate& candidate) { return candidate.previous_rank.has_value(); });
  }
  for (Candidate& candidate : candidates) {
    const int wish = candidate.node.wished_rank.value_or(-1);
    const bool fits = rule.ranks_given ? wish >= 0 && wish < rule.max_nodes && taken.insert(wish).second
                                       : static_cast<int>(seating.seated.size()) < rule.max_nodes;
    (fits ? seating.seated : seating.surplus).push_back(std::move(candidate));
  }
  return seating;
}

namespace {

// Each survivor as near to its former rank as the order among them and the room for those behind it allow.
void keep_survivors(const std::vector<Candidate>& seated, std::vector<int>& ranks) {
  std::vector<std::size_t> survivors;
  for (std::size_t i = 0; i < seated.size(); ++i) {
    if (seated[i].previous_rank) survivors.push_back(i);
  }
  std::stable_sort(survivors.begin(), survivors.end(), [&](std::size_t a, std::size_t b) {
    return *seated[a].previous_rank < *seated[b].previous_rank;
  });
  int lowest = 0;
  for (std::size_t i = 0; i < survivors.size(); ++i) {
    const int highest = static_cast<int>(seated.size() - (survivors.size() - i));
    ranks[survivors[i]] = std::clamp(*seated[survivors[i]].previous_rank, lowest, highest);
    lowest = ranks[survivors[i]] + 1;
  }
}

}  // namespace

std::vector<int> assign_group_ranks(const std::vector<Candidate>& seated) {
  const int nodes = static_cast<int>(seated.size());
  std::vector<int> ranks(seated.size(), -1);
  keep_survivors(seated, ranks);
  std::vector<bool> taken(seated.size(), false);
  for (const int rank : ranks) {
    if (rank >= 0) taken[static_cast<std::size_t>(rank)] = true;
  }
  std::vector<std::size_t> rest;
  for (std::size_t i = 0; i < seated.size(); ++i) {
    const int wish = seated[i].node.wished_rank.value_or(-1);
    if (ranks[i] >= 0) continue;
    if (wish >= 0 && wish < nodes && !taken[static_cast<std::size_t>(wish)]) {
      ranks[i] = wish;
      taken[static_cast<std::size_t>(wish)] = true;
    } else {
      rest.push_back(i);
    }
  }
  std::stable_sort(rest.begin(), rest.end(), [&](std::size_t a, std::size_t b) {
    return natural_less(seated[a].node.host, seated[b].node.host);
  });
  std::size_t hole = 0;
  for (const std::size_t i : rest) {
    while (taken[hole]) ++hole;
    taken[hole] = true;
    ranks[i] = static_cast<int>(hole);
  }
  return ranks;
}

std::vector<WorkerSpan> worker_spans(const std::vector<Node>& nodes) {
  std::vector<WorkerSpan> spans;
  spans.reserve(nodes.size());
  int world_size = 0;
  std::map<std::string, int> of_role;
  for (const Node& node : nodes) {
    int& role_size = of_role[node.role];
    spans.push_back({world_size, 0, role_size, 0});
    world_size += node.workers;
    role_size += node.workers;
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    spans[i].world_size = world_size;
    spans[i].role_world_size = of_role[nodes[i].role];
  }
  return spans;
}

bool natural_less(const std::string& a, const std::string& b) {
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      const std::string left = number_at(a, i);
      const std::string right = number_at(b, j);
      if (left.size() != right.size()) return left.size() < right.size();
      if (left != right) return left < right;
    } else {
      if (a[i] != b[j]) return a[i] < b[j];
      ++i;
      ++j;
    }
  }
  return a.size() - i < b.size() - j;
}

std::string describe(const Node& node, std::optional<int> rank) {
  const std::string where = node.host + ", pid " + std::to_string(node.pid);
  if (rank) return "node " + std::to_string(*rank) + " (" + where + ")";
  return node.host + " (pid " + std::to_string(node.pid) + ")";
}

std::string describe(const Candidate& candidate) {
  return describe(candidate.node,
                  candidate.previous_rank ? candidate.previous_rank : candidate.node.wished_rank);
}

std::string describe(const Seating& seating, const RoundRule& rule) {
  std::vector<std::string> joined;
  std::set<int> ranks;
  for (const Candidate& candidate : seating.seated) {
    if (joined.size() <= kNamedNodes) joined.push_back(describe(candidate));
    if (candidate.node.wished_rank) ranks.insert(*candidate.node.wished_rank);
  }
  const std::string most = std::to_string(rule.max_nodes);
  std::string text =
      std::to_string(seating.seated.size()) + " of " +
      (rule.min_nodes == rule.max_nodes ? most : std::to_string(rule.min_nodes) + " to " + most) +
      " nodes have joined";
  if (!joined.empty()) text += " (" + list(joined, seating.seated.size()) + ")";
  if (!rule.ranks_given) return text;
  std::vector<std::string> missing;
  for (int rank = 0; rank < rule.max_nodes; ++rank) {
    if (ranks.count(rank) == 0) missing.push_back("node " + std::to_string(rank));
  }
  return missing.empty() ? text : text + "; missing: " + list(missing, missing.size());
}

}  // namespace cpprun::rendezvous
