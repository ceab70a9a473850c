// What the nodes of an attempt say of their workers, each at a key of its own in the workers' store:
//
//   cpprun/words/<attempt>/<group rank>   its NodeWords, JSON
//
// A node writes its own, at most every two seconds, when what its workers' progress pages say has changed,
// and when the attempt fails. Meanwhile it reads those of node 0, whose host may be lost together with the
// store; others' are read when they are wanted. A job whose workers open no page writes nothing before it
// fails.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/report/node_words.hpp"
#include "rendezvous/store/store.hpp"
#include "worker_runtime/contract/progress_page.hpp"

namespace cpprun::launcher {

// By global rank: what the workers' pages say.
using ProgressOfRanks = std::map<int, worker::ProgressReading>;

struct WordsSource {
  std::string host;
  std::function<ProgressOfRanks()> progress;
  std::function<NodeFacts()> facts;
};

class LastWords {
 public:
  explicit LastWords(WordsSource source) : source_(std::move(source)) {}

  // Another attempt; what was said in the one before is forgotten.
  void begin(int attempt, int group_rank);

  // The attempt fails: this node says its facts too, and wants node 0's, and the last words of nodes that are
  // lost.
  void fail(const std::vector<int>& lost);
  // Something that is wanted was not heard yet.
  bool waits() const { return !wanted_.empty(); }

  // Says and hears what there is. Throws StoreError; it is to be called again then.
  awaitable<void> exchange(store::Store& store);

  // The latest of the nodes that were heard of.
  const std::map<int, NodeWords>& heard() const { return heard_; }

 private:
  awaitable<void> say(store::Store& store);
  awaitable<void> hear(store::Store& store, int node);

  WordsSource source_;
  std::string root_;
  int group_rank_ = 0;
  ProgressOfRanks said_;
  bool failing_ = false;
  bool facts_said_ = false;
  std::set<int> lost_;
  std::set<int> wanted_;
  std::map<int, NodeWords> heard_;
};

}  // namespace cpprun::launcher
