// What the leader of a run decides, from what it hears and when.
#include "rendezvous/coordinator.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cpprun::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Kind = Order::Kind;

CoordinatorRules rules(int least, int most, int max_restarts = 3) {
  CoordinatorRules rules;
  rules.round = {least, most};
  rules.max_restarts = max_restarts;
  return rules;
}

// A coordinator, and agents that do as they are told where a test wants them to.
class Job {
 public:
  explicit Job(CoordinatorRules rules) : rules_(rules), coordinator_(rules, now_) {
    coordinator_.advance(now_);
  }

  Coordinator& coordinator() { return coordinator_; }
  Coordinator::TimePoint now() const { return now_; }

  Report& arrive(const std::string& id, std::optional<int> wish = {}) {
    Report& report = unheard(id, wish);
    tell(id);
    return report;
  }
  Report& unheard(const std::string& id, std::optional<int> wish = {}) {
    Report& report = reports_[id];
    report.id = id;
    report.node = {id, 7, rules_.round.min_nodes, rules_.round.max_nodes, wish, "10.0.0.1", "default", 2};
    return report;
  }
  void tell(const std::string& id) {
    coordinator_.hear(reports_.at(id), now_);
    coordinator_.follows(id, now_);
    coordinator_.advance(now_);
  }
  // All but the silent ones give signs of life meanwhile.
  void pass(milliseconds span, const std::set<std::string>& silent = {}) {
    for (const auto end = now_ + span; now_ < end;) {
      now_ = std::min(end, now_ + milliseconds(250));
      for (const auto& [id, report] : reports_) {
        if (silent.count(id) != 0 || report.state == AgentState::Gone) continue;
        coordinator_.hear(report, now_);
        coordinator_.follows(id, now_);
      }
      coordinator_.advance(now_);
    }
  }
  Kind told(const std::string& id) { return coordinator_.order(id).kind; }
  Order order(const std::string& id) { return coordinator_.order(id); }
  Report& at(const std::string& id) { return reports_.at(id); }

  void accept(const std::string& id) {
    Report& report = at(id);
    report.offered = order(id).ticket;
    if (report.offered.rank == 0) report.store = StoreEndpoint{id, 1};
    tell(id);
  }
  // All that have an offer take it and start their workers.
  void start() {
    for (const auto& [id, report] : reports_) {
      if (told(id) == Kind::Offer) accept(id);
    }
    for (const auto& [id, report] : reports_) {
      if (told(id) == Kind::Run && report.state == AgentState::Waiting) become(id, AgentState::Running);
    }
  }
  void become(const std::string& id, AgentState state) {
    Report& report = at(id);
    if (state == AgentState::Running) report.run = report.offered;
    if (state == AgentState::Waiting) report.end.reset();
    report.state = state;
    tell(id);
  }
  void fail(const std::string& id, bool fatal = false) {
    at(id).end = RoundEnd{!fatal, fatal, id + " failed", "cause of " + id};
    tell(id);
  }
  // Those told to stop have stopped.
  void stop_workers() {
    for (const auto& [id, report] : reports_) {
      if (told(id) == Kind::End && report.state == AgentState::Running) become(id, AgentState::Waiting);
    }
  }

 private:
  CoordinatorRules rules_;
  Coordinator::TimePoint now_{std::chrono::hours(1)};
  Coordinator coordinator_;
  std::map<std::string, Report> reports_;
};

Job running(CoordinatorRules rules, const std::vector<std::string>& ids) {
  Job job(rules);
  for (const std::string& id : ids) job.arrive(id);
  job.pass(rules.last_call);
  job.start();
  return job;
}

