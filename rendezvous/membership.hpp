// One agent's part in a run: what it reports, what it makes of its orders, and how long it may go on without
// a leader. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "rendezvous/records.hpp"

namespace cpprun::rendezvous {

class Membership {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // `death_limit`: the silence after which the leader takes an agent for dead; `stop_grace`: for the workers
  // of an agent that has lost its leader.
  Membership(std::string id, Node node, std::chrono::milliseconds death_limit,
             std::chrono::milliseconds stop_grace);

  const Report& report() const { return report_; }
  int version() const { return version_; }  // grows with each change of the report

  // ---- what this agent does
  void set_address(const std::string& address);
  void want_place();                                       // it has no workers
  void accept(const std::optional<StoreEndpoint>& store);  // what is offered(); the store where it has rank 0
  void start();                                            // the workers of placed()
  void finish();                                           // they ended well
  void want_end(RoundEnd end);
  void leave(RoundEnd end);
  void go();  // gone, without workers

  // ---- what it is told
  // Orders that come from somebody who leads hold until others come.
  void take(Order order);
  // The leader has answered what was sent to it at `sent`, and gives so long a lease from then on.
  void renew(TimePoint sent, std::chrono::milliseconds lease, TimePoint now);
  // There is no leader, and no need to wait for one that was.
  void forget_leader();

  // ---- what follows
  std::optional<Ticket> offered() const;  // and not accepted yet
  // To be started; not while it may be that the leader has gone on without this agent.
  std::optional<Ticket> placed(TimePoint now) const;
  std::optional<RoundEnd> verdict() const;  // on the last round, when its workers are gone
  // Why the workers must stop, if they must.
  std::optional<RoundEvent> round_event(TimePoint now) const;
  bool all_finished() const { return order_.kind == Order::Kind::Finished; }
  const Order& order() const { return order_; }
  // Until when its workers may run without a further word from the leader, if it has any; and when the last
  // of them must be gone then.
  std::optional<TimePoint> lease_end() const;
  std::optional<TimePoint> fence() const;
  // Until then it follows its leader, though that does not answer.
  TimePoint loyal_until() const { return loyal_until_; }
  bool knows_leader() const { return leader_known_; }
  // Has a leader, or had a place in a round: there is a run that another leader may have to go on with.
  bool of_a_run() const { return leader_known_ || report_.run.serial != 0 || report_.offered.serial != 0; }

 private:
  bool has_workers() const;
  void changed() { ++version_; }

  Report report_;
  int version_ = 1;
  std::chrono::milliseconds death_limit_;
  std::chrono::milliseconds stop_grace_;
  Order order_;
  bool leader_known_ = false;
  TimePoint lease_;
  TimePoint loyal_until_;
};

}  // namespace cpprun::rendezvous
