// What the leader of a run does in etcd while it leads: takes over what its predecessor has left, hears the
// agents' reports, lets a Coordinator decide, and puts its orders. All that it writes is fenced: once another
// leads, nothing of it takes effect.
//
// The end of a run. Before anybody is given a final order, the leader puts the last word, so that each leader
// after it says the same. It holds for the agents that were there when it was spoken and for those that have
// had a place by then; the next run of that name begins with the agents that came later, when the last of the
// others has gone: then the leader of the day erases the word and begins anew. Nobody has to be alive for
// that in between.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "rendezvous/async/event.hpp"
#include "rendezvous/async/task_group.hpp"
#include "rendezvous/coordinator.hpp"
#include "rendezvous/etcd/etcd_client.hpp"
#include "rendezvous/etcd/etcd_keys.hpp"
#include "rendezvous/etcd/etcd_session.hpp"

namespace cpprun::rendezvous {

class EtcdReign {
 public:
  // `leader`: the key that was won, with the lease that `session` has now. All outlive this.
  EtcdReign(asio::any_io_executor executor, EtcdClient& client, EtcdSession& session, const EtcdKeys& keys,
            const CoordinatorRules& rules, Fence leader);

  // Until it leads no more (another may, or itself anew) or is cancelled. Throws EtcdError.
  awaitable<void> run();

  // Returns when all that is decided has been put, when this leads no more, or at the limit.
  awaitable<void> settle(async::Deadline limit);

 private:
  struct Agent {
    Report report;
    Revision created = 0;  // of its key
  };

  bool leads_in(const PrefixReading& reading) const;
  void take_over(const PrefixReading& reading);
  awaitable<void> watch(KeyRange range, Revision from);
  void take(const KeyEvent& event);
  void hear(const std::string& id, Agent agent);
  void lose(const std::string& id);
  bool comes_too_late(const Agent& agent) const;

  awaitable<void> decide();
  awaitable<void> speak_last_word();
  awaitable<void> begin_next_run();
  awaitable<void> put_orders();
  awaitable<bool> put_next(const std::string& id);
  std::optional<std::string> next_to_put() const;
  void step_down();

  asio::any_io_executor executor_;
  EtcdClient& client_;
  EtcdSession& session_;
  const EtcdKeys& keys_;
  Coordinator coordinator_;
  Fence leader_;
  LeaseId own_lease_;
  LeaseId records_ = kNoLease;  // on which orders and the last word hang, so that they are not left for ever
  async::Clock::time_point keep_records_;

  std::map<std::string, Agent> agents_;      // of this run
  std::map<std::string, Agent> latecomers_;  // of the next
  std::optional<Order> word_;                // the last one; put or to be put
  Revision spoken_ = 0;                      // revision of the last word's creation, where a predecessor's
  bool word_is_put_ = false;

  std::map<std::string, std::string> orders_;  // to be put, by agent
  std::set<std::string> erasures_;             // of orders of agents that are gone
  std::set<std::string> in_flight_;
  async::Event heard_;    // there is something to decide
  async::Event to_put_;   // there are orders to put
  async::Event written_;  // some have been, or it was decided
  async::TaskGroup tasks_;
};

}  // namespace cpprun::rendezvous
