#include "rendezvous/coordinator.hpp"

#include <algorithm>
#include <utility>

namespace cpprun::rendezvous {
Coordinator::Coordinator(CoordinatorRules rules, TimePoint now)
    : rules_(rules), began_(now), advanced_(now), not_before_(now), next_wake_(now), told_at_(now) {}

void Coordinator::hear(const Report& report, TimePoint now) {
  if (report.state == AgentState::Gone) {
    if (!claims_.empty()) advance(now);  // its last words may have come at the same time
    if (lets_go(report)) left_.insert(report.id);
    peers_.erase(report.id);
    return;
  }
  const auto [entry, is_new] = peers_.try_emplace(report.id);
  Peer& peer = entry->second;
  if (is_new) peer.arrival = ++arrivals_;
  const bool speaks_first = is_new || report.node.rules != peer.report.node.rules;
  const bool waits = report.state == AgentState::Waiting;
  if (waits && (is_new || peer.report.state != AgentState::Waiting)) peer.since = now;
  remember(report.run, report.id);
  remember(report.offered, report.id);
  const bool of_this_round = run_ && report.run.serial == run_->ticket.serial;
  if (report.end && of_this_round && report.end != peer.report.end) claims_.push_back(report.id);
  peer.report = report;
  peer.heard = now;
  peer.dead = false;
  const RoundRule& rule = rules_.round;
  if (report.node.min_nodes != rule.min_nodes || report.node.max_nodes != rule.max_nodes) {
    const auto range = [](int least, int most) {
      return least == most ? std::to_string(most) : std::to_string(least) + ":" + std::to_string(most);
    };
    peer.refusal = "it expects " + range(report.node.min_nodes, report.node.max_nodes) +
                   " nodes and this run has " + range(rule.min_nodes, rule.max_nodes) + " (compare --nnodes)";
  }
  if (speaks_first) compare_rules(peer);
}

void Coordinator::compare_rules(Peer& peer) {
  const std::optional<CoordinatorRules> rules = rules_from_json(peer.report.node.rules);
  if (!rules) return;
  if (rules->round.ranks_given != rules_.round.ranks_given) {
    peer.refusal =
        std::string("it is started with --rdzv-backend ") +
        (rules->round.ranks_given ? "static, and this run is not" : "c10d or etcd, and this run is static") +
        " (compare --rdzv-backend)";
  }
  const std::string differ = differences(*rules, rules_);
  if (differ.empty()) return;
  peer.notice = "this node was started with " + differ + " as the agent that leads the run; the latter holds";
  if (!noticed_.insert(differ).second) return;
  const Node& node = peer.report.node;
  notices_.push_back(describe(node, std::nullopt) + (node.address.empty() ? "" : " at " + node.address) +
                     " was started with " + differ + " as here; what was said here holds");
}

void Coordinator::follows(const std::string& id, TimePoint sent) {
  const auto peer = peers_.find(id);
  if (peer != peers_.end()) peer->second.followed = std::max(peer->second.followed, sent);
}

// Who leads waits until the limit of death; who does not has no use for one that is not there.
void Coordinator::part(const std::string& id) {
  if (stage_ == Stage::Standby || stage_ == Stage::Over) peers_.erase(id);
}

void Coordinator::lose(const std::string& id, TimePoint now) {
  const auto peer = peers_.find(id);
  if (peer != peers_.end() && !peer->second.dead) bury(peer->second, now);
}

bool Coordinator::hands_over() const {
  if (!contested()) return false;
  if (stage_ == Stage::Running) {
    return std::any_of(run_->ids.begin(), run_->ids.end(), [this](const std::string& id) {
      const Peer* peer = alive(id);
      return peer && peer->report.run.serial != run_->ticket.serial;
    });
  }
  return stage_ == Stage::Ending || stage_ == Stage::Offering ||
         (stage_ == Stage::Gathering && enough_alive());
}

void Coordinator::abandon(const std::string& why) {
  if (stage_ == Stage::Over) return;
  abandoned_ = true;
  if (contested() || stage_ == Stage::Standby) {
    depose(why);
    return;
  }
  end_run(RoundEnd{true, true, why, ""});
}

void Coordinator::advance(TimePoint now) {
  const std::chrono::milliseconds tick = rules_.death_limit / 6;
  // One that was itself stopped for a while has not listened.
  if (now - advanced_ > 3 * tick) {
    for (auto& [id, peer] : peers_) peer.heard += now - advanced_;
  }
  advanced_ = now;
  next_wake_ = now + tick;
  bury_silent(now);
  while (step(now)) {
  }
  give_orders(now);
}

bool Coordinator::step(TimePoint now) {
  switch (stage_) {
    case Stage::Standby:
      return try_to_lead(now);
    case Stage::Gathering:
      return gather(now);
    case Stage::Offering:
      return await_acceptance(now);
    case Stage::Running:
      return watch_round(now);
    case Stage::Ending:
      return await_stopped(now);
    case Stage::Over:
      return false;
  }
  return false;
}

// ---- the living and the dead

void Coordinator::bury_silent(TimePoint now) {
  for (auto& [id, peer] : peers_) {
    if (peer.dead) continue;
    if (now - peer.heard >= rules_.death_limit) {
      bury(peer, now);
    } else {
      wake_at(peer.heard + rules_.death_limit);
    }
  }
  if (stage_ != Stage::Running && stage_ != Stage::Ending) forget_dead();
}

void Coordinator::bury(Peer& peer, TimePoint now) {
  peer.dead = true;
  const bool may_have_workers =
      has_workers(peer.report) || (stage_ == Stage::Running && peer.report.offered.serial == serial_);
  if (may_have_workers) not_before_ = std::max(not_before_, now + rules_.stop_margin);
}

void Coordinator::forget_dead() {
  std::erase_if(peers_, [](const auto& entry) { return entry.second.dead; });
}

const Coordinator::Peer* Coordinator::alive(const std::string& id) const {
  const auto peer = peers_.find(id);
  return peer == peers_.end() || peer->second.dead ? nullptr : &peer->second;
}

// Runs the round's workers, or is about to.
bool Coordinator::in_round(const Peer& peer) const {
  const std::int64_t serial = run_ ? run_->ticket.serial : 0;
  return serial != 0 && peer.placed == serial &&
         (peer.report.run.serial == serial || peer.report.offered.serial == serial);
}

std::string Coordinator::name(int rank) const {
  // One that was lost with the leader before this one.
  if (run_->ids[static_cast<std::size_t>(rank)].empty()) return "node " + std::to_string(rank);
  return describe(run_->nodes[static_cast<std::size_t>(rank)], rank);
}

bool Coordinator::enough_alive() const {
  int nodes = 0;
  for (const auto& [id, peer] : peers_) {
    if (!peer.dead && peer.refusal.empty() && peer.report.state != AgentState::Leaving) ++nodes;
  }
  return nodes >= rules_.round.min_nodes;
}

std::vector<int> Coordinator::lost_nodes() const {
  std::vector<int> lost;
  for (std::size_t i = 0; i < run_->ids.size(); ++i) {
    const Peer* peer = alive(run_->ids[i]);
    if (!peer || peer->report.state == AgentState::Leaving) lost.push_back(static_cast<int>(i));
  }
  return lost;
}

// ---- orders

Coordinator::OrderKey Coordinator::key_for(const Peer& peer) const {
  using Kind = Order::Kind;
  const Report& report = peer.report;
  if (!peer.refusal.empty()) return {Kind::Refused, 0, 0};
  if (stage_ == Stage::Standby) {
    // One that looks for a new leader is to stay, so that they can be counted.
    const bool votes = contested() && !abandoned_ && !peer.was_led &&
                       report.run.serial + report.offered.serial != 0 && !has_workers(report);
    return {votes ? Kind::Wait : Kind::Elsewhere, 0, told_version_};
  }
  if (stage_ == Stage::Over) {
    const bool of_this_run = report.run.serial != 0 || report.offered.serial != 0;
    if (peer.arrival > last_arrival_ && !of_this_run) return {Kind::Elsewhere, 0, 0};
    return end_ ? OrderKey{Kind::End, report.run.serial, end_version_} : OrderKey{Kind::Finished, 0, 0};
  }
  const bool member = in_round(peer);
  if (has_workers(report) && !member) return {Kind::End, report.run.serial, -1};
  const std::int64_t serial = run_ ? run_->ticket.serial : 0;
  if (stage_ == Stage::Running && member) return {Kind::Run, serial, 0};
  if (stage_ == Stage::Ending && member) return {Kind::End, serial, end_version_};
  if (member && has_workers(report)) return {Kind::End, serial, end_version_};
  const std::optional<Round>& current = stage_ == Stage::Offering ? offer_ : run_;
  if (stage_ == Stage::Offering && peer.placed == serial_) return {Kind::Offer, serial_, 0};
  const bool full = stage_ != Stage::Gathering && current &&
                    static_cast<int>(current->ids.size()) >= rules_.round.max_nodes;
  return {full ? Kind::Park : Kind::Wait, 0, told_version_};
}

Order Coordinator::order(const std::string& id) const {
  const auto entry = peers_.find(id);
  if (entry == peers_.end()) return {};
  const Peer& peer = entry->second;
  const OrderKey key = key_for(peer);
  Order order;
  order.kind = key.kind;
  order.notice = peer.notice;
  const bool settled = stage_ == Stage::Gathering || stage_ == Stage::Offering;
  const bool ran = run_ && peer.report.run.serial == run_->ticket.serial;
  if (settled && end_ && ran) order.end = *end_;
  switch (key.kind) {
    case Order::Kind::Refused:
      order.text = peer.refusal;
      break;
    case Order::Kind::Wait:
    case Order::Kind::Park:
    case Order::Kind::Elsewhere:
      order.text = told_;
      // For the next leader, should this one be lost.
      order.ticket.serial = serial_;
      order.ticket.round = round_;
      order.ticket.restarts = restarts_;
      break;
    case Order::Kind::End:
      order.ticket = peer.report.run.serial == key.serial ? peer.report.run : peer.report.offered;
      order.end = key.version < 0 ? RoundEnd{false, false, "its round is over", ""} : *end_;
      // The verdict is still open.
      if (stage_ == Stage::Ending && key.version >= 0) order.end.final = false;
      break;
    case Order::Kind::Offer:
    case Order::Kind::Run: {
      const Round& round = key.kind == Order::Kind::Offer ? *offer_ : *run_;
      order.ticket = round.ticket;
      order.ticket.rank = peer.rank;
      order.workers = round.spans[static_cast<std::size_t>(peer.rank)];
      order.store = round.store;
      break;
    }
    case Order::Kind::Finished:
      break;
  }
  return order;
}

void Coordinator::give_orders(TimePoint now) {
  if (text_ != told_ && (told_.empty() || peers_.size() <= kFew || now - told_at_ >= kTellEvery)) {
    told_ = text_;
    told_at_ = now;
    ++told_version_;
  }
  if (text_ != told_) wake_at(told_at_ + kTellEvery);
  for (auto& [id, peer] : peers_) {
    const OrderKey key = key_for(peer);
    if (peer.told == key) continue;
    peer.told = key;
    changed_.push_back(id);
  }
}

void Coordinator::tell_again(const std::string& id) {
  const auto peer = peers_.find(id);
  if (peer != peers_.end()) peer->second.told.reset();
}

std::vector<std::string> Coordinator::take_changed() {
  return std::exchange(changed_, {});
}

std::vector<std::string> Coordinator::take_notices() {
  return std::exchange(notices_, {});
}

}  // namespace cpprun::rendezvous
