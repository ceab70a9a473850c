#include "launcher/report/node_words.hpp"

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "worker_runtime/contract/printable_text.hpp"

namespace cpprun::launcher {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostDifferences = 40;

Json to_object(const NamedValues& values) {
  Json object = Json::object();
  for (const auto& [name, value] : values) object[name] = value;
  return object;
}

NamedValues values_from(const Json& object) {
  NamedValues values;
  for (const auto& [name, value] : object.items()) {
    values.emplace_back(worker::printable(name), worker::printable(value.get<std::string>()));
  }
  return values;
}

bool differs_anyway(const std::string& name) {
  static const std::set<std::string> kNames{
      "host",           "PET_NODE_RANK",  "PET_LOCAL_ADDR", "SLURM_NODEID",    "SLURM_PROCID",
      "SLURM_LOCALID",  "SLURM_GTIDS",    "SLURM_TASK_PID", "SLURMD_NODENAME", "SLURM_TOPOLOGY_ADDR",
      "SLURM_JOB_GPUS", "SLURM_STEP_GPUS"};
  return kNames.count(name) != 0;
}

std::string shown(const std::map<std::string, std::string>& values, const std::string& name) {
  const std::map<std::string, std::string>::const_iterator value = values.find(name);
  if (value == values.end()) return "not set";
  return value->second.empty() ? "''" : value->second;
}

void add_differences(std::vector<std::string>& lines, const NamedValues& own, const NamedValues& others,
                     const std::string& where) {
  const std::map<std::string, std::string> ours(own.begin(), own.end());
  const std::map<std::string, std::string> theirs(others.begin(), others.end());
  std::map<std::string, std::string> all = ours;
  all.insert(theirs.begin(), theirs.end());
  for (const auto& [name, value] : all) {
    const std::string here = shown(ours, name);
    const std::string there = shown(theirs, name);
    if (here != there && !differs_anyway(name))
      lines.push_back(
          std::string(name).append(": ").append(here).append(" here, ").append(there).append(" on " + where));
  }
}

}  // namespace

std::string to_json(const NodeFacts& facts) {
  const Json object = {{"versions", to_object(facts.versions)},
                       {"limits", to_object(facts.limits)},
                       {"environment", to_object(facts.environment)}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string to_json(const NodeWords& words) {
  Json ranks = Json::array();
  for (const RankWords& rank : words.ranks) {
    ranks.push_back({{"rank", rank.rank}, {"text", rank.text}, {"progress", rank.progress}});
  }
  Json object = {
      {"node", words.node}, {"host", words.host}, {"time", words.time}, {"ranks", std::move(ranks)}};
  object.update(Json::parse(to_json(words.facts)));
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<NodeWords> node_words_from(const std::string& text) {
  try {
    const Json object = Json::parse(text);
    NodeWords words;
    words.node = object.at("node").get<int>();
    words.host = worker::printable(object.at("host").get<std::string>());
    words.time = worker::printable(object.at("time").get<std::string>());
    for (const Json& rank : object.at("ranks")) {
      words.ranks.push_back({rank.at("rank").get<int>(),
                             worker::printable(rank.at("text").get<std::string>()),
                             rank.at("progress").get<std::string>()});
    }
    words.facts = {values_from(object.at("versions")), values_from(object.at("limits")),
                   values_from(object.at("environment"))};
    return words;
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

std::vector<std::string> differences(const NodeFacts& own, const NodeWords& other) {
  const std::string where = "node " + std::to_string(other.node) + " (" + other.host + ")";
  std::vector<std::string> lines;
  add_differences(lines, own.versions, other.facts.versions, where);
  add_differences(lines, own.limits, other.facts.limits, where);
  add_differences(lines, own.environment, other.facts.environment, where);
  if (lines.size() > kMostDifferences) lines.resize(kMostDifferences);
  return lines;
}

}  // namespace cpprun::launcher
