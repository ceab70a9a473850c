// An agent's part: what it makes of its orders, and how long it may go on without a leader.
#include "rendezvous/membership.hpp"

#include <gtest/gtest.h>

#include "rendezvous/leader_search.hpp"

namespace cpprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using TimePoint = Membership::TimePoint;

const TimePoint kStart{std::chrono::hours(1)};

Order order_of(Order::Kind kind, std::int64_t serial) {
  Order order;
  order.kind = kind;
  order.ticket = {serial, 0, 1, 2, 0, 0, 0};
  return order;
}

Membership waiting() {
  Membership membership("a", {}, seconds(3), milliseconds(500));
  membership.renew(kStart, seconds(3), kStart);
  return membership;
}

Membership running() {
  Membership membership = waiting();
  membership.take(order_of(Order::Kind::Offer, 5));
  membership.accept(std::nullopt);
  membership.take(order_of(Order::Kind::Run, 5));
  membership.start();
  return membership;
}

TEST(Membership, AnOfferIsAcceptedOnceAndNoEarlierOneAfterIt) {
  Membership membership = waiting();
  membership.take(order_of(Order::Kind::Offer, 5));
  ASSERT_TRUE(membership.offered());
  membership.accept(std::nullopt);
  EXPECT_FALSE(membership.offered());
  membership.take(order_of(Order::Kind::Offer, 4));
  EXPECT_FALSE(membership.offered());
}

TEST(Membership, WorkersStartOnlyInAnAcceptedPlaceAndUnderALease) {
  Membership membership = waiting();
  membership.take(order_of(Order::Kind::Run, 5));
  EXPECT_FALSE(membership.placed(kStart));
  membership.take(order_of(Order::Kind::Offer, 5));
  membership.accept(std::nullopt);
  membership.take(order_of(Order::Kind::Run, 5));
  EXPECT_TRUE(membership.placed(kStart + milliseconds(2999)));
  EXPECT_FALSE(membership.placed(kStart + seconds(3)));
  membership.start();
  EXPECT_FALSE(membership.placed(kStart));
}

TEST(Membership, TheLeaseIsCountedFromWhenTheBeatWasSent) {
  Membership membership = running();
  membership.renew(kStart + seconds(1), seconds(3), kStart + seconds(2));
  EXPECT_EQ(membership.lease_end(), kStart + seconds(4));
  EXPECT_EQ(membership.loyal_until(), kStart + seconds(5));
  EXPECT_FALSE(membership.round_event(kStart + milliseconds(3999)));
  const std::optional<RoundEvent> event = membership.round_event(kStart + seconds(4));
  ASSERT_TRUE(event);
  EXPECT_EQ(std::get<RendezvousLost>(*event).grace, milliseconds(500));
  EXPECT_EQ(membership.fence(), kStart + milliseconds(4500));
}

TEST(Membership, AnotherLeadersLeaseIsOfNoWorth) {
  Membership membership = waiting();
  membership.forget_leader();
  membership.renew(kStart, seconds(1), kStart);
  membership.take(order_of(Order::Kind::Offer, 5));
  membership.accept(std::nullopt);
  membership.take(order_of(Order::Kind::Run, 5));
  EXPECT_FALSE(membership.placed(kStart + seconds(2)));
}

TEST(Membership, LeavingWorkersAreFencedToo) {
  Membership membership = running();
  membership.leave({});
  EXPECT_EQ(membership.fence(), kStart + milliseconds(3500));
  membership.go();
  EXPECT_FALSE(membership.fence());
}

TEST(Membership, ALostLeaderEndsTheRoundUnlessItHasSaidItsLastWord) {
  Membership membership = running();
  membership.forget_leader();
  EXPECT_TRUE(std::holds_alternative<RendezvousLost>(*membership.round_event(kStart)));
  Membership told = running();
  Order last = order_of(Order::Kind::End, 5);
  last.end = {true, true, "it failed", ""};
  told.take(last);
  told.forget_leader();
  EXPECT_EQ(std::get<RoundEnd>(*told.round_event(kStart)).sentence, "it failed");
}

// The leader may see none but the second of two reports: else a failure would look like lost touch, and cost
// nothing.
TEST(Membership, HowARoundShouldEndStaysSaidUntilTheNextOne) {
  Membership membership = running();
  const RoundEnd wanted{true, false, "it failed", ""};
  membership.want_end(wanted);
  membership.want_place();
  EXPECT_EQ(membership.report().state, AgentState::Waiting);
  EXPECT_EQ(membership.report().end, wanted);
  membership.start();
  EXPECT_FALSE(membership.report().end);
}

TEST(Membership, TheVerdictIsOpenUntilTheLeaderHasGoneOn) {
  Membership membership = running();
  membership.want_place();
  EXPECT_FALSE(membership.verdict());  // the order is still to run
  Order end = order_of(Order::Kind::End, 5);
  membership.take(end);
  EXPECT_FALSE(membership.verdict());
  end.end.final = true;
  membership.take(end);
  EXPECT_TRUE(membership.verdict()->final);
  membership.take(order_of(Order::Kind::Wait, 0));
  EXPECT_FALSE(membership.verdict()->final);
}

// ---- where it looks for a leader

std::vector<int> steps(LeaderSearch& search, const Membership& membership, TimePoint now, bool answer) {
  std::vector<int> found;
  search.begin_turn(membership, now);
  while (const std::optional<LeaderSearch::Step> step = search.next_step()) {
    found.push_back(step->to_be_counted ? 10 + step->endpoint : step->endpoint);
    if (answer && !step->to_be_counted) search.answered(step->endpoint);
  }
  return found;
}

TEST(LeaderSearch, ANewcomerAsksAllAndIsCountedNowhere) {
  LeaderSearch search(3);
  const Membership membership("a", {}, seconds(3), milliseconds(500));
  EXPECT_EQ(steps(search, membership, kStart, true), (std::vector<int>{0, 1, 2}));
}

TEST(LeaderSearch, AFollowerAsksItsLeaderOnly) {
  LeaderSearch search(3);
  search.led_from(1);
  EXPECT_EQ(steps(search, waiting(), kStart, true), std::vector<int>{1});
}

TEST(LeaderSearch, AMemberWithoutALeaderIsCountedAtTheFirstThatAnswersOnceItIsFree) {
  LeaderSearch search(3);
  search.led_from(0);
  Membership membership = running();
  membership.forget_leader();
  // The lost one was tried until now.
  EXPECT_EQ(steps(search, membership, kStart + seconds(2), true), (std::vector<int>{1, 2}));
  EXPECT_EQ(steps(search, membership, kStart + seconds(3), true), (std::vector<int>{1, 2, 0, 10}));
  EXPECT_EQ(steps(search, membership, kStart + seconds(3), false), (std::vector<int>{1, 2, 0}));
}

TEST(BeatInterval, FollowsAShorterLeaseButNeverFloods) {
  EXPECT_EQ(next_beat_interval(seconds(1), seconds(3)), seconds(1));
  EXPECT_EQ(next_beat_interval(seconds(1), milliseconds(900)), milliseconds(300));
  EXPECT_EQ(next_beat_interval(seconds(1), milliseconds(1)), milliseconds(100));
  EXPECT_EQ(next_beat_interval(milliseconds(20), milliseconds(60)), milliseconds(20));
}

}  // namespace
}  // namespace cpprun::rendezvous
