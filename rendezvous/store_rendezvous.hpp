// The rendezvous of a fixed number of nodes whose agents share a store: `static`, where each node's rank is
// given, and `c10d`. One agent's process serves the store; that agent also decides for all who takes part
// (round_host). See RENDEZVOUS.md for the keys.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rendezvous/async/deadline.hpp"
#include "rendezvous/async/event.hpp"
#include "rendezvous/async/task_group.hpp"
#include "rendezvous/join_protocol.hpp"
#include "rendezvous/rendezvous_handler.hpp"
#include "rendezvous/rendezvous_settings.hpp"
#include "rendezvous/round_host.hpp"
#include "rendezvous/store/prefix_store.hpp"
#include "rendezvous/store/store_client.hpp"

namespace cpprun::rendezvous {

struct StoreRendezvousConfig {
  std::string run_id;
  store::StoreEndpoint endpoint;  // of the store, as this agent reaches it
  bool hosts_store = false;       // this process serves it
  std::string host_address;       // the endpoint's host as the user typed it
  RoundRule rule;
  Node node;                           // this agent, without previous rank
  std::optional<std::string> address;  // --local-addr
  RendezvousLimits limits;
};

class StoreRendezvous : public RendezvousHandler {
 public:
  StoreRendezvous(asio::any_io_executor executor, StoreRendezvousConfig config);

  awaitable<RendezvousInfo> next_rendezvous() override;
  store::Store& round_store() override { return *round_store_; }
  awaitable<RoundEvent> round_ended() override;
  awaitable<FinishEvent> finish() override;
  awaitable<RoundEnd> end_round(RoundEnd wanted) override;
  awaitable<void> leave(RoundEnd wanted) override;
  awaitable<void> close() override;

 private:
  awaitable<void> connect(async::Deadline deadline);
  awaitable<void> enter(int round);
  awaitable<void> await_place(async::Deadline deadline);
  awaitable<std::string> missing();
  awaitable<void> end_tasks();
  std::optional<RoundEvent> event_now();
  awaitable<void> publish_end(RoundEnd& end);
  awaitable<void> acknowledge();
  std::string own_address() const;

  // The tasks of one round. Each ends by cancellation, or by noting in the state below why it ended.
  awaitable<void> beat();
  awaitable<void> watch_end();
  awaitable<void> watch_place();
  awaitable<void> watch_finished();
  awaitable<void> host_round();
  void lose(const std::string& reason);

  StoreRendezvousConfig config_;
  asio::any_io_executor executor_;
  std::unique_ptr<store::StoreClient> client_;
  std::optional<store::PrefixStore> run_store_;
  std::optional<store::PrefixStore> round_store_;

  // of the present round
  int round_ = -1;
  int slot_ = 0;  // 0: not arrived
  std::optional<Place> place_;
  std::optional<RoundEnd> end_;
  bool counted_finished_ = false;
  bool all_finished_ = false;
  std::optional<RoundHost> host_;  // where hosts_store

  std::optional<std::string> lost_;        // the store; for good
  int charged_ = 0;                        // restarts, as far as the store's host knows
  async::Event changed_;                   // something above did
  std::optional<async::TaskGroup> tasks_;  // of the present round
};

}  // namespace cpprun::rendezvous
