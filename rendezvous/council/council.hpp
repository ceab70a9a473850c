// Where agents meet on the network: takes in their connections, lets a Coordinator decide, and carries its
// orders to them. Each process that can serve an endpoint has one, whether it leads or stands by.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "rendezvous/async/event.hpp"
#include "rendezvous/async/task_group.hpp"
#include "rendezvous/coordinator.hpp"
#include "rendezvous/council/frames.hpp"
#include "rendezvous/farewell.hpp"
#include "rendezvous/membership.hpp"
#include "rendezvous/store/host_lookup.hpp"
#include "rendezvous/store/run_desk.hpp"
#include "rendezvous/store/store_client.hpp"

namespace cpprun::rendezvous {

struct CouncilConfig {
  std::string run_id;
  std::vector<store::StoreEndpoint> endpoints;  // all of the run; which is ours, say the rules
  CoordinatorRules rules;
};

class Council : public Farewell {
 public:
  // `desk` has the connections of the run's agents; it outlives this.
  Council(asio::any_io_executor executor, CouncilConfig config, store::RunDesk& desk);
  ~Council() override;

  // Until cancelled.
  awaitable<void> run();

  // run() goes on until cancelled.
  awaitable<void> say_farewell(std::string why) override;

  // The agent of this process, which outlives the last connection.
  void watch(const Membership& own_agent) { own_agent_ = &own_agent; }

  // The run is over and its agents know it: there is nothing left to say.
  bool done() const { return coordinator_.over() && coordinator_.listeners() == 0; }
  std::size_t agents() const { return by_id_.size(); }  // that are connected and have reported
  std::size_t connections() const;
  RunView view() const { return coordinator_.view(); }

  // This machine's address by which agents of other machines came; nothing if none did.
  std::optional<asio::ip::address> reached_at() const { return reached_at_; }

 private:
  struct Session;

  awaitable<void> take_connections();
  awaitable<void> decide();
  awaitable<void> serve(Session& session);
  awaitable<void> send_rest(Session& session);
  awaitable<void> clear_endpoint(int endpoint);
  awaitable<bool> nobody_leads_at(int endpoint);
  bool read(Session& session);
  bool take_frames(Session& session);
  bool take_frame(Session& session, FrameKind kind, std::string_view payload);
  bool take_report(Session& session, std::string_view text);
  void acknowledge(Session& session, std::int64_t agent_clock);
  void send(Session& session, std::string_view bytes);
  void send_order(const std::string& id);
  void end(Session& session, const char* why);
  async::Clock::time_point silence_limit(const Session& session) const;
  async::Clock::time_point patience() const;
  void end_silent_sessions(async::Clock::time_point now);

  asio::any_io_executor executor_;
  CouncilConfig config_;
  store::RunDesk& desk_;
  Coordinator coordinator_;
  store::HostLookups lookups_;
  std::deque<std::unique_ptr<Session>> sessions_;
  std::unordered_map<std::string, Session*> by_id_;
  std::vector<char> input_;
  std::optional<asio::ip::address> reached_at_;
  async::Clock::time_point clean_at_;
  const Membership* own_agent_ = nullptr;
  bool fault_logged_ = false;
  async::Event heard_;   // there is something to decide
  async::Event parted_;  // an agent has gone
  async::TaskGroup tasks_;
};

}  // namespace cpprun::rendezvous
