// What a node can tell of its workers at a hang, a time-out or a request, as nodes tell each other. Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/health/rank_stacks.hpp"

namespace cpprun::launcher {

// Texts of further ranks are left out where the whole would be longer than `most_bytes`; `ranks` in order.
std::string evidence_to_json(const std::vector<RankStacks>& ranks, std::size_t most_bytes);

// Of text that another node sent: whatever it holds of stacks, in order; never throws.
std::vector<RankStacks> evidence_from_json(std::string_view text);
// The same of all nodes' texts, by group rank.
std::vector<RankStacks> evidence_of_all(const std::map<int, std::string>& texts);

}  // namespace cpprun::launcher
