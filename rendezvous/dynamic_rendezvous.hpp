// The rendezvous of several nodes, whatever the number and whoever leads: this agent's membership, kept in
// touch with the leader by a link. See RENDEZVOUS.md.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rendezvous/async/event.hpp"
#include "rendezvous/async/task_group.hpp"
#include "rendezvous/farewell.hpp"
#include "rendezvous/leader_link.hpp"
#include "rendezvous/membership.hpp"
#include "rendezvous/own_pauses.hpp"
#include "rendezvous/rendezvous_handler.hpp"
#include "rendezvous/rendezvous_settings.hpp"

namespace cpprun::rendezvous {

struct DynamicRendezvousConfig {
  Node node;
  RendezvousLimits limits;
  OpenWorkerStore open_store;
  bool replaceable_leader = false;  // another agent can take over from the one that leads
  bool may_rejoin = false;          // the run may have a place for a node that was cut off from its leader
  Farewell* farewell = nullptr;     // of this process, where it may lead
  std::string where;                // the agents meet, in messages: "host:29400"
  // In messages: what there was not at first, and what is waited for.
  std::string nobody = "no agent served the rendezvous";
  std::string leader = "an agent that leads the run";
};

// Makes the link to the leader, given the membership that it is to keep informed and what to notify then.
using MakeLink = std::function<std::unique_ptr<LeaderLink>(Membership&, async::Event&)>;

class DynamicRendezvous : public RendezvousHandler {
 public:
  DynamicRendezvous(asio::any_io_executor executor, DynamicRendezvousConfig config,
                    const MakeLink& make_link);

  awaitable<std::optional<RendezvousInfo>> next_rendezvous() override;
  awaitable<RoundEvent> round_ended() override;
  awaitable<FinishEvent> finish() override;
  awaitable<async::Deadline> fenced_before(async::Deadline limit) override;
  void end_round(RoundEnd wanted) override;
  awaitable<RoundEnd> settled() override;
  void leave(RoundEnd wanted) override;
  awaitable<void> close(std::string why) override;

 private:
  void report_changed();
  void fail_if_hopeless(async::Deadline connect, async::Deadline join) const;
  void pass_on_notice();
  std::string trouble() const;
  void say_what_is_waited_for(async::Deadline connect, async::Deadline join) const;
  RendezvousInfo begin_round();
  RoundEvent explained(RoundEvent event) const;
  awaitable<void> note_pauses();

  asio::any_io_executor executor_;
  DynamicRendezvousConfig config_;
  async::Event changed_;  // the membership has been told something
  Membership membership_;
  std::unique_ptr<LeaderLink> link_;
  OwnPauses pauses_;
  bool was_led_ = false;
  std::string noticed_;  // the leader's last notice
  std::string trouble_;  // the link's last problem on the way to a place
  async::TaskGroup tasks_;
};

}  // namespace cpprun::rendezvous