TEST(FirstRound, BeginsAtOnceWithAllNodesAndTakesAcceptanceByAll) {
  Job job(rules(2, 2));
  job.arrive("a");
  EXPECT_EQ(job.told("a"), Kind::Wait);
  EXPECT_THAT(job.order("a").text, HasSubstr("1 of 2 nodes"));
  job.arrive("b");
  ASSERT_EQ(job.told("a"), Kind::Offer);
  EXPECT_EQ(job.order("b").ticket.rank, 1);
  EXPECT_EQ(job.order("b").workers, (WorkerSpan{2, 4, 2, 4}));
  job.accept("b");
  EXPECT_EQ(job.told("b"), Kind::Offer);
  job.accept("a");
  EXPECT_EQ(job.told("b"), Kind::Run);
  EXPECT_EQ(job.order("b").store, (StoreEndpoint{"a", 1}));
}

TEST(FirstRound, WaitsForTheLastCallWithFewerThanAllNodes) {
  Job job(rules(1, 3));
  job.arrive("a");
  job.pass(seconds(29));
  EXPECT_EQ(job.told("a"), Kind::Wait);
  EXPECT_THAT(job.order("a").text, HasSubstr("last call"));
  job.pass(seconds(1));
  EXPECT_EQ(job.told("a"), Kind::Offer);
}

TEST(FirstRound, APlaceThatIsNotTakenIsGivenUp) {
  Job job(rules(2, 2));
  job.arrive("a");
  job.arrive("b");
  job.accept("a");
  job.pass(seconds(61));
  EXPECT_EQ(job.told("b"), Kind::Refused);
  EXPECT_EQ(job.told("a"), Kind::Wait);
}

TEST(FirstRound, AnotherNumberOfNodesIsRefused) {
  Job job(rules(2, 2));
  job.arrive("a");
  Report& stranger = job.arrive("b");
  stranger.node.max_nodes = 4;
  job.tell("b");
  EXPECT_EQ(job.told("b"), Kind::Refused);
  EXPECT_THAT(job.order("b").text, HasSubstr("2:4"));
}

TEST(FirstRound, OtherRulesAreSaidOnceToTheLeaderAndToEachNode) {
  Job job(rules(4, 4));
  const auto arrive = [&](const std::string& id, int max_restarts) {
    job.unheard(id).node.rules = to_json(rules(4, 4, max_restarts));
    job.tell(id);
  };
  arrive("a", 3);
  EXPECT_THAT(job.coordinator().take_notices(), testing::IsEmpty());
  EXPECT_EQ(job.order("a").notice, "");
  arrive("b", 5);
  EXPECT_THAT(job.coordinator().take_notices(),
              testing::ElementsAre("b (pid 7) at 10.0.0.1 was started with --max-restarts 5, not 3 as here; "
                                   "what was said here holds"));
  arrive("c", 5);
  job.tell("b");
  EXPECT_THAT(job.coordinator().take_notices(), testing::IsEmpty());
  for (const char* id : {"b", "c"}) EXPECT_THAT(job.order(id).notice, HasSubstr("--max-restarts 5, not 3"));
  EXPECT_EQ(job.told("b"), Kind::Wait);  // it takes part
}

TEST(FirstRound, AStaticNodeAndOneWithoutARankAreNotMixed) {
  for (const bool given : {false, true}) {
    CoordinatorRules run = rules(2, 2);
    run.round.ranks_given = given;
    CoordinatorRules other = run;
    other.round.ranks_given = !given;
    Job job(run);
    job.unheard("b", 1).node.rules = to_json(other);
    job.tell("b");
    EXPECT_EQ(job.told("b"), Kind::Refused);
    EXPECT_THAT(job.order("b").text, HasSubstr("compare --rdzv-backend"));
  }
}

TEST(StaticRanks, AClaimIsRefusedOnceItsHolderHasShownThatItLives) {
  CoordinatorRules given = rules(2, 2);
  given.round.ranks_given = true;
  Job job(given);
  job.arrive("a", 0);
  job.pass(milliseconds(500));
  job.arrive("rival", 0);
  job.coordinator().advance(job.now());
  EXPECT_EQ(job.told("rival"), Kind::Wait);
  job.pass(milliseconds(500));
  EXPECT_EQ(job.told("rival"), Kind::Refused);
  EXPECT_THAT(job.order("a").text, HasSubstr("missing: node 1"));
}

