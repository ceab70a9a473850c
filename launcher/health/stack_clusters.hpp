// Which ranks stand at the same place: "15 ranks (0-2, 4-15) wait in allreduce; rank 3 is here". Pure.
//
// What is compared is the thread that runs the script where there are Python's own stacks, else the main
// thread, by the names of its functions (where no name is known, by module and offset). Frames inside a
// recognised wait do not count, as a rank is caught in one or another of them by chance. Nor do addresses and
// line numbers; only in Python, for a rank that waits and thus stands still, the lines count too, since a
// call of the same collective on another line is what makes a job hang.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/health/rank_stacks.hpp"

namespace cpprun::launcher {

struct StackCluster {
  std::vector<int> ranks;           // ascending
  std::string doing;                // "wait in allreduce", "is here": agrees with the number of ranks
  std::string where;                // the first frame of theirs that tells something; may be empty
  std::vector<std::string> frames;  // of the lowest rank, from the wait outwards, as text
  bool waits = false;               // a recognised wait, so not what the others wait for
  bool for_peers = false;           // in a collective or on the store: for other ranks
  bool held = false;                // stopped, or in uninterruptible sleep
};

// The odd ones first: ordered by size, of equal ones those that do not wait first.
std::vector<StackCluster> cluster_stacks(const std::vector<RankStacks>& ranks);

// One line, the odd ranks last: "15 ranks (0-2, 4-15) wait in allreduce at step (train.py:12); rank 3 is
// here: ..."
std::string summary_of(const std::vector<StackCluster>& clusters);
// The same and each cluster's frames, the odd ranks first.
std::string to_text(const std::vector<StackCluster>& clusters);
// That of their clusters, then each rank by itself; first of all what would make it tell more.
std::string to_text(const std::vector<RankStacks>& ranks);

// The rank that the others most likely wait for: one that cannot run, else one that does not wait for peers
// while others do, else one of the fewest. Nothing where none stands out. Of equal ones the lowest.
std::optional<int> odd_rank(const std::vector<StackCluster>& clusters);

// "0-2, 4-15"
std::string rank_ranges(const std::vector<int>& ranks);

}  // namespace cpprun::launcher
