// What a node's agent says of its workers and of itself while an attempt runs, so that the other nodes can
// quote it when that node is gone, and tell in what they differ from it. Pure.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cpprun::launcher {

using NamedValues = std::vector<std::pair<std::string, std::string>>;

// What makes this node different from another one.
struct NodeFacts {
  NamedValues versions;     // of cpprun, kernel, Python, torch
  NamedValues limits;       // of resources: "open files", "1024"
  NamedValues environment;  // variables that matter to a job, secrets hidden
};

// A JSON object of the three, each an object of its values.
std::string to_json(const NodeFacts& facts);

struct RankWords {
  int rank = 0;          // global
  std::string text;      // its progress, for people (worker::to_text)
  std::string progress;  // the same for programs (worker::to_json)
};

struct NodeWords {
  int node = 0;  // its group rank
  std::string host;
  std::string time;  // when it said so, UTC by its own clock
  std::vector<RankWords> ranks;
  NodeFacts facts;
};

std::string to_json(const NodeWords& words);
// Of text that another node, or anybody, has written: nothing where it is no such record; never throws.
std::optional<NodeWords> node_words_from(const std::string& text);

// One line each: in which versions, limits and variables this node differs from the other. Those that differ
// between any two nodes (the host's name, a scheduler's node number) are left out.
std::vector<std::string> differences(const NodeFacts& own, const NodeWords& other);

}  // namespace cpprun::launcher
