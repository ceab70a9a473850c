// Who is seated, as which rank, and what people are told.
#include "rendezvous/join_protocol.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cpprun::rendezvous {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Member member(int slot, const std::string& host, std::optional<int> wished = {},
              std::optional<int> previous = {}) {
  return {slot, Node{host, 100 + slot, 3, wished, previous}};
}

std::vector<int> slots(const std::vector<Member>& members) {
  std::vector<int> found;
  for (const Member& m : members) found.push_back(m.slot);
  return found;
}

TEST(Seating, FirstComeFirstServed) {
  const Seating seating = seat({member(1, "a"), member(2, "b"), member(5, "c")}, {2, false});
  EXPECT_THAT(slots(seating.seated), ElementsAre(1, 2));
  EXPECT_THAT(slots(seating.surplus), ElementsAre(5));
}

TEST(Seating, SurvivorsComeBeforeNewcomers) {
  const Seating seating = seat({member(1, "a", {}, 1), member(2, "new"), member(3, "host", {}, 0)}, {2, false});
  EXPECT_THAT(slots(seating.seated), ElementsAre(1, 3));
  EXPECT_THAT(slots(seating.surplus), ElementsAre(2));
}

TEST(Seating, WhereRanksAreGivenTheFirstOfEachRank) {
  const Seating seating =
      seat({member(1, "a", 1), member(2, "b", 1), member(3, "c", 0), member(4, "d", 7), member(5, "e")},
           {2, true});
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

TEST(NodeRecord, RoundTripAndGarbage) {
  const Node node{"h\xc3\xb6st", 7, 3, 1, 0};
  const std::optional<Node> read = node_from_json(to_json(node));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->host, node.host);
  EXPECT_EQ(read->pid, 7);
  EXPECT_EQ(read->nodes, 3);
  EXPECT_EQ(read->wished_rank, 1);
  EXPECT_EQ(read->previous_rank, 0);
  EXPECT_FALSE(node_from_json(to_json(Node{"h", 1, 2, {}, {}}))->wished_rank);
  for (const char* text :
       {"", "{", "[]", "7", "{}", R"({"host":1,"pid":2,"nodes":1})", R"({"host":"h","pid":"2"})"}) {
    EXPECT_FALSE(node_from_json(text)) << text;
  }
}

TEST(Description, SaysWhoIsThereAndWhoIsMissing) {
  const RoundRule rule{3, true};
  EXPECT_EQ(describe(seat({member(1, "a", 2)}, rule), rule),
            "1 of 3 nodes have joined (node 2 (a, pid 101)); missing: node 0, node 1");
  EXPECT_EQ(describe(seat({member(1, "a")}, {2, false}), {2, false}),
            "1 of 2 nodes have joined (a (pid 101))");
  EXPECT_THAT(describe(seat({}, {100, true}), {100, true}), HasSubstr("node 7 and 92 more"));
}

}  // namespace
}  // namespace cpprun::rendezvous
