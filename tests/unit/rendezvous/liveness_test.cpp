// When a node counts as dead, under an invented clock.
#include "rendezvous/liveness.hpp"

#include <gtest/gtest.h>

namespace cpprun::rendezvous {
namespace {

using std::chrono::milliseconds;

class LivenessTest : public ::testing::Test {
 protected:
  Liveness::TimePoint at(int ms) const { return Liveness::TimePoint(milliseconds(ms)); }
  Liveness liveness_{milliseconds(1000), 3};
};

TEST_F(LivenessTest, ACounterThatMovesKeepsANodeAlive) {
  for (int second = 0; second < 100; ++second) {
    liveness_.observe(1, second / 2, at(second * 1000));  // every other beat is late
    EXPECT_FALSE(liveness_.dead(1, at(second * 1000)));
  }
}

TEST_F(LivenessTest, DeadAfterThreeMissedBeats) {
  liveness_.observe(1, 5, at(0));
  for (const int now : {1000, 2000}) {
    liveness_.observe(1, 5, at(now));
    EXPECT_FALSE(liveness_.dead(1, at(now))) << now;
  }
  liveness_.observe(1, 5, at(3000));
  EXPECT_TRUE(liveness_.dead(1, at(3000)));
  liveness_.observe(1, 6, at(3500));
  EXPECT_FALSE(liveness_.dead(1, at(3500)));
}

TEST_F(LivenessTest, AnObserverThatWasStoppedHasNotLooked) {
  liveness_.observe(1, 5, at(0));
  liveness_.observe(1, 5, at(60'000));
  EXPECT_FALSE(liveness_.dead(1, at(60'000)));
}

TEST_F(LivenessTest, LooksAloneDoNotKill) {
  for (int i = 0; i < 10; ++i) liveness_.observe(1, 5, at(i * 10));
  EXPECT_FALSE(liveness_.dead(1, at(100)));
}

TEST_F(LivenessTest, MovedAfterAMoment) {
  liveness_.observe(1, 5, at(100));
  EXPECT_FALSE(liveness_.moved_after(1, at(100)));
  liveness_.observe(1, 6, at(200));
  EXPECT_TRUE(liveness_.moved_after(1, at(100)));
  EXPECT_FALSE(liveness_.moved_after(2, at(100)));
}

TEST_F(LivenessTest, AnUnknownNodeIsNotDead) {
  EXPECT_FALSE(liveness_.dead(9, at(1'000'000)));
}

}  // namespace
}  // namespace cpprun::rendezvous
