// Random walks of the coordinators, memberships and searches of a whole run, under a fake clock.
//
//   CPPRUN_WALKS=n       as many walks, from seed 1 on (500)
//   CPPRUN_WALK_SEED=n   only this one, with its trace
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>

#include "tests/unit/rendezvous/walks/random_walk.hpp"

namespace cpprun::rendezvous::walks {
namespace {

std::uint64_t number_in(const char* variable, std::uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(RandomWalks, HoldWhatRendezvousPromises) {
  if (const std::uint64_t seed = number_in("CPPRUN_WALK_SEED", 0)) {
    const WalkResult result = walk(seed, true);
    std::cout << result.trace;
    ASSERT_EQ(result.fault, "");
    return;
  }
  const std::uint64_t walks = number_in("CPPRUN_WALKS", 500);
  int rounds = 0;
  int takeovers = 0;
  int finished = 0;
  int beyond_promise = 0;
  for (std::uint64_t seed = 1; seed <= walks; ++seed) {
    const WalkResult result = walk(seed, false);
    EXPECT_EQ(result.fault, "") << "CPPRUN_WALK_SEED=" << seed << " shows how";
    rounds += result.rounds;
    takeovers += result.takeovers;
    beyond_promise += result.beyond_promise ? 1 : 0;
    finished += result.finished ? 1 : 0;
  }
  std::cout << walks << " walks: " << rounds << " rounds, " << takeovers << " takeovers, " << finished
            << " jobs finished, " << beyond_promise << " runs begun again\n";
  // Walks in which nothing happens hold everything.
  EXPECT_GT(rounds, static_cast<int>(walks));
  EXPECT_LT(beyond_promise, static_cast<int>(walks / 50) + 1);
  EXPECT_GT(finished, static_cast<int>(walks / 3));
  EXPECT_GT(takeovers, static_cast<int>(walks / 50));
}

}  // namespace
}  // namespace cpprun::rendezvous::walks
