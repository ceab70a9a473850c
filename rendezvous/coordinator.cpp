#include "rendezvous/coordinator.hpp"

#include <utility>

#include "rendezvous/restart_budget.hpp"

namespace cpprun::rendezvous {
namespace {

using std::chrono::milliseconds;

// How often those who wait may be told something else, where they are many.
constexpr milliseconds kTellEvery{5'000};
constexpr std::size_t kFew = 64;
// The parts of a serial: how often the lead has changed hands, the leader's endpoint, its offers.
constexpr int kOfferBits = 20;
constexpr int kEndpointBits = 6;

std::string seconds_text(std::chrono::steady_clock::duration span) {
  const milliseconds whole = std::chrono::ceil<milliseconds>(span);
  if (whole < std::chrono::seconds(1)) return std::to_string(whole.count()) + " ms";
  return std::to_string(std::chrono::ceil<std::chrono::seconds>(span).count()) + " s";
}

bool has_workers(const Report& report) {
  return report.state == AgentState::Running || report.state == AgentState::Finished ||
         report.state == AgentState::Leaving;
}

// More than half, or half of them with the lowest rank.
bool is_quorum(int present, bool lowest, int all) {
  return 2 * present > all || (2 * present == all && lowest);
}

}  // namespace

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
}

// Whether this leader knows of all rounds that the agent could stand for elsewhere.
bool Coordinator::lets_go(const Report& report) const {
  if (!contested() || stage_ == Stage::Standby || peers_.count(report.id) == 0) return false;
  const auto known = [&](const Ticket& ticket) {
    return ticket.serial == 0 || known_.count({ticket.serial, ticket.nodes}) != 0 ||
           (!new_term_ && ticket.serial >> kOfferBits == serial_ >> kOfferBits) ||
           (!known_.empty() && ticket.serial < known_.begin()->serial);
  };
  return known(report.run) && known(report.offered);
}

// Where others may lead, a place in a round that this leader does not know of may mean that another has been
// chosen: it must be chosen again itself.
void Coordinator::remember(const Ticket& ticket, const std::string& id) {
  if (!contested() || ticket.serial == 0) return;
  const bool oldest = !known_.empty() && ticket.serial < known_.begin()->serial;
  if (oldest) return;
  const bool own = !new_term_ && ticket.serial >> kOfferBits == serial_ >> kOfferBits;
  const bool known = known_.count({ticket.serial, ticket.nodes}) != 0;
  holders_[ticket.serial][ticket.rank] = id;
  if (stage_ != Stage::Standby && stage_ != Stage::Over && !own && !known && !superseded(ticket.serial)) {
    depose("an agent comes from a round of another leader");
  }
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
  const milliseconds tick = rules_.death_limit / 6;
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

// ---- the lead

// Of all that are here.
std::int64_t Coordinator::last_run() const {
  std::int64_t ran = 0;
  for (const auto& [id, peer] : peers_) ran = std::max(ran, peer.report.run.serial);
  return ran;
}

// Whether that offer can run no more, or is named by a later one as the round that it follows: a leader makes
// another offer in one term only then.
bool Coordinator::superseded(std::int64_t offered) const {
  return std::any_of(peers_.begin(), peers_.end(), [&](const auto& entry) {
    const std::int64_t other = entry.second.report.offered.serial;
    return other > offered && other >> kOfferBits == offered >> kOfferBits;
  });
}

std::set<Coordinator::Reference> Coordinator::references() const {
  const std::int64_t ran = last_run();
  std::set<Reference> found;
  for (const auto& [id, peer] : peers_) {
    const Report& report = peer.report;
    if (report.run.serial != 0 && report.run.serial == ran) found.insert({ran, report.run.nodes});
    if (report.offered.serial <= ran || superseded(report.offered.serial)) continue;
    found.insert({report.offered.serial, report.offered.nodes});
    const std::int64_t after = report.offered.after_serial;
    if (after != 0 && after >= ran) {
      found.insert({after, report.offered.after_nodes});
    }
  }
  return found;
}

// Whether more than half of the round's nodes are here without workers, and among `of` if that is given.
bool Coordinator::more_than_half(const Reference& reference, const std::set<std::string>* of) const {
  int present = 0;
  bool lowest = false;
  const auto holders = holders_.find(reference.serial);
  if (holders == holders_.end()) return false;
  for (const auto& [rank, id] : holders->second) {
    const Peer* peer = alive(id);
    if (left_.count(id) != 0) {
      ++present;
      lowest = lowest || rank == 0;
      continue;
    }
    if (!peer || peer->report.state != AgentState::Waiting || (of && of->count(id) == 0)) continue;
    ++present;
    lowest = lowest || rank == 0;
  }
  return is_quorum(present, lowest, reference.nodes);
}

// Whether those here, or among them `of`, are more than half of each round that the next one must follow.
bool Coordinator::followed_by(const std::set<std::string>* of) const {
  return std::all_of(known_.begin(), known_.end(),
                     [&](const Reference& reference) { return more_than_half(reference, of); });
}

bool Coordinator::try_to_lead(TimePoint now) {
  if (abandoned_) return false;
  const std::set<Reference> found = references();
  if (found.empty()) {
    const bool first = rules_.own_endpoint == 0 && static_cast<int>(cleared_.size()) + 1 >= rules_.endpoints;
    text_ = "the agent at the first endpoint leads when it knows that no agent at another endpoint does";
    if (!fresh_ || !first) return false;
    lead(now);
    return true;
  }
  if (!contested()) {
    known_.clear();
    lead(began_ + rules_.death_limit + rules_.stop_margin);
    return true;
  }
  for (const Reference& reference : found) {
    if (more_than_half(reference, nullptr)) continue;
    text_ = "more than half of the " + std::to_string(reference.nodes) +
            " nodes of the last round are needed to go on without its leader";
    return false;
  }
  known_ = found;
  lead(now + rules_.stop_margin);
  return true;
}

// What the agents know of earlier rounds goes on from there.
void Coordinator::lead(TimePoint not_before) {
  stage_ = Stage::Gathering;
  new_term_ = true;
  left_.clear();
  followed_ = advanced_;
  not_before_ = std::max(not_before_, not_before);
  for (const auto& [id, peer] : peers_) {
    for (const Ticket& ticket : {peer.report.run, peer.report.offered}) {
      if (ticket.serial == 0) continue;
      fresh_ = false;
      round_ = std::max(round_, ticket.round);
      restarts_ = std::max(restarts_, ticket.restarts);
    }
  }
}

void Coordinator::depose(const std::string& why) {
  if (contested() && (stage_ == Stage::Running || stage_ == Stage::Ending)) {  // leases are out
    not_before_ = std::max(not_before_, lease(TimePoint::max()) + rules_.stop_margin);
  }
  stage_ = Stage::Standby;
  run_.reset();
  offer_.reset();
  end_.reset();
  claims_.clear();
  fresh_ = false;
  text_ = why;
}

Coordinator::TimePoint Coordinator::lease(TimePoint now) const {
  if (stage_ == Stage::Standby || stage_ == Stage::Over) return now;
  if (!contested() || !run_ || stage_ == Stage::Gathering || stage_ == Stage::Offering) {
    return now + rules_.death_limit;
  }
  // When so many have been out of touch that they may follow another.
  std::vector<TimePoint> followed;
  for (const std::string& id : run_->ids) {
    const auto peer = peers_.find(id);
    const TimePoint gone = left_.count(id) != 0 ? TimePoint::max() : TimePoint();
    followed.push_back(peer == peers_.end() ? gone : peer->second.followed);
  }
  const TimePoint lowest = followed.front();
  std::sort(followed.begin(), followed.end(), std::greater<>());
  const std::size_t half = followed.size() / 2;
  TimePoint until = followed[half];
  if (followed.size() % 2 == 0) until = std::max(until, std::min(followed[half - 1], lowest));
  return std::min(until, now) + rules_.death_limit;
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

int Coordinator::lost_nodes() const {
  int lost = 0;
  for (const std::string& id : run_->ids) {
    const Peer* peer = alive(id);
    if (!peer || peer->report.state == AgentState::Leaving) ++lost;
  }
  return lost;
}

// ---- from waiting agents to a round

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
  // Without more than half of those that have had a place there can be no round.
  std::set<int> had_a_place;
  for (const auto& [serial, holders] : holders_) {
    for (const auto& [rank, id] : holders) {
      if (const Peer* peer = alive(id)) had_a_place.insert(peer->arrival);
    }
  }
  std::stable_partition(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
    return had_a_place.count(candidate.arrival) != 0;
  });
  return candidates;
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
  const Seating seating = seat(waiting(), rules_.round);
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

// ---- the round and its end

bool Coordinator::watch_round(TimePoint now) {
  if (lease(now) <= now) {
    depose("more than half of the round's nodes cannot be reached");
    return true;
  }
  if (contested()) wake_at(lease(now));
  for (const std::string& id : claims_) {
    const Peer* peer = alive(id);
    if (!peer || !peer->report.end || peer->report.run.serial != run_->ticket.serial) continue;
    RoundEnd end = *peer->report.end;
    if (peer->report.state == AgentState::Leaving && !end.final) {
      end_by_loss(end.sentence);
    } else {
      charge(end, rules_.max_restarts - restarts_);
      end_round(std::move(end), true);
    }
    return true;
  }
  const std::int64_t serial = run_->ticket.serial;
  int finished = 0;
  for (std::size_t i = 0; i < run_->ids.size(); ++i) {
    const int rank = static_cast<int>(i);
    const Peer* peer = alive(run_->ids[i]);
    std::string lost;
    if (!peer) {
      const bool silent = peers_.count(run_->ids[i]) != 0;
      lost = silent                 ? " has not been heard of for " + seconds_text(rules_.death_limit)
             : run_->ids[i].empty() ? " was lost"
                                    : " has left";
    } else if (peer->report.state == AgentState::Leaving) {
      lost = " is leaving";
    } else if (!in_round(*peer) ||
               (peer->report.state == AgentState::Waiting && peer->report.run.serial == serial)) {
      lost = " had lost touch and has stopped its workers";
    }
    if (!lost.empty()) {
      end_by_loss(name(rank) + lost);
      return true;
    }
    finished += peer->report.state == AgentState::Finished ? 1 : 0;
  }
  if (finished == static_cast<int>(run_->ids.size())) {
    end_run(std::nullopt);
    return true;
  }
  if (finished > 0 || static_cast<int>(run_->ids.size()) >= rules_.round.max_nodes) return false;
  for (const auto& [id, peer] : peers_) {
    if (in_round(peer) || peer.dead || !peer.refusal.empty() || peer.report.state != AgentState::Waiting)
      continue;
    const TimePoint due = peer.since + rules_.company;
    wake_at(due);
    if (now < due) continue;
    end_round({false, false, describe(peer.report.node, std::nullopt) + " joins; restarting all workers", ""},
              false);
    return true;
  }
  return false;
}

void Coordinator::end_by_loss(const std::string& sentence) {
  if (enough_alive()) {
    end_round({false, false, sentence + "; going on with the other nodes", ""}, false);
    return;
  }
  RoundEnd end{true, false, sentence, ""};
  charge(end, rules_.max_restarts - restarts_);
  end_round(std::move(end), false);
}

// A failure that spends the budget may turn out to follow from the loss of a node that the job can spare.
void Coordinator::end_round(RoundEnd end, bool may_be_amended) {
  const int nodes = static_cast<int>(run_->ids.size());
  amendable_ =
      may_be_amended && end.charged && nodes > 1 && rules_.round.min_nodes < static_cast<int>(peers_.size());
  claims_.clear();
  if (end.final && !amendable_) return end_run(std::move(end));
  end_ = std::move(end);
  ++end_version_;
  stage_ = Stage::Ending;
}

// Who comes from now on comes for another run, which begins when this one's leader has gone.
void Coordinator::end_run(std::optional<RoundEnd> end) {
  stage_ = Stage::Over;
  end_ = std::move(end);
  ++end_version_;
  last_arrival_ = arrivals_;
}

bool Coordinator::await_stopped(TimePoint now) {
  if (lease(now) <= now) {
    depose("more than half of the round's nodes cannot be reached");
    return true;
  }
  for (const std::string& id : run_->ids) {
    const Peer* peer = alive(id);
    if (peer && in_round(*peer) && has_workers(peer->report)) return false;
    if (peer && peer->report.state == AgentState::Leaving) return false;
    // It may not have had the order to stop before it had that to run.
    if (peer && peer->report.offered.serial == run_->ticket.serial &&
        peer->report.run.serial != run_->ticket.serial && peer->told &&
        peer->told->kind == Order::Kind::Run) {
      return false;
    }
  }
  if (amendable_ && lost_nodes() > 0 && enough_alive()) {
    end_->charged = end_->final = false;
    end_->sentence += "; not counted, since a node was lost";
  }
  if (end_->final) {
    amendable_ = false;
    end_run(end_);
    return true;
  }
  restarts_ += end_->charged ? 1 : 0;
  forget_dead();
  stage_ = Stage::Gathering;
  followed_ = now;
  told_version_++;
  return true;
}

// ---- orders

Coordinator::OrderKey Coordinator::key_for(const Peer& peer) const {
  using Kind = Order::Kind;
  const Report& report = peer.report;
  if (!peer.refusal.empty()) return {Kind::Refused, 0, 0};
  if (stage_ == Stage::Standby) {
    // One that looks for a new leader is to stay, so that they can be counted.
    const bool votes =
        contested() && !abandoned_ && report.run.serial + report.offered.serial != 0 && !has_workers(report);
    return {votes ? Kind::Wait : Kind::Elsewhere, 0, told_version_};
  }
  if (stage_ == Stage::Over) {
    if (peer.arrival > last_arrival_) return {Kind::Elsewhere, 0, 0};
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
  const bool settled = stage_ == Stage::Gathering || stage_ == Stage::Offering;
  if (settled && end_ && in_round(peer)) order.end = *end_;
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

}  // namespace cpprun::rendezvous
