#include "rendezvous/join_protocol.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

namespace cpprun::rendezvous {
namespace {

using nlohmann::json;

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

std::optional<int> integer_in(const json& object, const char* name) {
  const json::const_iterator entry = object.find(name);
  if (entry == object.end() || !entry->is_number_integer()) return std::nullopt;
  return entry->get<int>();
}

std::string list(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kNamedNodes); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kNamedNodes) text += " and " + std::to_string(names.size() - kNamedNodes) + " more";
  return text;
}

}  // namespace

std::string to_json(const Node& node) {
  json object = {{"host", node.host}, {"pid", node.pid}, {"nodes", node.nodes}};
  if (node.wished_rank) object["wished_rank"] = *node.wished_rank;
  if (node.previous_rank) object["previous_rank"] = *node.previous_rank;
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<Node> node_from_json(const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object() || !object.contains("host") || !object["host"].is_string()) return std::nullopt;
  const std::optional<int> pid = integer_in(object, "pid");
  const std::optional<int> nodes = integer_in(object, "nodes");
  if (!pid || !nodes) return std::nullopt;
  return Node{object["host"].get<std::string>(), *pid, *nodes, integer_in(object, "wished_rank"),
              integer_in(object, "previous_rank")};
}

Seating seat(const std::vector<Member>& members, const RoundRule& rule) {
  Seating seating;
  std::set<int> taken;
  std::vector<Member> in_turn = members;
  if (!rule.ranks_given) {
    std::stable_partition(in_turn.begin(), in_turn.end(),
                          [](const Member& member) { return member.node.previous_rank.has_value(); });
  }
  for (const Member& member : in_turn) {
    const int wish = member.node.wished_rank.value_or(-1);
    const bool fits = rule.ranks_given ? wish >= 0 && wish < rule.nodes && taken.insert(wish).second
                                       : static_cast<int>(seating.seated.size()) < rule.nodes;
    (fits ? seating.seated : seating.surplus).push_back(member);
  }
  return seating;
}

std::vector<int> assign_group_ranks(const std::vector<Member>& members) {
  const int nodes = static_cast<int>(members.size());
  std::vector<int> ranks(members.size(), -1);
  std::set<int> taken;
  const auto grant = [&](std::size_t member, std::optional<int> rank) {
    if (ranks[member] < 0 && rank && *rank >= 0 && *rank < nodes && taken.insert(*rank).second) {
      ranks[member] = *rank;
    }
  };
  for (std::size_t i = 0; i < members.size(); ++i) grant(i, members[i].node.previous_rank);
  for (std::size_t i = 0; i < members.size(); ++i) grant(i, members[i].node.wished_rank);
  std::vector<std::size_t> rest;
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (ranks[i] < 0) rest.push_back(i);
  }
  std::stable_sort(rest.begin(), rest.end(), [&](std::size_t a, std::size_t b) {
    return natural_less(members[a].node.host, members[b].node.host);
  });
  int hole = 0;
  for (const std::size_t member : rest) {
    while (taken.count(hole) != 0) ++hole;
    taken.insert(hole);
    ranks[member] = hole;
  }
  return ranks;
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

std::string describe(const Node& node) {
  const std::string where = node.host + ", pid " + std::to_string(node.pid);
  const std::optional<int> rank = node.previous_rank ? node.previous_rank : node.wished_rank;
  if (rank) return "node " + std::to_string(*rank) + " (" + where + ")";
  return node.host + " (pid " + std::to_string(node.pid) + ")";
}

std::string describe(const Seating& seating, const RoundRule& rule) {
  std::vector<std::string> joined;
  std::set<int> ranks;
  for (const Member& member : seating.seated) {
    joined.push_back(describe(member.node));
    if (member.node.wished_rank) ranks.insert(*member.node.wished_rank);
  }
  std::string text =
      std::to_string(joined.size()) + " of " + std::to_string(rule.nodes) + " nodes have joined";
  if (!joined.empty()) text += " (" + list(joined) + ")";
  if (!rule.ranks_given) return text;
  std::vector<std::string> missing;
  for (int rank = 0; rank < rule.nodes; ++rank) {
    if (ranks.count(rank) == 0) missing.push_back("node " + std::to_string(rank));
  }
  return missing.empty() ? text : text + "; missing: " + list(missing);
}

}  // namespace cpprun::rendezvous