TEST(LaterRounds, AJoinerRestartsAllWithoutChargeAndWithoutLastCall) {
  Job job = running(rules(1, 3), {"a", "b"});
  ASSERT_EQ(job.told("a"), Kind::Run);
  job.arrive("c");
  job.pass(milliseconds(750));
  EXPECT_EQ(job.told("a"), Kind::Run);  // for company
  job.pass(milliseconds(250));
  ASSERT_EQ(job.told("a"), Kind::End);
  EXPECT_FALSE(job.order("a").end.charged);
  job.stop_workers();
  ASSERT_EQ(job.told("c"), Kind::Offer);
  EXPECT_EQ(job.order("c").ticket.nodes, 3);
  EXPECT_EQ(job.order("c").ticket.round, 1);
  EXPECT_EQ(job.order("c").ticket.restarts, 0);
}

TEST(LaterRounds, ASpareIsParkedAndTakesALostNodesPlace) {
  Job job = running(rules(2, 2), {"a", "b"});
  job.arrive("c");
  job.pass(seconds(5));
  EXPECT_EQ(job.told("c"), Kind::Park);
  job.pass(seconds(3), {"b"});
  ASSERT_EQ(job.told("a"), Kind::End);
  EXPECT_FALSE(job.order("a").end.charged);
  EXPECT_THAT(job.order("a").end.sentence, HasSubstr("has not been heard of"));
  job.stop_workers();
  EXPECT_EQ(job.told("c"), Kind::Wait);  // b's workers may live
  job.pass(seconds(1), {"b"});
  ASSERT_EQ(job.told("c"), Kind::Offer);
  EXPECT_EQ(job.order("a").ticket.rank, 0);
  EXPECT_EQ(job.order("c").ticket.rank, 1);
}

TEST(Losses, WithoutEnoughNodesOneIsCharged) {
  Job job = running(rules(2, 2, 1), {"a", "b"});
  job.pass(seconds(3), {"b"});
  ASSERT_EQ(job.told("a"), Kind::End);
  EXPECT_TRUE(job.order("a").end.charged);
  job.stop_workers();
  EXPECT_EQ(job.told("a"), Kind::Wait);
  job.arrive("c");
  job.pass(seconds(1), {"b"});
  EXPECT_EQ(job.order("c").ticket.restarts, 1);
}

TEST(Losses, WithoutRestartsLeftThatIsTheEnd) {
  Job job = running(rules(2, 2, 0), {"a", "b"});
  job.pass(seconds(3), {"b"});
  ASSERT_EQ(job.told("a"), Kind::End);
  EXPECT_TRUE(job.order("a").end.final);
  EXPECT_TRUE(job.coordinator().over());
}

TEST(Losses, ALeavingNodesWorkersAreWaitedFor) {
  Job job = running(rules(1, 3), {"a", "b", "c"});
  job.at("b").end = RoundEnd{false, false, "b was stopped", ""};
  job.become("b", AgentState::Leaving);
  ASSERT_EQ(job.told("a"), Kind::End);
  EXPECT_FALSE(job.order("a").end.charged);
  job.stop_workers();
  EXPECT_NE(job.told("a"), Kind::Offer);
  job.become("b", AgentState::Gone);
  ASSERT_EQ(job.told("a"), Kind::Offer);
  EXPECT_EQ(job.order("c").ticket.rank, 1);
}

TEST(Losses, WhoHasLostTouchAndComesBackIsInTheNextRound) {
  Job job = running(rules(2, 2), {"a", "b"});
  job.become("b", AgentState::Waiting);
  ASSERT_EQ(job.told("a"), Kind::End);
  job.stop_workers();
  EXPECT_EQ(job.told("b"), Kind::Offer);
}

