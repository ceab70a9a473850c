#include "launcher/health/node_evidence.hpp"

#include <nlohmann/json.hpp>
#include <optional>

#include "launcher/health/json_fields.hpp"

namespace cpprun::launcher {
namespace {

constexpr std::size_t kMostRanks = 10'000;

}  // namespace

std::string evidence_to_json(const std::vector<RankStacks>& ranks, std::size_t most_bytes) {
  std::string text = R"({"stacks":[)";
  bool first = true;
  for (const RankStacks& rank : ranks) {
    const std::string one = to_json(rank);
    if (text.size() + one.size() + 3 > most_bytes) break;
    text.append(first ? "" : ",").append(one);
    first = false;
  }
  return text + "]}";
}

std::vector<RankStacks> evidence_from_json(std::string_view text) {
  std::vector<RankStacks> ranks;
  const nlohmann::json root = nlohmann::json::parse(text, nullptr, false);
  each_in(root, "stacks", kMostRanks, [&ranks](const nlohmann::json& one) {
    std::optional<RankStacks> rank =
        rank_stacks_from_json(one.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    if (rank) ranks.push_back(std::move(*rank));
  });
  return ranks;
}

std::vector<RankStacks> evidence_of_all(const std::map<int, std::string>& texts) {
  std::vector<RankStacks> all;
  for (const auto& [node, text] : texts) {
    for (RankStacks& rank : evidence_from_json(text)) all.push_back(std::move(rank));
  }
  return all;
}

}  // namespace cpprun::launcher
