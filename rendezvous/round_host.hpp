// One round as the store's host runs it: takes in who arrives, watches who lives, gives out the places.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/async/event.hpp"
#include "rendezvous/join_protocol.hpp"
#include "rendezvous/liveness.hpp"
#include "rendezvous/rendezvous_settings.hpp"
#include "rendezvous/store/store.hpp"

namespace cpprun::rendezvous {

// What an agent gets for its arrival.
struct Place {
  int group_rank = 0;
  int nodes = 0;
  int restarts = 0;
  std::string refusal;  // a sentence; empty for one that is seated
};
std::string to_json(const Place& place);
std::optional<Place> place_from_json(const std::string& text);

class RoundHost {
 public:
  // `store` holds the round's keys, `own_slot` is the host's own arrival. `survivors`: of the round before.
  // `changed` is notified when a node is lost.
  RoundHost(store::Store& store, int own_slot, RoundRule rule, RendezvousLimits limits, int restarts,
            int survivors, async::Event& changed);

  // Until cancelled. Throws store::StoreError.
  awaitable<void> run();

  // A seated node that went after the round was complete, each told once.
  std::optional<std::string> take_lost();
  // Slots of the other seated nodes that still live.
  std::vector<int> live_others() const;
  // How many nodes, the host among them, may be expected in the next round. After run().
  awaitable<int> survivors();

 private:
  awaitable<void> take_arrival(int slot);
  awaitable<void> refuse(int slot, std::string why);
  awaitable<void> look_after();
  awaitable<void> skip_silent_arrival();
  bool may_complete() const;
  awaitable<void> give_places();
  awaitable<void> refuse_surplus(async::Clock::time_point now);
  awaitable<void> say_who_is_missing();
  void drop(Member member, const std::string& why);
  void forget(int slot);

  store::Store& store_;
  int own_slot_;
  RoundRule rule_;
  RendezvousLimits limits_;
  int restarts_;
  async::Event& changed_;
  Liveness liveness_;
  std::vector<Member> members_;                      // that have arrived and live, in the order of arrival
  std::map<int, async::Clock::time_point> arrived_;  // by slot
  int survivors_;
  async::Clock::time_point began_;
  int arrivals_ = 0;      // looked at
  int silent_looks_ = 0;  // at the next arrival, which has not said who it is
  bool complete_ = false;
  std::string said_;
  std::deque<std::string> lost_;
};

}  // namespace cpprun::rendezvous
