// A process that was stopped knows so from its own beats, and says so for a while only.
#include "rendezvous/own_pauses.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace cpprun::rendezvous {
namespace {

using std::chrono::milliseconds;

TEST(OwnPauses, AreLongerThanTheLimitAndSaidUntilOneLimitLater) {
  const std::string six = "this agent did not run for 6.0 s (it was stopped, or the machine was suspended)";
  struct Case {
    const char* name;
    std::vector<int> beats;  // ms
    int now;
    std::string said;
  };
  const std::vector<Case> cases{
      {"nothing is known", {}, 100'000, ""},
      {"beats as they should be", {0, 1000, 2000, 3000}, 4000, ""},
      {"a busy machine", {0, 1000, 4000}, 4000, ""},
      {"it wakes up, and others ask before the beat", {0, 1000}, 7000, six},
      {"after the beat", {0, 1000, 7000}, 7000, six},
      {"a while later", {0, 1000, 7000, 8000, 9000}, 10'000, six},
      {"too long ago", {0, 1000, 7000, 8000, 9000, 10'000}, 10'001, ""},
      {"the last one counts", {0, 50'000, 51'000, 57'000}, 57'500, six},
  };
  for (const Case& each : cases) {
    OwnPauses pauses(milliseconds(3000));
    for (const int beat : each.beats) pauses.beat(milliseconds(beat));
    EXPECT_EQ(pauses.recent(milliseconds(each.now)).value_or(""), each.said) << each.name;
  }
}

}  // namespace
}  // namespace cpprun::rendezvous
