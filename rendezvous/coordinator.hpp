// What the leader of a run decides: who takes part in which round, as which rank, when a round ends and how,
// and whether this process may lead at all. Pure: reports and the time go in, orders come out. See
// RENDEZVOUS.md for the rules and why they hold.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "rendezvous/coordinator_rules.hpp"
#include "rendezvous/join_protocol.hpp"
#include "rendezvous/records.hpp"

namespace cpprun::rendezvous {

// What a run is doing, for those who watch it.
struct RunView {
  int round = -1;    // number of the last round
  int nodes = 0;     // of that
  int restarts = 0;  // charged
  bool running = false;
};

class Coordinator {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  Coordinator(CoordinatorRules rules, TimePoint now);

  // An agent's report has come, or a sign of its life, by which its last report still holds.
  void hear(const Report& report, TimePoint now);
  // The agent has had what was sent to it at `sent`: it follows no other leader until `sent` + death limit.
  void follows(const std::string& id, TimePoint sent);
  // The way to the agent has broken; it may come again.
  void part(const std::string& id);
  // The agent's lease has run out (etcd).
  void lose(const std::string& id, TimePoint now);
  // Takes over (etcd) from a leader that is no more and gives no orders any more, once all reports that hold
  // have been heard: a round that runs goes on, one that is ending ends as was said. `told`: the orders that
  // hold, by agent, those of lost agents included.
  void succeed(const std::map<std::string, Order>& told, TimePoint now);
  // The same where the last word has been spoken: nothing, if the job is done well.
  void conclude(std::optional<RoundEnd> end);
  // Nobody leads at that endpoint, for sure, nor is about to.
  void clear_endpoint(int endpoint) { cleared_.insert(endpoint); }
  // The agents that go on without this process are about to have their next round: if it ended before, some
  // of them might hold a place in it and others not, and nobody could tell whether it runs.
  bool hands_over() const;
  // This process ends: others may lead now or, where they cannot, are to know why it is over.
  void abandon(const std::string& why);

  // Decides what follows from all that was heard. To be called after each of the above, and at next_wake().
  void advance(TimePoint now);
  TimePoint next_wake() const { return next_wake_; }

  // The agent has lost what it was told.
  void tell_again(const std::string& id);
  // The agents whose order has changed since this was last asked.
  std::vector<std::string> take_changed();
  // What the leader's user should know, said once.
  std::vector<std::string> take_notices();
  Order order(const std::string& id) const;  // of an agent that has reported

  bool leads() const { return stage_ != Stage::Standby; }
  // Leads nothing, and nobody here wants it to.
  bool idle() const { return !leads() && references().empty(); }
  bool over() const { return stage_ == Stage::Over; }
  // Agents that have not taken the last word yet; after over().
  std::size_t listeners() const { return peers_.size(); }
  const std::optional<RoundEnd>& last_word() const { return end_; }  // after over(); nothing: done well
  RunView view() const {
    return {round_, run_ ? run_->ticket.nodes : 0, restarts_, stage_ == Stage::Running};
  }
  // Until when the agents may run their workers without hearing from this leader again.
  TimePoint lease(TimePoint now) const;

