#include "rendezvous/membership.hpp"

#include <algorithm>
#include <utility>

namespace cpprun::rendezvous {

Membership::Membership(std::string id, Node node, std::chrono::milliseconds death_limit,
                       std::chrono::milliseconds stop_grace)
    : death_limit_(death_limit), stop_grace_(stop_grace) {
  report_.id = std::move(id);
  report_.node = std::move(node);
}

bool Membership::has_workers() const {
  return report_.state == AgentState::Running || report_.state == AgentState::Finished ||
         report_.state == AgentState::Leaving;
}

void Membership::set_address(const std::string& address) {
  if (report_.node.address == address) return;
  report_.node.address = address;
  changed();
}

void Membership::want_place() {
  if (report_.state == AgentState::Waiting) return;
  // How it wants the round to end stays said: the leader may see only the latest report.
  report_.state = AgentState::Waiting;
  report_.store.reset();
  changed();
}

void Membership::accept(const std::optional<StoreEndpoint>& store) {
  report_.offered = order_.ticket;
  report_.store = store;
  changed();
}

void Membership::start() {
  report_.state = AgentState::Running;
  report_.run = report_.offered;
  report_.end.reset();
  changed();
}

void Membership::finish() {
  report_.state = AgentState::Finished;
  changed();
}

void Membership::want_end(RoundEnd end) {
  report_.end = std::move(end);
  changed();
}

void Membership::leave(RoundEnd end) {
  report_.state = AgentState::Leaving;
  want_end(std::move(end));
}

void Membership::go() {
  report_.state = AgentState::Gone;
  changed();
}

void Membership::take(Order order) {
  order_ = std::move(order);
}

void Membership::renew(TimePoint sent, std::chrono::milliseconds lease, TimePoint now) {
  // What another leader has granted before is of no worth under this one.
  lease_ = leader_known_ ? std::max(lease_, sent + lease) : sent + lease;
  leader_known_ = true;
  loyal_until_ = std::max(now + death_limit_, lease_);
}

void Membership::forget_leader() {
  leader_known_ = false;
  const bool last_word = (order_.kind == Order::Kind::End && order_.end.final) ||
                         order_.kind == Order::Kind::Finished || order_.kind == Order::Kind::Refused;
  if (last_word) return;
  order_ = Order{};
  order_.kind = Order::Kind::Elsewhere;
}

std::optional<Ticket> Membership::offered() const {
  const bool is_new = report_.state == AgentState::Waiting && order_.kind == Order::Kind::Offer &&
                      order_.ticket.serial > report_.offered.serial;
  return is_new ? std::optional<Ticket>(order_.ticket) : std::nullopt;
}

std::optional<Ticket> Membership::placed(TimePoint now) const {
  const std::int64_t serial = order_.ticket.serial;
  const bool is_new = report_.state == AgentState::Waiting && order_.kind == Order::Kind::Run &&
                      now < lease_ && serial == report_.offered.serial && serial != report_.run.serial;
  return is_new ? std::optional<Ticket>(order_.ticket) : std::nullopt;
}

std::optional<RoundEnd> Membership::verdict() const {
  const bool of_last_round = order_.ticket.serial == report_.run.serial;
  if (!leader_known_ && !(order_.kind == Order::Kind::End && order_.end.final))
    return order_.end;  // nobody's
  if (order_.kind == Order::Kind::Run && of_last_round) return std::nullopt;
  if (order_.kind != Order::Kind::End) return order_.end;
  return order_.end.final || !of_last_round ? std::optional<RoundEnd>(order_.end) : std::nullopt;
}

std::optional<RoundEvent> Membership::round_event(TimePoint now) const {
  if (!has_workers()) return std::nullopt;
  if (order_.kind == Order::Kind::End && order_.ticket.serial == report_.run.serial) return order_.end;
  if (order_.kind == Order::Kind::Elsewhere) {
    return RendezvousLost{"the agent that led the run leads no more", stop_grace_};
  }
  if (now < lease_) return std::nullopt;
  return RendezvousLost{"the run's leader cannot be reached", stop_grace_};
}

std::optional<Membership::TimePoint> Membership::lease_end() const {
  return has_workers() ? std::optional<TimePoint>(lease_) : std::nullopt;
}

std::optional<Membership::TimePoint> Membership::fence() const {
  return has_workers() ? std::optional<TimePoint>(lease_ + stop_grace_) : std::nullopt;
}

}  // namespace cpprun::rendezvous
