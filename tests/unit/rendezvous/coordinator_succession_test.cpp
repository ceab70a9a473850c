// A new leader takes over from one that is no more: a round that runs is not disturbed, one that ends ends as
// was said, and nothing is charged twice or forgotten.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "rendezvous/coordinator.hpp"

namespace cpprun::rendezvous {
namespace {

using Kind = Order::Kind;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Orders = std::map<std::string, Order>;

constexpr std::int64_t kSerial = 77;  // of the round that ran under the leader before

Ticket place(int rank, int nodes, std::int64_t serial = kSerial) {
  Ticket ticket;
  ticket.serial = serial;
  ticket.round = 4;
  ticket.rank = rank;
  ticket.nodes = nodes;
  ticket.restarts = 1;
  return ticket;
}

Report report(const std::string& id, AgentState state, int nodes) {
  Report made;
  made.id = id;
  made.node.host = "host-" + id;
  made.node.min_nodes = 1;
  made.node.max_nodes = nodes;
  made.node.workers = 2;
  made.state = state;
  return made;
}

// An agent of the round.
Report member(const std::string& id, int rank, int nodes, AgentState state = AgentState::Running) {
  Report made = report(id, state, nodes);
  made.run = made.offered = place(rank, nodes);
  if (rank == 0 && state != AgentState::Waiting) made.store = StoreEndpoint{"host0", 29};
  return made;
}

Order told(Kind kind, const Ticket& ticket) {
  Order order;
  order.kind = kind;
  order.ticket = ticket;
  return order;
}

Order told_end(int rank, int nodes, bool charged) {
  Order order = told(Kind::End, place(rank, nodes));
  order.end = {charged, false, "rank 1 failed", "cause"};
  return order;
}

// For another leader that has taken over.
class Successor {
 public:
  Successor(int min_nodes, int max_nodes, int max_restarts, const std::vector<Report>& reports,
            const Orders& told)
      : now_(Coordinator::TimePoint() + std::chrono::hours(1)),
        coordinator_(rules(min_nodes, max_nodes, max_restarts), now_) {
    for (const Report& each : reports) say(each);
    coordinator_.succeed(told, now_);
    decide();
  }

  void say(Report report) {
    report.node.min_nodes = least_;
    report.node.max_nodes = most_;
    reports_[report.id] = report;
    coordinator_.hear(report, now_);
  }

  // Lets the time pass, with all agents alive.
  void pass(milliseconds time) {
    for (const Coordinator::TimePoint end = now_ + time; now_ < end;) {
      now_ += milliseconds(100);
      for (const auto& [id, each] : reports_) coordinator_.hear(each, now_);
      coordinator_.advance(now_);
    }
    decide();
  }
  void decide() { coordinator_.advance(now_); }
  void lose(const std::string& id) {
    reports_.erase(id);
    coordinator_.lose(id, now_);
    decide();
  }

  Order order(const std::string& id) const { return coordinator_.order(id); }
  const Coordinator& coordinator() const { return coordinator_; }

 private:
  CoordinatorRules rules(int min_nodes, int max_nodes, int max_restarts) {
    least_ = min_nodes;
    most_ = max_nodes;
    CoordinatorRules rules;
    rules.round = {min_nodes, max_nodes};
    rules.max_restarts = max_restarts;
    return rules;
  }

