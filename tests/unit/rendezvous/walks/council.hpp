// council/council.cpp without its sockets: the same steps at the same times.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/coordinator.hpp"
#include "rendezvous/council/council_status.hpp"
#include "tests/unit/rendezvous/walks/network.hpp"

namespace cpprun::rendezvous::walks {

class Council : public Party {
 public:
  Council(Timeline& time, Network& network, const Process& process, CoordinatorRules rules,
          const Membership& own_agent, const std::map<int, Network::Listener>& listeners);

  void receive(Connection& connection, const Message& message) override;
  // `limit`: for a round that is about to come.
  void say_farewell(const std::string& why, TimePoint limit);
  bool everyone_has_left() const { return by_id_.empty(); }
  const Coordinator& coordinator() const { return coordinator_; }

 private:
  struct Session {
    std::optional<Report> report;
    TimePoint heard;
  };
  // A look at another endpoint: does somebody lead there?
  struct Look : Party {
    void receive(Connection& connection, const Message& message) override;
    Council* council = nullptr;
    int endpoint = 0;
    Connection* connection = nullptr;
    std::unique_ptr<Alarm> alarm;  // ends a look, or the pause after it
  };

  TimePoint now() const { return process_.clock(time_.now()); }
  void soon();
  void decide();
  void take_report(Connection& connection, const Report& report);
  void acknowledge(Connection& connection, std::int64_t agent_clock);
  void end(Connection& connection);
  void end_silent_sessions();
  void look(Look& look);
  void looked(Look& look, bool nobody);
  void patiently(const std::function<void()>& what);

  Timeline& time_;
  Network& network_;
  const Process& process_;
  CoordinatorRules rules_;
  const Membership& own_agent_;
  const std::map<int, Network::Listener>& listeners_;
  Coordinator coordinator_;
  std::map<Connection*, Session> sessions_;
  std::map<std::string, Connection*> by_id_;
  std::vector<std::unique_ptr<Look>> looks_;
  Alarm alarm_;
};

std::int64_t ticks(TimePoint when);
TimePoint at_ticks(std::int64_t count);

}  // namespace cpprun::rendezvous::walks
