// Whether a Coordinator may lead, and until when.
#include <algorithm>
#include <functional>
#include <utility>

#include "rendezvous/coordinator.hpp"

namespace cpprun::rendezvous {
namespace {

// That one message holds.
constexpr std::size_t kMostNames = 8;

}  // namespace

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
  std::map<std::int64_t, std::int64_t> last_of_term;
  for (const auto& [id, peer] : peers_) {
    std::int64_t& last = last_of_term[peer.report.offered.serial >> kOfferBits];
    last = std::max(last, peer.report.offered.serial);
  }
  std::set<Reference> found;
  for (const auto& [id, peer] : peers_) {
    const Report& report = peer.report;
    if (report.run.serial != 0 && report.run.serial == ran) found.insert({ran, report.run.nodes});
    const std::int64_t last = last_of_term.at(report.offered.serial >> kOfferBits);
    if (report.offered.serial <= ran || report.offered.serial < last) continue;
    found.insert({report.offered.serial, report.offered.nodes});
    const std::int64_t after = report.offered.after_serial;
    if (after != 0 && after >= ran) {
      found.insert({after, report.offered.after_nodes});
    }
  }
  return found;
}

// The ranks, in their order, of the round's nodes that are here without workers, and among `of` if that is
// given, or have left.
std::vector<int> Coordinator::present(const Reference& reference, const std::set<std::string>* of) const {
  std::vector<int> ranks;
  const auto holders = holders_.find(reference.serial);
  if (holders == holders_.end()) return ranks;
  ranks.reserve(holders->second.size());
  for (const auto& [rank, id] : holders->second) {
    const Peer* peer = alive(id);
    const bool waits = peer && !peer->was_led && peer->report.state == AgentState::Waiting;
    if (left_.count(id) != 0 || (waits && (!of || of->count(id) != 0))) ranks.push_back(rank);
  }
  return ranks;
}

bool Coordinator::more_than_half(const Reference& reference, const std::set<std::string>* of) const {
  const std::vector<int> ranks = present(reference, of);
  const bool lowest = !ranks.empty() && ranks.front() == 0;
  return is_quorum(static_cast<int>(ranks.size()), lowest, reference.nodes);
}

// "1 of 3 is here (host1)", and who is missing, where this process has led that round.
std::string Coordinator::who_is_here(const Reference& reference) const {
  const std::vector<int> ranks = present(reference, nullptr);
  std::string here;
  std::size_t named = 0;
  for (const int rank : ranks) {
    const Peer* peer = alive(holders_.at(reference.serial).at(rank));
    if (!peer || named++ >= kMostNames) continue;
    here += (here.empty() ? "" : ", ") + peer->report.node.host;
  }
  std::string text = std::to_string(ranks.size()) + " of " + std::to_string(reference.nodes) +
                     (ranks.size() == 1 ? " is here" : " are here");
  if (!here.empty()) text += " (" + here + (named > kMostNames ? ", ..." : "") + ")";
  if (!stood_down_from_ || stood_down_from_->ticket.serial != reference.serial) return text;
  std::string missing;
  named = 0;
  for (int rank = 0; rank < static_cast<int>(stood_down_from_->nodes.size()); ++rank) {
    if (std::binary_search(ranks.begin(), ranks.end(), rank) || named++ >= kMostNames) continue;
    missing += (missing.empty() ? "" : ", ") +
               describe(stood_down_from_->nodes[static_cast<std::size_t>(rank)], rank);
  }
  return text + "; missing: " + missing + (named > kMostNames ? ", ..." : "");
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
            " nodes of the last round are needed to go on without its leader; " + who_is_here(reference);
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
    not_before_ = std::max(not_before_, lease(advanced_ + rules_.death_limit) + rules_.stop_margin);
  }
  // What they have reported may be older than orders that are on their way: they are to come again.
  for (auto& [id, peer] : peers_) peer.was_led = true;
  stage_ = Stage::Standby;
  if (run_) stood_down_from_ = std::move(run_);
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

}  // namespace cpprun::rendezvous
