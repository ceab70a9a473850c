// An agent's way to the council that leads its run: finds it among the run's endpoints, and another one when
// it is lost.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "rendezvous/async/event.hpp"
#include "rendezvous/council/frames.hpp"
#include "rendezvous/endpoint_troubles.hpp"
#include "rendezvous/leader_link.hpp"
#include "rendezvous/leader_search.hpp"
#include "rendezvous/membership.hpp"
#include "rendezvous/store/host_lookup.hpp"
#include "rendezvous/store/store_client.hpp"
#include "rendezvous/store/store_connection.hpp"

namespace cpprun::rendezvous {

struct CouncilLinkConfig {
  store::Opening opening;                       // of the run
  std::shared_ptr<const store::Secret> secret;  // of the job; null: none
  std::vector<store::StoreEndpoint> endpoints;  // in the order to try them
  int own_endpoint = -1;                        // that this process serves
  bool fixed_address = false;                   // the membership's address is not the link's to find out
  std::chrono::milliseconds interval{1'000};    // between two heartbeats
  std::chrono::milliseconds death_limit{3'000};
};

class CouncilLink : public LeaderLink {
 public:
  // `changed` is notified when the membership has been told something. Both outlive this.
  CouncilLink(asio::any_io_executor executor, CouncilLinkConfig config, Membership& membership,
              async::Event& changed);

  awaitable<void> run() override;
  void report_changed() override { to_say_.notify_all(); }
  awaitable<void> flush(async::Deadline limit) override;
  const std::string& problem() const override { return problem_; }
  const std::string& refusal() const override { return refusal_; }

 private:
  using Connection = std::unique_ptr<store::StoreConnection>;

  awaitable<void> seek();
  awaitable<Connection> open(int endpoint, async::Deadline limit);
  awaitable<CouncilStatus> first_status(store::StoreConnection& connection, async::Deadline limit);
  awaitable<void> follow(int endpoint, Connection connection);
  awaitable<void> listen(store::StoreConnection& connection, int endpoint);
  awaitable<void> speak(store::StoreConnection& connection);
  bool take_ack(std::string_view payload, int endpoint);
  void lose_leader();
  void note_trouble(int endpoint, const std::string& phrase);
  bool contested() const { return config_.endpoints.size() > 1; }

  asio::any_io_executor executor_;
  CouncilLinkConfig config_;
  Membership& membership_;
  async::Event& changed_;
  store::HostLookups lookups_;
  async::Event to_say_;
  async::Event said_;
  LeaderSearch search_;
  bool led_ = false;  // since this agent began
  int sent_version_ = 0;
  async::Clock::time_point heard_;  // something from the council, the last time
  std::int64_t echo_ = 0;           // the leader's clock, to be sent back
  std::chrono::milliseconds beat_interval_{};
  bool connected_ = false;
  EndpointTroubles troubles_;
  std::string problem_;  // all of them
  std::string refusal_;
};

}  // namespace cpprun::rendezvous
