// How a Coordinator takes over from the leader before it.
#include <algorithm>
#include <utility>

#include "rendezvous/coordinator.hpp"

namespace cpprun::rendezvous {

void Coordinator::succeed(const std::map<std::string, Order>& told, TimePoint now) {
  stage_ = Stage::Gathering;
  const Ticket last = last_round(told);
  fresh_ = std::none_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    const auto order = told.find(entry.first);
    return entry.second.report.run.serial != 0 || entry.second.report.offered.serial != 0 ||
           (order != told.end() && order->second.ticket.serial != 0);
  });
  // Whoever is not here any more may have been lost a moment ago.
  not_before_ = now + rules_.stop_margin;
  if (fresh_) {  // nobody is left of the run that there was
    round_ = -1;
    restarts_ = 0;
    if (serial_ == 0) not_before_ = now;
    return;
  }
  if (last.serial == 0) return;
  rebuild_round(last);
  end_ = RoundEnd{};
  if (was_over(told)) return;
  stage_ = Stage::Running;
  for (const auto& [id, order] : told) {
    if (order.kind != Order::Kind::End || order.ticket.serial != last.serial) continue;
    // The verdict that was kept back then.
    RoundEnd end = order.end;
    end.final = end.final || (end.charged && restarts_ >= rules_.max_restarts);
    end_round(std::move(end), true);
    stage_ = Stage::Ending;
    return;
  }
}

// The round that ran last, as its rank 0 knows it; its serial is 0 if none ever did. What was charged and
// offered since is counted too.
Ticket Coordinator::last_round(const std::map<std::string, Order>& told) {
  Ticket last;
  const auto count = [&](const Ticket& ticket, bool has_run) {
    if (ticket.serial == 0) return;
    serial_ = std::max(serial_, ticket.serial);
    restarts_ = std::max(restarts_, ticket.restarts);
    if (has_run) round_ = std::max(round_, ticket.round);
    if (has_run && ticket.nodes > 0 && ticket.serial > last.serial) last = ticket;
  };
  for (const auto& [id, peer] : peers_) {
    count(peer.report.run, true);
    count(peer.report.offered, false);
  }
  for (const auto& [id, order] : told) count(order.ticket, order.kind != Order::Kind::Offer);
  last.rank = 0;
  return last;
}

// From its nodes' own reports. A place that nobody reports is a lost node's.
void Coordinator::rebuild_round(const Ticket& ticket) {
  const std::size_t nodes = static_cast<std::size_t>(ticket.nodes);
  Round round;
  round.ticket = ticket;
  round.ids.resize(nodes);
  round.nodes.resize(nodes);
  for (auto& [id, peer] : peers_) {
    const Report& report = peer.report;
    const bool runs = report.run.serial == ticket.serial;
    if (!runs && report.offered.serial != ticket.serial) continue;
    const int place = (runs ? report.run : report.offered).rank;
    if (place < 0 || place >= ticket.nodes) continue;
    peer.placed = ticket.serial;
    peer.rank = place;
    const std::size_t rank = static_cast<std::size_t>(place);
    round.ids[rank] = id;
    round.nodes[rank] = report.node;
    if (rank == 0 && report.store) round.store = *report.store;
    if (runs && report.end) claims_.push_back(id);
  }
  round.spans = worker_spans(round.nodes);
  run_ = std::move(round);
}

// Whether all workers of the last round were seen to be gone: its nodes were told what comes next, or it was
// counted as charged.
bool Coordinator::was_over(const std::map<std::string, Order>& told) const {
  if (restarts_ > run_->ticket.restarts) return true;
  return std::any_of(told.begin(), told.end(), [&](const auto& entry) {
    const auto& [id, order] = entry;
    if (order.kind == Order::Kind::Offer) return order.ticket.serial > run_->ticket.serial;
    const Peer* peer = alive(id);
    return (order.kind == Order::Kind::Wait || order.kind == Order::Kind::Park) && peer &&
           peer->report.run.serial == run_->ticket.serial;
  });
}

void Coordinator::conclude(std::optional<RoundEnd> end) {
  stage_ = Stage::Over;
  end_ = std::move(end);
  ++end_version_;
}

}  // namespace cpprun::rendezvous
