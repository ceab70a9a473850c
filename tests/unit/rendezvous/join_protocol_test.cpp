// Who is seated, as which rank, and what people are told.
#include "rendezvous/join_protocol.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cpprun::rendezvous {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Candidate member(int arrival, const std::string& host, std::optional<int> wished = {},
                 std::optional<int> previous = {}) {
  return {arrival, Node{host, 100 + arrival, 3, 3, wished, "", "default", 1}, previous};
}

std::vector<int> slots(const std::vector<Candidate>& candidates) {
  std::vector<int> found;
  for (const Candidate& candidate : candidates) found.push_back(candidate.arrival);
  return found;
}

TEST(Seating, FirstComeFirstServed) {
  const Seating seating = seat({member(1, "a"), member(2, "b"), member(5, "c")}, {2, 2});
  EXPECT_THAT(slots(seating.seated), ElementsAre(1, 2));
  EXPECT_THAT(slots(seating.surplus), ElementsAre(5));
}

TEST(Seating, SurvivorsComeBeforeNewcomers) {
  const Seating seating = seat({member(1, "a", {}, 1), member(2, "new"), member(3, "host", {}, 0)}, {2, 2});
  EXPECT_THAT(slots(seating.seated), ElementsAre(1, 3));
  EXPECT_THAT(slots(seating.surplus), ElementsAre(2));
}

TEST(Seating, WhereRanksAreGivenTheFirstOfEachRank) {
  const Seating seating =
      seat({member(1, "a", 1), member(2, "b", 1), member(3, "c", 0), member(4, "d", 7), member(5, "e")},
           {2, 2, true});
  EXPECT_THAT(slots(seating.seated), ElementsAre(1, 3));
  EXPECT_THAT(slots(seating.surplus), ElementsAre(2, 4, 5));
}

TEST(GroupRanks, HostsInNaturalOrderThenArrival) {
  EXPECT_THAT(assign_group_ranks({member(1, "host10"), member(2, "host9"), member(3, "host9")}),
              ElementsAre(2, 0, 1));
}

TEST(GroupRanks, WishesAreGrantedOnce) {
  EXPECT_THAT(assign_group_ranks({member(1, "a", 2), member(2, "b", 2), member(3, "c", 0)}),
              ElementsAre(2, 1, 0));
  EXPECT_THAT(assign_group_ranks({member(1, "a", 9), member(2, "b", -1)}), ElementsAre(0, 1));
}

TEST(GroupRanks, SurvivorsKeepTheirsAndNewcomersFillTheHoles) {
  EXPECT_THAT(assign_group_ranks({member(1, "a"), member(2, "b", {}, 2), member(3, "c", 2, 0)}),
              ElementsAre(1, 2, 0));
}

TEST(GroupRanks, SurvivorsKeepTheirOrderWhereTheRoundShrinks) {
  const auto survivor = [](int rank) { return member(9 - rank, "h", {}, rank); };
  EXPECT_THAT(assign_group_ranks({survivor(3), survivor(0), survivor(2)}), ElementsAre(2, 0, 1));
  // With a newcomer in the hole each has the rank that it had.
  EXPECT_THAT(assign_group_ranks({survivor(3), survivor(0), member(9, "new"), survivor(2)}),
              ElementsAre(3, 0, 1, 2));
  EXPECT_THAT(assign_group_ranks({survivor(5), member(9, "new")}), ElementsAre(1, 0));
}

TEST(NaturalOrder, NumbersCompareAsNumbers) {
  for (const auto& [less, more] : std::vector<std::pair<std::string, std::string>>{
           {"host9", "host10"},
           {"a", "b"},
           {"a", "a1"},
           {"n1-gpu2", "n1-gpu10"},
           {"10.0.0.9", "10.0.0.10"},
           {"x07", "x8"},
           {"", "a"},
           {"a99999999999999999999", "a100000000000000000000"}}) {
    EXPECT_TRUE(natural_less(less, more)) << less << " " << more;
    EXPECT_FALSE(natural_less(more, less)) << less << " " << more;
  }
  EXPECT_FALSE(natural_less("a01", "a1"));
  EXPECT_FALSE(natural_less("a1", "a01"));
}

TEST(WorkerSpans, MixedRolesAndSizes) {
  const auto node = [](const char* role, int workers) { return Node{"h", 1, 3, 3, {}, "", role, workers}; };
  const std::vector<WorkerSpan> spans = worker_spans({node("a", 2), node("b", 1), node("a", 3)});
  EXPECT_THAT(spans, ElementsAre(WorkerSpan{0, 6, 0, 5}, WorkerSpan{2, 6, 0, 1}, WorkerSpan{3, 6, 2, 5}));
}

TEST(Description, SaysWhoIsThereAndWhoIsMissing) {
  const RoundRule rule{3, 3, true};
  EXPECT_EQ(describe(seat({member(1, "a", 2)}, rule), rule),
            "1 of 3 nodes have joined (node 2 (a, pid 101)); missing: node 0, node 1");
  EXPECT_EQ(describe(seat({member(1, "a")}, {2, 2}), {2, 2}), "1 of 2 nodes have joined (a (pid 101))");
  EXPECT_THAT(describe(seat({}, {100, 100, true}), {100, 100, true}), HasSubstr("node 7 and 92 more"));
}

}  // namespace
}  // namespace cpprun::rendezvous
