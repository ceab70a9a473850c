#include "launcher/health/last_words.hpp"

#include <spdlog/spdlog.h>

#include <optional>
#include <utility>

#include "launcher/report/utc_time.hpp"

namespace cpprun::launcher {
namespace {

// Of one node; workers can write to the store too.
constexpr std::size_t kMostBytes = std::size_t{1} << 20;

}  // namespace

void LastWords::begin(int attempt, int group_rank) {
  root_ = "cpprun/words/" + std::to_string(attempt) + "/";
  group_rank_ = group_rank;
  said_.clear();
  failing_ = facts_said_ = false;
  lost_.clear();
  wanted_.clear();
  heard_.clear();
}

void LastWords::fail(const std::vector<int>& lost) {
  failing_ = true;
  lost_.insert(lost.begin(), lost.end());
  wanted_ = lost_;
  if (group_rank_ != 0) wanted_.insert(0);
}

awaitable<void> LastWords::exchange(store::Store& store) {
  co_await say(store);
  const bool first_is_of_interest = group_rank_ != 0 && !said_.empty();
  std::set<int> nodes = wanted_;
  if (first_is_of_interest) nodes.insert(0);
  for (const int node : nodes) co_await hear(store, node);
}

awaitable<void> LastWords::say(store::Store& store) {
  ProgressOfRanks progress = source_.progress();
  const bool with_facts = failing_ && !facts_said_;
  if (progress == said_ && !with_facts) co_return;
  NodeWords words;
  words.node = group_rank_;
  words.host = source_.host;
  words.time = utc_time(std::chrono::system_clock::now());
  const worker::ProgressReading::TimePoint now = std::chrono::steady_clock::now();
  for (const auto& [rank, reading] : progress) {
    words.ranks.push_back({rank, worker::to_text(reading, now), worker::to_json(reading, now)});
  }
  if (failing_) words.facts = source_.facts();
  store::Key key = root_ + std::to_string(group_rank_);
  co_await store.set(std::move(key), to_json(words));
  spdlog::debug("this node's words are in the workers' store");
  said_ = std::move(progress);
  facts_said_ = failing_;
}

awaitable<void> LastWords::hear(store::Store& store, int node) {
  store::Key key = root_ + std::to_string(node);
  const store::Bytes text = co_await store.get(std::move(key));
  const bool is_lost = lost_.count(node) != 0;
  std::optional<NodeWords> words =
      text.size() <= kMostBytes ? node_words_from(text) : std::optional<NodeWords>();
  if (words && words->node != node) words.reset();
  const bool whole = words && !words->facts.versions.empty();
  if (words) {
    spdlog::debug("heard of node {}, said at {}", node, words->time);
    heard_[node] = std::move(*words);
  }
  // One that is lost says no more than it has.
  if (is_lost || whole) wanted_.erase(node);
}

}  // namespace cpprun::launcher
