// Connections between simulated processes: each direction keeps its order, delays what it carries, is held up
// by cuts, and ends with or without a word.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/council/frames.hpp"
#include "rendezvous/records.hpp"
#include "tests/unit/rendezvous/walks/timeline.hpp"

namespace cpprun::rendezvous::walks {

struct Opened {};
struct Closed {};
struct Beat {
  std::int64_t clock;
};
struct Echo {
  std::int64_t clock;
};
struct Ack {
  std::int64_t agent_clock;
  std::int64_t leader_clock;
  std::int64_t lease;
};
using Message = std::variant<Opened, Closed, CouncilStatus, Report, Beat, Echo, Order, Ack>;

class Connection;

// What a connection ends at, in some process.
class Party {
 public:
  virtual ~Party() = default;
  virtual void receive(Connection& connection, const Message& message) = 0;
};

// A process, as the network sees it.
struct Process {
  int host = 0;
  bool alive = true;
  TimePoint frozen_until{};
  Duration clock_offset{};

  TimePoint clock(TimePoint now) const { return now + clock_offset; }
};

// The ends: 0 the one that opened it, 1 the one that took it.
class Connection {
 public:
  struct End {
    const Process* process = nullptr;
    Party* party = nullptr;  // nothing: closed here
  };
  std::array<End, 2> ends;
  std::array<int, 2> hosts{};
  bool refused = false;  // nobody listened there

 private:
  friend class Network;
  struct Travelling {
    TimePoint when;
    Message message;
  };
  std::array<std::deque<Travelling>, 2> ways;  // 0: towards end 1
  std::array<bool, 2> silent{};                // whatever is sent that way is lost
};

class Network {
 public:
  // Who listens at a host; may be nobody.
  struct Listener {
    const Process* process = nullptr;
    Party* party = nullptr;
  };

  Network(Timeline& time, Dice& dice) : time_(time), dice_(dice) {}

  // `listeners` by host.
  Connection& open(const Process& from, Party& party, int to_host, const std::map<int, Listener>& listeners);
  void send(Connection& connection, Party& from, Message message);
  // The sender's end is closed; the other learns it in its turn.
  void close(Connection& connection, Party& from);
  // The process has ended. Where its host has ended too nobody is told.
  void end_of(const Process& process, bool with_host);

  // Nothing passes from one host to the other; again from `until` on.
  void cut(int from, int to, TimePoint until);
  void heal();
  // One connection breaks: what is under way may be lost, and the ends may not learn of it.
  void break_one();
  void set_delays(Duration least, Duration most, double chance_of_long, Duration longest);

 private:
  TimePoint passes_at(int from, int to) const;
  Duration delay(int from, int to);
  void put(Connection& connection, int way, Message message);
  void carry(Connection& connection, int way);

  Timeline& time_;
  Dice& dice_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::map<std::pair<int, int>, TimePoint> cuts_;
  const std::map<int, Listener>* listeners_ = nullptr;
  Duration least_ = milliseconds(0);
  Duration most_ = milliseconds(3);
  double chance_of_long_ = 0;
  Duration longest_ = milliseconds(3);
};

}  // namespace cpprun::rendezvous::walks
