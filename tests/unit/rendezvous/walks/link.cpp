#include "tests/unit/rendezvous/walks/link.hpp"

#include <algorithm>
#include <utility>

#include "tests/unit/rendezvous/walks/council.hpp"

namespace cpprun::rendezvous::walks {
namespace {

constexpr milliseconds kTryLimit(2000);
constexpr milliseconds kPause(100);

}  // namespace

Link::Link(Timeline& time, Network& network, const Process& process, LinkRules rules, Membership& membership,
           const std::map<int, Network::Listener>& listeners, std::function<void()> changed)
    : time_(time),
      network_(network),
      process_(process),
      rules_(rules),
      membership_(membership),
      listeners_(listeners),
      changed_(std::move(changed)),
      search_(rules.endpoints),
      alarm_(time, [this] { alarmed(); }) {}

void Link::set_alarm(TimePoint at_own_clock) {
  alarm_.set(time_.now() + std::max(at_own_clock - now(), Duration(1)));
}

void Link::alarmed() {
  if (!process_.alive || stage_ == Stage::Stopped) return;
  if (process_.frozen_until > time_.now()) {
    alarm_.set(process_.frozen_until);
    return;
  }
  if (stage_ == Stage::Pause) return seek();
  if (stage_ == Stage::Opening) {
    network_.close(*connection_, *this);
    return next_step();
  }
  if (now() >= silence_) return drop();
  speak();
}

void Link::seek() {
  if (membership_.knows_leader() && now() >= membership_.loyal_until()) lose_leader();
  search_.begin_turn(membership_, now());
  next_step();
}

void Link::next_step() {
  connection_ = nullptr;
  const std::optional<LeaderSearch::Step> step = search_.next_step();
  if (!step) return pause();
  step_ = *step;
  stage_ = Stage::Opening;
  connection_ = &network_.open(process_, *this, step_.endpoint, listeners_);
  set_alarm(now() + kTryLimit);
}

void Link::pause() {
  stage_ = Stage::Pause;
  changed_();
  if (stage_ == Stage::Pause) set_alarm(now() + kPause);
}

void Link::follow() {
  stage_ = Stage::Following;
  sent_version_ = 0;
  echo_ = 0;
  beat_ = {};
  beat_interval_ = rules_.interval;
  to_be_led_ = now() + rules_.death_limit;
  silence_ = now() + rules_.death_limit;
  speak();
}

void Link::receive(Connection& connection, const Message& message) {
  if (&connection != connection_) return;
  if (std::holds_alternative<Closed>(message)) {
    network_.close(connection, *this);
    return stage_ == Stage::Opening ? next_step() : drop();
  }
  if (const CouncilStatus* status = std::get_if<CouncilStatus>(&message)) {
    if (*status == CouncilStatus::Leads || step_.to_be_counted) return follow();
    search_.answered(step_.endpoint);
    network_.close(connection, *this);
    return next_step();
  }
  silence_ = now() + rules_.death_limit;
  if (const Order* order = std::get_if<Order>(&message)) return take_order(*order);
  if (take_ack(std::get<Ack>(message))) to_be_led_ = now() + rules_.death_limit;
  if (stage_ == Stage::Following && now() >= to_be_led_) drop();
}

void Link::take_order(const Order& order) {
  const bool steps_down = order.kind == Order::Kind::Elsewhere;
  membership_.take(order);
  changed_();
  if (!steps_down || stage_ != Stage::Following) return;
  lose_leader();
  if (stage_ == Stage::Following) drop();
}

bool Link::take_ack(const Ack& ack) {
  if (ack.lease <= 0) return false;
  const std::chrono::nanoseconds lease(ack.lease);
  membership_.renew(at_ticks(ack.agent_clock), std::chrono::duration_cast<milliseconds>(lease), now());
  search_.led_from(step_.endpoint);
  beat_interval_ = next_beat_interval(rules_.interval, lease);
  if (rules_.endpoints > 1) echo_ = ack.leader_clock;
  changed_();
  speak();
  return true;
}

void Link::speak() {
  if (stage_ != Stage::Following) return;
  if (sent_version_ != membership_.version()) network_.send(*connection_, *this, membership_.report());
  sent_version_ = membership_.version();
  if (const std::int64_t echo = std::exchange(echo_, 0)) network_.send(*connection_, *this, Echo{echo});
  if (now() >= beat_ + beat_interval_) {
    network_.send(*connection_, *this, Beat{ticks(now())});
    beat_ = now();
  }
  set_alarm(std::min(beat_ + beat_interval_, silence_));
}

void Link::drop() {
  network_.close(*connection_, *this);
  connection_ = nullptr;
  pause();
}

void Link::stop() {
  stage_ = Stage::Stopped;
  if (connection_) network_.close(*connection_, *this);
  connection_ = nullptr;
}

void Link::lose_leader() {
  membership_.forget_leader();
  changed_();
}

}  // namespace cpprun::rendezvous::walks
