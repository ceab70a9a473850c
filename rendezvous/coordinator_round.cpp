// How a Coordinator watches a round and lets it end.
#include <algorithm>
#include <utility>

#include "rendezvous/coordinator.hpp"
#include "rendezvous/duration_text.hpp"
#include "rendezvous/restart_budget.hpp"

namespace cpprun::rendezvous {

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
      const auto place = std::find(run_->ids.begin(), run_->ids.end(), id);
      end_by_loss(static_cast<int>(place - run_->ids.begin()), end.sentence, true);
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
      end_by_loss(rank, name(rank) + lost, peer && peer->report.state == AgentState::Leaving);
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

void Coordinator::end_by_loss(int rank, const std::string& sentence, bool left) {
  if (enough_alive()) {
    RoundEnd end{false, false, sentence + "; going on with the other nodes", ""};
    if (!left) end.lost = {rank};
    end_round(std::move(end), false);
    return;
  }
  RoundEnd end{true, false, sentence, "", {rank}};
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
  std::vector<int> lost = lost_nodes();
  if (amendable_ && !lost.empty() && enough_alive()) {
    end_->lost = std::move(lost);
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

}  // namespace cpprun::rendezvous