 private:
  // How often those who wait may be told something else, where they are more than a few.
  static constexpr std::chrono::milliseconds kTellEvery{5'000};
  static constexpr std::size_t kFew = 64;
  // The parts of a serial: how often the lead has changed hands, the leader's endpoint, its offers.
  static constexpr int kOfferBits = 20;
  static constexpr int kEndpointBits = 6;

  // More than half, or half of them with the lowest rank.
  static bool is_quorum(int present, bool lowest, int all) {
    return 2 * present > all || (2 * present == all && lowest);
  }

  enum class Stage { Standby, Gathering, Offering, Running, Ending, Over };
  struct OrderKey {
    Order::Kind kind;
    std::int64_t serial;
    int version;
    bool operator==(const OrderKey&) const = default;
  };
  struct Peer {
    Report report;
    int arrival = 0;
    TimePoint since;  // it waits for a place
    TimePoint heard;
    TimePoint followed;  // see follows()
    bool dead = false;
    bool was_led = false;  // by this leader, before it stood down
    std::string refusal;
    std::string notice;
    std::optional<OrderKey> told;
    std::int64_t placed = 0;  // serial of the last offer to it
    int rank = -1;            // in that
  };
  struct Round {
    Ticket ticket;                 // as of rank 0
    std::vector<std::string> ids;  // by rank
    std::vector<Node> nodes;
    std::vector<WorkerSpan> spans;
    StoreEndpoint store;
  };
  // A round that may have run under whatever leader: the next one needs more than half of its nodes.
  struct Reference {
    std::int64_t serial = 0;
    int nodes = 0;
    bool operator<(const Reference& other) const { return serial < other.serial; }
  };

  bool step(TimePoint now);
  bool try_to_lead(TimePoint now);
  bool gather(TimePoint now);
  bool await_acceptance(TimePoint now);
  bool watch_round(TimePoint now);
  bool await_stopped(TimePoint now);
  void lead(TimePoint not_before);
  Ticket last_round(const std::map<std::string, Order>& told);
  void rebuild_round(const Ticket& ticket);
  bool was_over(const std::map<std::string, Order>& told) const;
  void depose(const std::string& why);
  void bury_silent(TimePoint now);
  void bury(Peer& peer, TimePoint now);
  void forget_dead();
  void refuse_claims(const Seating& seating);
  void make_offer(const Seating& seating, TimePoint now);
  void end_round(RoundEnd end, bool may_be_amended);
  void end_run(std::optional<RoundEnd> end);
  // Of that node; `left`: it said so itself.
  void end_by_loss(int rank, const std::string& sentence, bool left);
  void give_orders(TimePoint now);
  void compare_rules(Peer& peer);
  OrderKey key_for(const Peer& peer) const;

  bool contested() const { return rules_.endpoints > 1; }
  const Peer* alive(const std::string& id) const;
  bool in_round(const Peer& peer) const;
  void remember(const Ticket& ticket, const std::string& id);
  bool enough_alive() const;
  std::vector<int> lost_nodes() const;
  std::vector<Candidate> waiting() const;
  std::set<Reference> references() const;
  Seating seat_quorums() const;
  bool superseded(std::int64_t offered) const;
  bool lets_go(const Report& report) const;
  std::int64_t last_run() const;
  std::vector<int> present(const Reference& reference, const std::set<std::string>* of) const;
  bool more_than_half(const Reference& reference, const std::set<std::string>* of) const;
  std::string who_is_here(const Reference& reference) const;
  bool followed_by(const std::set<std::string>* of) const;
  bool may_follow_last_round(const Seating& seating) const;
  std::string name(int rank) const;
  void wake_at(TimePoint when) { next_wake_ = std::min(next_wake_, when); }

  CoordinatorRules rules_;
  Stage stage_ = Stage::Standby;
  std::unordered_map<std::string, Peer> peers_;
  std::vector<std::string> changed_;
  std::vector<std::string> notices_;
  std::set<std::string> noticed_;  // differences that were said: thousands of nodes may have the same one
  std::set<int> cleared_;
  std::set<std::string> left_;  // agents that have said farewell to this leader: they follow no other
  int arrivals_ = 0;
  int last_arrival_ = 0;  // before the end of the run
  bool fresh_ = true;     // no round of this run is known
  bool abandoned_ = false;

  std::int64_t serial_ = 0;  // of the last offer
  bool new_term_ = true;     // no offer since this took the lead
  int round_ = -1;           // number of the last round
  int restarts_ = 0;
  std::set<Reference> known_;                                   // rounds that the next one must follow
  std::map<std::int64_t, std::map<int, std::string>> holders_;  // of those rounds' places, by serial and rank
  std::optional<Round> run_;                                    // the last round under this leader
  std::optional<Round> stood_down_from_;                        // the last one before this leader stood down
  std::optional<Round> offer_;                                  // the next one, not accepted by all yet
  std::vector<std::string> claims_;  // agents that want to end the round, in the order of their words
  std::optional<RoundEnd> end_;      // of run_ or, when over, of the job; without it the job is done well
  bool amendable_ = false;           // end_ waits for who is found lost

  TimePoint began_;
  TimePoint advanced_;               // the last time
  TimePoint followed_;               // more than half of the last round were in touch then, or it leads since
  TimePoint not_before_;             // the next round: workers of lost agents may live until then
  std::optional<TimePoint> enough_;  // nodes are there, since then
  TimePoint offered_;
  TimePoint next_wake_;
  std::string text_;  // what is waited for
  std::string told_;  // of that, what waiting agents know
  TimePoint told_at_;
  int told_version_ = 0;
  int end_version_ = 0;
};

}  // namespace cpprun::rendezvous
