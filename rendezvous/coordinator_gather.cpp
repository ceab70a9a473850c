// How a Coordinator makes a round of agents that wait.
#include <algorithm>
#include <utility>

#include "rendezvous/coordinator.hpp"
#include "rendezvous/duration_text.hpp"

namespace cpprun::rendezvous {

std::vector<Candidate> Coordinator::waiting() const {
  std::vector<Candidate> candidates;
  const std::int64_t last = run_ ? run_->ticket.serial : last_run();
  for (const auto& [id, peer] : peers_) {
    if (peer.dead || !peer.refusal.empty() || peer.report.state != AgentState::Waiting) continue;
    Candidate candidate{peer.arrival, peer.report.node, std::nullopt};
    const Ticket& run = peer.report.run;
    if (run.serial != 0 && run.serial == last) candidate.previous_rank = run.rank;
    candidates.push_back(std::move(candidate));
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.arrival < b.arrival; });
  return candidates;
}

// First, of each round that the next one must follow, more than half of the nodes.
Seating Coordinator::seat_quorums() const {
  std::set<int> needed;  // arrivals
  for (auto reference = known_.rbegin(); reference != known_.rend(); ++reference) {
    const auto holders = holders_.find(reference->serial);
    if (holders == holders_.end()) continue;
    int present = 0;
    bool lowest = false;
    for (const bool counted_already : {true, false}) {
      for (const auto& [rank, id] : holders->second) {
        const Peer* peer = alive(id);
        const bool counted = left_.count(id) != 0 || (peer && needed.count(peer->arrival) != 0);
        const bool waits = peer && peer->report.state == AgentState::Waiting && peer->refusal.empty();
        const bool more = !counted && waits && !is_quorum(present, lowest, reference->nodes);
        if (counted_already ? !counted : !more) continue;
        if (!counted) needed.insert(peer->arrival);
        ++present;
        lowest = lowest || rank == 0;
      }
    }
  }
  std::vector<Candidate> candidates = waiting();
  std::stable_partition(candidates.begin(), candidates.end(),
                        [&](const Candidate& candidate) { return needed.count(candidate.arrival) != 0; });
  Seating seating;
  for (Candidate& candidate : candidates) {
    const bool fits = static_cast<int>(seating.seated.size()) < rules_.round.max_nodes;
    (fits ? seating.seated : seating.surplus).push_back(std::move(candidate));
  }
  return seating;
}

bool Coordinator::gather(TimePoint now) {
  if (!run_ && fresh_ && !references().empty()) {  // its leader before this one has gone
    stage_ = Stage::Standby;
    fresh_ = false;
    return true;
  }
  // Others may have gone on under another leader by now, whom those here are to look for.
  const bool followed = followed_by(nullptr);
  if (followed) followed_ = now;
  if (now - followed_ >= rules_.death_limit) {
    depose("more than half of the last round's nodes cannot be reached");
    return true;
  }
  if (!followed) wake_at(followed_ + rules_.death_limit);
  const std::ptrdiff_t count = std::count_if(peers_.begin(), peers_.end(), [](const auto& entry) {
    return entry.second.report.state == AgentState::Waiting;
  });
  // A large job's nodes come one by one: not all are looked at for each.
  if (count < rules_.round.min_nodes && peers_.size() > kFew && now - told_at_ < kTellEvery) {
    enough_.reset();
    wake_at(told_at_ + kTellEvery);
    return false;
  }
  Seating seating = seat(waiting(), rules_.round);
  if (!may_follow_last_round(seating)) seating = seat_quorums();
  if (rules_.round.ranks_given) refuse_claims(seating);
  const int seated = static_cast<int>(seating.seated.size());
  const bool all = seated == rules_.round.max_nodes;
  const bool enough = rules_.round.ranks_given ? all : seated >= rules_.round.min_nodes;
  text_ = describe(seating, rules_.round);
  if (!enough) {
    enough_.reset();
    return false;
  }
  if (!enough_) enough_ = now;
  const auto stopping = std::find_if(peers_.begin(), peers_.end(), [](const auto& entry) {
    return !entry.second.dead && has_workers(entry.second.report);
  });
  if (stopping != peers_.end()) {
    text_ +=
        "; waiting for the workers of " + describe(stopping->second.report.node, std::nullopt) + " to stop";
    return false;
  }
  const bool first = round_ < 0;
  const TimePoint last_call = *enough_ + rules_.last_call;
  if (first && !all && now < last_call) {
    text_ += "; last call for more, for " + seconds_text(last_call - now);
    wake_at(last_call);
    return false;
  }
  if (now < not_before_) {
    text_ += "; waiting until the workers of lost nodes have stopped";
    wake_at(not_before_);
    return false;
  }
  if (!may_follow_last_round(seating)) {
    text_ += "; waiting for more than half of the nodes of the last round";
    return false;
  }
  make_offer(seating, now);
  return true;
}

