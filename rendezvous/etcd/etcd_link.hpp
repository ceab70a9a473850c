// An agent's way to whoever leads its run, by etcd: puts its report there and takes its orders from there. It
// needs no leader to be at hand: as long as etcd answers, the orders hold.
#pragma once

#include <optional>
#include <string>

#include "rendezvous/async/event.hpp"
#include "rendezvous/etcd/etcd_client.hpp"
#include "rendezvous/etcd/etcd_keys.hpp"
#include "rendezvous/etcd/etcd_session.hpp"
#include "rendezvous/leader_link.hpp"
#include "rendezvous/membership.hpp"

namespace cpprun::rendezvous {

struct EtcdLinkConfig {
  EtcdKeys keys;
  bool fixed_address = false;  // the membership's address is not the link's to find out
};

class EtcdLink : public LeaderLink {
 public:
  // `session` runs elsewhere. `changed` is notified when the membership has been told something. All outlive
  // this.
  EtcdLink(asio::any_io_executor executor, EtcdLinkConfig config, EtcdClient& client, EtcdSession& session,
           Membership& membership, async::Event& changed);

  awaitable<void> run() override;
  void report_changed() override { session_.changed().notify_all(); }
  awaitable<void> flush(async::Deadline limit) override;
  const std::string& problem() const override;
  const std::string& refusal() const override;

 private:
  awaitable<void> follow_lease();
  awaitable<void> put_reports();
  awaitable<void> take_orders();
  awaitable<void> watch_order();
  void take(const std::string& text);

  asio::any_io_executor executor_;
  EtcdLinkConfig config_;
  EtcdClient& client_;
  EtcdSession& session_;
  Membership& membership_;
  async::Event& changed_;
  async::Event said_;
  int sent_version_ = 0;
  LeaseId sent_lease_ = kNoLease;
  std::optional<async::Clock::time_point> say_again_;
  std::optional<Order> order_;  // the last one
  std::string problem_;
  std::string refusal_;
};

}  // namespace cpprun::rendezvous
