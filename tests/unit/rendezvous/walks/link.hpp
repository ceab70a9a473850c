// council/council_link.cpp without its sockets: the same steps at the same times.
#pragma once

#include <functional>
#include <map>

#include "rendezvous/leader_search.hpp"
#include "rendezvous/membership.hpp"
#include "tests/unit/rendezvous/walks/network.hpp"

namespace cpprun::rendezvous::walks {

struct LinkRules {
  int endpoints = 1;
  milliseconds interval{1000};
  milliseconds death_limit{3000};
};

class Link : public Party {
 public:
  // `changed`: the membership has been told something.
  Link(Timeline& time, Network& network, const Process& process, LinkRules rules, Membership& membership,
       const std::map<int, Network::Listener>& listeners, std::function<void()> changed);

  void seek();
  void report_changed() { speak(); }
  void stop();
  void receive(Connection& connection, const Message& message) override;

 private:
  TimePoint now() const { return process_.clock(time_.now()); }
  void set_alarm(TimePoint at_own_clock);
  void alarmed();
  void next_step();
  void pause();
  void follow();
  void take_order(const Order& order);
  bool take_ack(const Ack& ack);
  void speak();
  void drop();
  void lose_leader();

  enum class Stage { Pause, Opening, Following, Stopped };

  Timeline& time_;
  Network& network_;
  const Process& process_;
  LinkRules rules_;
  Membership& membership_;
  const std::map<int, Network::Listener>& listeners_;
  std::function<void()> changed_;
  LeaderSearch search_;
  Stage stage_ = Stage::Pause;
  LeaderSearch::Step step_{};
  Connection* connection_ = nullptr;
  int sent_version_ = 0;
  std::int64_t echo_ = 0;
  TimePoint beat_;
  milliseconds beat_interval_{};
  TimePoint to_be_led_;
  TimePoint silence_;
  Alarm alarm_;
};

}  // namespace cpprun::rendezvous::walks