  int least_ = 0;
  int most_ = 0;
  Coordinator::TimePoint now_;
  std::map<std::string, Report> reports_;
  Coordinator coordinator_;
};

Report stopped(Report report) {
  report.state = AgentState::Waiting;
  report.store.reset();
  report.end.reset();
  return report;
}

TEST(CoordinatorSuccession, ARoundThatRunsGoesOn) {
  Successor next(2, 2, 0, {member("b", 1, 2), member("a", 0, 2)}, {});
  next.pass(seconds(30));
  for (const char* id : {"a", "b"}) {
    const Order order = next.order(id);
    EXPECT_EQ(order.kind, Kind::Run) << id;
    EXPECT_EQ(order.ticket.serial, kSerial);
    EXPECT_EQ(order.workers.world_size, 4);
  }
  EXPECT_EQ(next.order("b").ticket.rank, 1);
  EXPECT_EQ(next.order("b").workers.first_rank, 2);
  EXPECT_EQ(next.order("b").store, (StoreEndpoint{"host0", 29}));

  next.say(member("a", 0, 2, AgentState::Finished));
  next.say(member("b", 1, 2, AgentState::Finished));
  next.decide();
  EXPECT_TRUE(next.coordinator().over());
  EXPECT_EQ(next.order("a").kind, Kind::Finished);
}

TEST(CoordinatorSuccession, AnOrderToRunThatOnlySomeHaveFollowedIsGivenToAll) {
  Report late = member("b", 1, 2, AgentState::Waiting);
  late.run = {};
  Successor next(2, 2, 0, {member("a", 0, 2), late}, {});
  EXPECT_EQ(next.order("b").kind, Kind::Run);
  EXPECT_EQ(next.order("b").store.port, 29);

  // Nor had the other one said so yet.
  Report first = member("a", 0, 2, AgentState::Waiting);
  first.run = {};
  first.store = StoreEndpoint{"host0", 29};
  Successor earlier(2, 2, 0, {first, late}, {{"a", told(Kind::Run, place(0, 2))}});
  EXPECT_EQ(earlier.order("a").kind, Kind::Run);
  EXPECT_EQ(earlier.order("b").ticket.serial, kSerial);
}

TEST(CoordinatorSuccession, APlaceThatNobodyReportsIsALostNode) {
  Successor next(1, 2, 3, {member("b", 1, 2)}, {{"a", told(Kind::Run, place(0, 2))}});
  const Order end = next.order("b");
  EXPECT_EQ(end.kind, Kind::End);
  EXPECT_FALSE(end.end.charged);
  EXPECT_THAT(end.end.sentence, AllOf(HasSubstr("node 0 was lost"), HasSubstr("going on")));

  next.say(stopped(member("b", 1, 2)));
  next.decide();
  EXPECT_EQ(next.order("b").kind, Kind::Wait);  // the lost node's workers may live a little longer
  next.pass(milliseconds(1100));
  const Order offer = next.order("b");
  EXPECT_EQ(offer.kind, Kind::Offer);
  EXPECT_GT(offer.ticket.serial, kSerial);
  EXPECT_EQ(offer.ticket.round, 5);
  EXPECT_EQ(offer.ticket.restarts, 1);
}

TEST(CoordinatorSuccession, ALossThatTheJobCannotBearIsCharged) {
  Successor next(2, 2, 2, {member("a", 0, 2)}, {});
  EXPECT_EQ(next.order("a").kind, Kind::End);
  EXPECT_TRUE(next.order("a").end.charged);
  next.say(stopped(member("a", 0, 2)));
  next.say(report("c", AgentState::Waiting, 2));
  next.pass(milliseconds(1200));
  EXPECT_EQ(next.order("a").kind, Kind::Offer);
  EXPECT_EQ(next.order("a").ticket.restarts, 2);
  EXPECT_EQ(next.order("a").ticket.rank, 0);

  Successor spent(2, 2, 1, {member("a", 0, 2)}, {});
  EXPECT_TRUE(spent.coordinator().over());
  EXPECT_TRUE(spent.order("a").end.final);
}

TEST(CoordinatorSuccession, AClaimIsStillHeard) {
  Report failed = member("b", 1, 2);
  failed.end = RoundEnd{true, false, "rank 1 failed", "cause"};
  Successor next(2, 2, 2, {member("a", 0, 2), failed}, {});
  EXPECT_EQ(next.order("a").kind, Kind::End);
  EXPECT_THAT(next.order("a").end.sentence, HasSubstr("rank 1 failed; restarting all workers"));
}

TEST(CoordinatorSuccession, AnEndThatWasSaidHoldsAndIsChargedOnce) {
  // The agent whose workers failed has stopped them, and says nothing of it any more.
  const Report failed = stopped(member("b", 1, 2));
  Successor next(2, 2, 2, {member("a", 0, 2), failed},
                 {{"a", told(Kind::Run, place(0, 2))}, {"b", told_end(1, 2, true)}});
  EXPECT_EQ(next.order("a").kind, Kind::End);
  EXPECT_EQ(next.order("a").end.cause, "cause");
  EXPECT_FALSE(next.order("a").end.final);
  next.say(stopped(member("a", 0, 2)));
  next.pass(milliseconds(1200));
  EXPECT_EQ(next.order("a").kind, Kind::Offer);
  EXPECT_EQ(next.order("a").ticket.restarts, 2);
}

TEST(CoordinatorSuccession, AVerdictThatWasKeptIsFound) {
  Successor next(2, 2, 1, {member("a", 0, 2), stopped(member("b", 1, 2))}, {{"b", told_end(1, 2, true)}});
  EXPECT_FALSE(next.order("b").end.final);
  next.say(stopped(member("a", 0, 2)));
  next.decide();
  EXPECT_TRUE(next.coordinator().over());
  EXPECT_TRUE(next.order("b").end.final);
}

TEST(CoordinatorSuccession, WhatWasChargedBeforeIsNotChargedAgain) {
  Ticket after = place(-1, 0);
  after.restarts = 2;  // counted at the end of the round
  const Orders orders{{"a", told(Kind::Wait, after)}, {"b", told_end(1, 2, true)}};
  Successor next(2, 2, 9, {stopped(member("a", 0, 2)), stopped(member("b", 1, 2))}, orders);
  next.pass(milliseconds(1200));
  EXPECT_EQ(next.order("b").kind, Kind::Offer);
  EXPECT_EQ(next.order("b").ticket.restarts, 2);
  EXPECT_EQ(next.order("b").ticket.rank, 1);
}

TEST(CoordinatorSuccession, AnOfferOfTheLastLeaderIsReplaced) {
  Report accepted = report("a", AgentState::Waiting, 2);
  accepted.offered = place(0, 2);
  Ticket offered = place(1, 2, kSerial + 5);  // seen by nobody yet
  Successor next(2, 2, 0, {accepted, report("b", AgentState::Waiting, 2)},
                 {{"b", told(Kind::Offer, offered)}});
  next.pass(milliseconds(1200));
  EXPECT_EQ(next.order("a").kind, Kind::Offer);
  EXPECT_GT(next.order("a").ticket.serial, kSerial + 5);
  EXPECT_EQ(next.order("a").ticket.round, 0);
}

TEST(CoordinatorSuccession, ASpareThatIsLeftGoesOnWithTheCount) {
  const Orders orders{{"a", told(Kind::Run, place(0, 1))}, {"spare", told(Kind::Park, place(-1, 0))}};
  Successor next(1, 1, 3, {report("spare", AgentState::Waiting, 1)}, orders);
  next.pass(milliseconds(1200));
  const Order offer = next.order("spare");
  EXPECT_EQ(offer.kind, Kind::Offer);
  EXPECT_EQ(offer.ticket.round, 5);
  EXPECT_EQ(offer.ticket.restarts, 1);
}

TEST(CoordinatorSuccession, WhereNobodyIsLeftANewRunBegins) {
  const Orders orders{{"a", told(Kind::Run, place(0, 1))}};
  Successor next(1, 1, 3, {report("new", AgentState::Waiting, 1)}, orders);
  next.pass(milliseconds(1200));
  const Order offer = next.order("new");
  EXPECT_EQ(offer.kind, Kind::Offer);
  EXPECT_EQ(offer.ticket.round, 0);
  EXPECT_EQ(offer.ticket.restarts, 0);
  EXPECT_GT(offer.ticket.serial, kSerial);  // no place of the old run looks like one of this
}

TEST(CoordinatorSuccession, ReportsThatDoNotFitTogetherHurtNobody) {
  Report odd = member("b", 1, 2);
  odd.run.rank = odd.offered.rank = 7;
  Report other = member("c", 0, 3);
  Successor next(1, 3, 3, {member("a", 0, 2), odd, other}, {});
  next.pass(seconds(2));
  EXPECT_NE(next.order("b").kind, Kind::Run);
}

TEST(CoordinatorSuccession, WhoWaitsForTheOthersLearnsWhoIsHere) {
  CoordinatorRules rules;
  rules.round = {1, 5};
  rules.endpoints = 3;
  rules.own_endpoint = 1;
  const Coordinator::TimePoint now = Coordinator::TimePoint() + std::chrono::hours(1);
  Coordinator coordinator(rules, now);
  coordinator.hear(member("b", 1, 5, AgentState::Waiting), now);
  coordinator.advance(now);
  const std::string needed =
      "more than half of the 5 nodes of the last round are needed to go on without its leader; ";
  EXPECT_EQ(coordinator.order("b").text, needed + "1 of 5 is here (host-b)");
  coordinator.hear(member("c", 3, 5, AgentState::Waiting), now);
  coordinator.advance(now);
  EXPECT_EQ(coordinator.order("b").text, needed + "2 of 5 are here (host-b, host-c)");
  EXPECT_FALSE(coordinator.leads());
}

TEST(CoordinatorSuccession, TheLastWordIsRepeated) {
  for (const bool well : {true, false}) {
    CoordinatorRules rules;
    rules.round = {2, 2};
    const Coordinator::TimePoint now = Coordinator::TimePoint() + seconds(1);
    Coordinator coordinator(rules, now);
    Report last = member("a", 0, 2);
    last.node.min_nodes = 2;
    coordinator.conclude(well ? std::nullopt : std::optional<RoundEnd>(RoundEnd{true, true, "failed", ""}));
    coordinator.hear(last, now);
    coordinator.advance(now);
    EXPECT_TRUE(coordinator.over());
    EXPECT_EQ(coordinator.order("a").kind, well ? Kind::Finished : Kind::End);
    EXPECT_EQ(coordinator.order("a").end.final, !well);
  }
}

}  // namespace
}  // namespace cpprun::rendezvous
