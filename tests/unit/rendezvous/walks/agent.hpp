// launcher/agent/agent.cpp and dynamic_rendezvous.cpp without processes and sockets: the same steps at the
// same times, on one simulated host.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rendezvous/membership.hpp"
#include "tests/unit/rendezvous/walks/council.hpp"
#include "tests/unit/rendezvous/walks/link.hpp"

namespace cpprun::rendezvous::walks {

struct AgentRules {
  LinkRules link;
  CoordinatorRules coordinator;
  milliseconds stop_margin{1000};
  milliseconds stop_grace{3000};
  seconds connect_timeout{60};
  seconds join_timeout{600};
  double stubborn = 0.5;  // how often workers need all of their grace
};

class Agent;

// Sees all that happens to the workers.
class Witness {
 public:
  virtual ~Witness() = default;
  virtual void started(const Agent& agent, const WorkerSpan& span) = 0;
  virtual void finished(const Agent& agent) = 0;
  virtual void told_that_all_finished(const Agent& agent) = 0;
  virtual void ended(const Agent& agent, const std::string& why) = 0;
};

class Agent {
 public:
  Agent(Timeline& time, Dice& dice, Network& network, std::map<int, Network::Listener>& listeners,
        Witness& witness, AgentRules rules, int host, const Node& node, const std::string& id,
        Duration clock_offset);

  // ---- what happens to it
  void kill(bool with_host);
  void freeze(Duration span);
  void ask_to_stop();
  void fail_workers(bool fatal);
  void finish_workers();

  // ---- what it does
  enum class Phase { Joining, Working, Finishing, Stopping, Settling, Closing, Ended };
  Phase phase() const { return phase_; }
  bool alive() const { return process_.alive; }
  bool has_workers() const { return alive() && workers_alive_; }
  const Membership& membership() const { return membership_; }
  const Process& process() const { return process_; }
  const Council* council() const { return council_.get(); }
  int workers_per_node() const { return membership_.report().node.workers; }
  std::string state_text() const;

 private:
  TimePoint now() const { return process_.clock(time_.now()); }
  void soon() { alarm_.set(time_.now()); }
  void alarmed();
  void step();
  void join();
  std::string hopeless() const;
  void work();
  void await_the_others();
  void await_workers();
  void settle();
  void begin_joining();
  void stop_workers(milliseconds grace);
  void leave();
  void close(const std::string& why);
  void await_farewell();

  Timeline& time_;
  Dice& dice_;
  Network& network_;
  std::map<int, Network::Listener>& listeners_;
  Witness& witness_;
  AgentRules rules_;
  Process process_;
  Membership membership_;
  std::unique_ptr<Council> council_;
  Link link_;
  Alarm alarm_;
  Phase phase_ = Phase::Joining;
  bool was_led_ = false;
  TimePoint connect_limit_;
  TimePoint join_limit_;
  bool workers_alive_ = false;
  bool failed_here_ = false;
  bool told_to_stop_ = false;
  enum class Outcome { None, Good, Failed, Fatal } outcome_ = Outcome::None;
  TimePoint stop_limit_;
  TimePoint stopped_at_;
  TimePoint farewell_limit_;
  std::string why_;
};

}  // namespace cpprun::rendezvous::walks