TEST(Failures, AreChargedOnceWhoeverFailsToo) {
  Job job = running(rules(2, 2), {"a", "b"});
  job.fail("b");
  job.fail("a");
  ASSERT_EQ(job.told("a"), Kind::End);
  EXPECT_TRUE(job.order("a").end.charged);
  EXPECT_THAT(job.order("a").end.sentence, HasSubstr("b failed"));
  job.stop_workers();
  for (const char* id : {"a", "b"}) {
    ASSERT_EQ(job.told(id), Kind::Offer);
    EXPECT_EQ(job.order(id).ticket.restarts, 1);
    EXPECT_EQ(job.order(id).end.cause, "cause of b");  // the verdict goes with the next place
  }
}

TEST(Failures, ThatFollowFromALossAreNotCharged) {
  Job job = running(rules(1, 2), {"a", "b"});
  job.fail("a");
  job.become("a", AgentState::Waiting);
  job.pass(seconds(3), {"b"});
  job.pass(seconds(2), {"b"});
  ASSERT_EQ(job.told("a"), Kind::Offer);
  EXPECT_EQ(job.order("a").ticket.restarts, 0);
}

TEST(Failures, TheVerdictOfTheLastOneWaitsForWhoIsLost) {
  Job job = running(rules(1, 2, 0), {"a", "b"});
  job.fail("a");
  ASSERT_EQ(job.told("b"), Kind::End);
  EXPECT_FALSE(job.order("b").end.final);  // not yet
  job.stop_workers();
  EXPECT_TRUE(job.coordinator().over());
  EXPECT_TRUE(job.order("a").end.final);
}

TEST(Failures, AFatalOneEndsTheRunWithRestartsLeft) {
  Job job = running(rules(2, 2), {"a", "b"});
  job.arrive("spare");
  job.fail("b", true);
  EXPECT_TRUE(job.coordinator().over());
  EXPECT_EQ(job.order("a").end.cause, "cause of b");
  EXPECT_TRUE(job.order("spare").end.final);
}

TEST(Finish, WhenAllHaveFinishedForSparesToo) {
  Job job = running(rules(2, 2), {"a", "b"});
  job.arrive("spare");
  job.become("a", AgentState::Finished);
  EXPECT_EQ(job.told("a"), Kind::Run);
  job.become("b", AgentState::Finished);
  EXPECT_EQ(job.told("a"), Kind::Finished);
  EXPECT_EQ(job.told("spare"), Kind::Finished);
}

TEST(Finish, NobodyJoinsOnceOneHasFinished) {
  Job job = running(rules(1, 3), {"a", "b"});
  job.become("a", AgentState::Finished);
  job.arrive("c");
  job.pass(seconds(5));
  EXPECT_EQ(job.told("b"), Kind::Run);
}

TEST(OnlyEndpoint, ANewLeaderWaitsForTheWorkersOfAgentsThatItCannotKnow) {
  Job job(rules(1, 1));
  Report& member = job.unheard("a");
  member.run = member.offered = {67108865, 4, 0, 2, 1, 0, 0};
  job.tell("a");
  EXPECT_NE(job.told("a"), Kind::Offer);
  job.pass(seconds(4));
  ASSERT_EQ(job.told("a"), Kind::Offer);
  EXPECT_EQ(job.order("a").ticket.round, 5);
  EXPECT_EQ(job.order("a").ticket.restarts, 1);
  EXPECT_GT(job.order("a").ticket.serial, 67108865);
}

TEST(OnlyEndpoint, AProcessThatEndsSaysWhy) {
  Job job = running(rules(2, 2), {"a", "b"});
  job.coordinator().abandon("it was stopped");
  job.coordinator().advance(job.now());
  EXPECT_TRUE(job.order("b").end.final);
  EXPECT_EQ(job.order("b").end.sentence, "it was stopped");
}

// ---- several endpoints

CoordinatorRules among(int endpoints, int own, int least, int most) {
  CoordinatorRules several = rules(least, most);
  several.endpoints = endpoints;
  several.own_endpoint = own;
  return several;
}

// Rank `rank` of the round of `nodes` that another leader ran.
void come_from_a_round(Job& job, const std::string& id, int rank, int nodes) {
  Report& report = job.unheard(id);
  report.run = report.offered = {67108865, 0, rank, nodes, 0, 0, 0};
  job.tell(id);
}