// A place that two claim waits for a sign of life of the one who came first: the other may be its
// replacement.
void Coordinator::refuse_claims(const Seating& seating) {
  for (const Candidate& claim : seating.surplus) {
    for (auto& [id, peer] : peers_) {
      if (peer.arrival != claim.arrival) continue;
      for (const auto& [holder_id, holder] : peers_) {
        const bool holds = holder.arrival < claim.arrival && !holder.dead &&
                           holder.report.node.wished_rank == claim.node.wished_rank;
        if (holds && holder.heard > peer.since) {
          peer.refusal = "its --node-rank is held by " + describe(holder.report.node, claim.node.wished_rank);
        }
      }
    }
  }
}

// Another leader may be chosen by half of the last round's nodes, but not by those that are in this one.
bool Coordinator::may_follow_last_round(const Seating& seating) const {
  if (!contested()) return true;
  std::set<int> arrivals;
  for (const Candidate& candidate : seating.seated) arrivals.insert(candidate.arrival);
  std::set<std::string> ids;
  for (const auto& [id, peer] : peers_) {
    if (arrivals.count(peer.arrival) != 0) ids.insert(id);
  }
  return followed_by(&ids);
}

void Coordinator::make_offer(const Seating& seating, TimePoint now) {
  std::map<int, Peer*> by_arrival;
  std::int64_t highest = serial_;
  for (auto& [id, peer] : peers_) {
    by_arrival[peer.arrival] = &peer;
    highest = std::max({highest, peer.report.run.serial, peer.report.offered.serial});
  }
  const bool same_term = !std::exchange(new_term_, false) && highest == serial_;
  if (same_term) {
    ++serial_;
  } else {
    const std::int64_t term = (highest >> (kOfferBits + kEndpointBits)) + 1;
    serial_ = ((term << kEndpointBits | rules_.own_endpoint) << kOfferBits) + 1;
  }
  const std::vector<int> ranks = assign_group_ranks(seating.seated);
  Round round;
  round.ticket = {serial_, round_ + 1, 0, static_cast<int>(ranks.size()), restarts_, 0, 0};
  if (!known_.empty()) {
    round.ticket.after_serial = known_.rbegin()->serial;
    round.ticket.after_nodes = known_.rbegin()->nodes;
  }
  round.ids.resize(ranks.size());
  round.nodes.resize(ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const std::size_t rank = static_cast<std::size_t>(ranks[i]);
    Peer& peer = *by_arrival.at(seating.seated[i].arrival);
    peer.placed = serial_;
    peer.rank = ranks[i];
    round.ids[rank] = peer.report.id;
    round.nodes[rank] = seating.seated[i].node;
  }
  round.spans = worker_spans(round.nodes);
  offer_ = std::move(round);
  offered_ = now;
  stage_ = Stage::Offering;
}

bool Coordinator::await_acceptance(TimePoint now) {
  const TimePoint limit = offered_ + rules_.accept_limit;
  bool all = true;
  bool lost = false;
  for (std::size_t rank = 0; rank < offer_->ids.size(); ++rank) {
    const Peer* peer = alive(offer_->ids[rank]);
    if (!peer || peer->report.state != AgentState::Waiting) {
      lost = true;
      continue;
    }
    const bool accepted =
        peer->report.offered.serial == offer_->ticket.serial && (rank != 0 || peer->report.store.has_value());
    if (!accepted && now >= limit) {
      peers_.at(offer_->ids[rank]).refusal =
          "it did not take its place within " + seconds_text(rules_.accept_limit);
      lost = true;
    }
    all = all && accepted;
  }
  if (lost) {
    offer_.reset();
    stage_ = Stage::Gathering;
    followed_ = now;
    return true;
  }
  wake_at(limit);
  if (!all) return false;
  run_ = std::move(offer_);
  offer_.reset();
  run_->store = *peers_.at(run_->ids.front()).report.store;
  stage_ = Stage::Running;
  if (lease(now) <= now) {  // some have been out of touch for long: until they answer
    offer_ = std::move(run_);
    run_.reset();
    stage_ = Stage::Offering;
    return false;
  }
  round_ = run_->ticket.round;
  fresh_ = false;
  enough_.reset();
  known_ = {{run_->ticket.serial, run_->ticket.nodes}};
  holders_.erase(holders_.begin(), holders_.lower_bound(run_->ticket.serial));
  claims_.clear();
  return true;
}

}  // namespace cpprun::rendezvous
