#include "rendezvous/coordinator_rules.hpp"

#include <nlohmann/json.hpp>

namespace cpprun::rendezvous {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

constexpr int kMostNodes = 1'000'000;
constexpr milliseconds kLongest = std::chrono::hours(24 * 365);

bool is_sane(const CoordinatorRules& rules) {
  const auto is_time = [](milliseconds time, milliseconds least) {
    return time >= least && time <= kLongest;
  };
  return rules.round.min_nodes >= 1 && rules.round.min_nodes <= rules.round.max_nodes &&
         rules.round.max_nodes <= kMostNodes && rules.max_restarts >= 0 &&
         is_time(rules.last_call, milliseconds(0)) && is_time(rules.death_limit, milliseconds(1)) &&
         is_time(rules.stop_margin, milliseconds(0)) && is_time(rules.company, milliseconds(0)) &&
         is_time(rules.accept_limit, milliseconds(1));
}

std::string seconds(milliseconds time) {
  std::string text = std::to_string(time.count() / 1000);
  const std::string rest = std::to_string(1000 + time.count() % 1000).substr(1);
  return time.count() % 1000 == 0 ? text : text + "." + rest;
}

}  // namespace

std::string to_json(const CoordinatorRules& rules) {
  return json{{"min_nodes", rules.round.min_nodes},
              {"max_nodes", rules.round.max_nodes},
              {"ranks_given", rules.round.ranks_given},
              {"max_restarts", rules.max_restarts},
              {"endpoints", rules.endpoints},
              {"last_call_ms", rules.last_call.count()},
              {"death_limit_ms", rules.death_limit.count()},
              {"stop_margin_ms", rules.stop_margin.count()},
              {"company_ms", rules.company.count()},
              {"accept_limit_ms", rules.accept_limit.count()}}
      .dump();
}

std::optional<CoordinatorRules> rules_from_json(const std::string& text) {
  CoordinatorRules rules;
  try {
    const json object = json::parse(text);
    rules.round.min_nodes = object.at("min_nodes").get<int>();
    rules.round.max_nodes = object.at("max_nodes").get<int>();
    rules.round.ranks_given = object.at("ranks_given").get<bool>();
    rules.max_restarts = object.at("max_restarts").get<int>();
    rules.endpoints = object.at("endpoints").get<int>();
    const auto time = [&](const char* name) { return milliseconds(object.at(name).get<std::int64_t>()); };
    rules.last_call = time("last_call_ms");
    rules.death_limit = time("death_limit_ms");
    rules.stop_margin = time("stop_margin_ms");
    rules.company = time("company_ms");
    rules.accept_limit = time("accept_limit_ms");
  } catch (const json::exception&) {
    return std::nullopt;
  }
  if (!is_sane(rules)) return std::nullopt;
  return rules;
}

std::string differences(const CoordinatorRules& node, const CoordinatorRules& run) {
  std::string text;
  const auto compare = [&](const std::string& what, const std::string& here, const std::string& there) {
    if (here == there) return;
    if (!text.empty()) text += "; ";
    text.append(what).append(" ").append(here).append(", not ").append(there);
  };
  compare("--max-restarts", std::to_string(node.max_restarts), std::to_string(run.max_restarts));
  compare("endpoints in --rdzv-endpoint:", std::to_string(node.endpoints), std::to_string(run.endpoints));
  compare("last_call_timeout", seconds(node.last_call), seconds(run.last_call));
  compare("keep_alive_interval x keep_alive_max_attempt", seconds(node.death_limit),
          seconds(run.death_limit));
  return text;
}

}  // namespace cpprun::rendezvous