TEST(SeveralEndpoints, TheFirstLeadsWhenNobodyDoesElsewhere) {
  Job job(among(2, 0, 1, 1));
  job.arrive("a");
  EXPECT_EQ(job.told("a"), Kind::Elsewhere);
  EXPECT_FALSE(job.coordinator().leads());
  job.coordinator().clear_endpoint(1);
  job.coordinator().advance(job.now());
  EXPECT_EQ(job.told("a"), Kind::Offer);

  Job second(among(2, 1, 1, 1));
  second.arrive("a");
  second.pass(seconds(60));
  EXPECT_EQ(second.told("a"), Kind::Elsewhere);
}

TEST(SeveralEndpoints, MoreThanHalfOfTheLastRoundElectALeader) {
  Job job(among(2, 1, 1, 3));
  come_from_a_round(job, "b", 1, 3);
  EXPECT_EQ(job.told("b"), Kind::Wait);
  EXPECT_THAT(job.order("b").text, HasSubstr("more than half"));
  EXPECT_FALSE(job.coordinator().leads());
  come_from_a_round(job, "c", 2, 3);
  EXPECT_TRUE(job.coordinator().leads());
  EXPECT_NE(job.told("b"), Kind::Offer);  // the others' workers may live
  job.pass(seconds(1));
  ASSERT_EQ(job.told("b"), Kind::Offer);
  EXPECT_EQ(job.order("b").ticket.round, 1);
  EXPECT_EQ(job.order("b").ticket.after_serial, 67108865);
}

TEST(SeveralEndpoints, OfTwoHalvesTheOneWithRankZero) {
  Job with(among(2, 1, 1, 2));
  come_from_a_round(with, "a", 0, 2);
  EXPECT_TRUE(with.coordinator().leads());
  Job without(among(2, 1, 1, 2));
  come_from_a_round(without, "b", 1, 2);
  EXPECT_FALSE(without.coordinator().leads());
}

TEST(SeveralEndpoints, WhoStillHasWorkersDoesNotCount) {
  Job job(among(2, 1, 1, 2));
  Report& report = job.unheard("a");
  report.state = AgentState::Running;
  report.run = report.offered = {67108865, 0, 0, 2, 0, 0, 0};
  job.tell("a");
  EXPECT_FALSE(job.coordinator().leads());
}

TEST(SeveralEndpoints, ALeaderOutOfTouchWithHalfOfItsRoundStandsDown) {
  Job job(among(2, 0, 1, 4));
  job.coordinator().clear_endpoint(1);
  for (const char* id : {"a", "b", "c", "d"}) job.arrive(id);
  job.start();
  ASSERT_EQ(job.told("a"), Kind::Run);
  EXPECT_GT(job.coordinator().lease(job.now()), job.now() + seconds(2));
  job.pass(milliseconds(3500), {"a", "b"});
  EXPECT_FALSE(job.coordinator().leads());
}

TEST(SeveralEndpoints, WhoSaysFarewellCountsForTheLeader) {
  Job job(among(2, 0, 1, 2));
  job.coordinator().clear_endpoint(1);
  for (const char* id : {"a", "b"}) job.arrive(id);
  job.start();
  ASSERT_EQ(job.told("b"), Kind::Run);
  job.at("a").end = RoundEnd{false, false, "a was stopped", ""};
  job.become("a", AgentState::Leaving);
  job.stop_workers();
  job.become("a", AgentState::Gone);
  job.pass(seconds(5));
  EXPECT_EQ(job.told("b"), Kind::Offer);
}

TEST(SeveralEndpoints, AProcessThatEndsLetsGoOfTheAgentsAndTakesNoLead) {
  Job job(among(2, 1, 1, 3));
  come_from_a_round(job, "b", 1, 3);
  job.coordinator().abandon("it was stopped");
  come_from_a_round(job, "c", 2, 3);
  EXPECT_FALSE(job.coordinator().leads());
  EXPECT_EQ(job.told("b"), Kind::Elsewhere);
}

}  // namespace
}  // namespace cpprun::rendezvous
