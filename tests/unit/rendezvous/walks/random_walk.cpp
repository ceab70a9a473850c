#include "tests/unit/rendezvous/walks/random_walk.hpp"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "tests/unit/rendezvous/walks/agent.hpp"

namespace cpprun::rendezvous::walks {
namespace {

// From the last fault until every agent runs, waits for a reason, or has ended.
constexpr seconds kSettleLimit(50);
// From the end of all workers to that of all agents.
constexpr seconds kFinishLimit(25);

struct Shape {
  int agents = 2;
  bool static_ranks = false;
  AgentRules rules;
};

enum class Fault {
  Kill,
  KillHost,
  Start,
  Stop,
  CutOneWay,
  CutGroups,
  Break,
  Freeze,
  SlowNetwork,
  FailWorkers,
  FinishWorkers,
  kCount
};
constexpr int kFaults = static_cast<int>(Fault::kCount);

class World : public Witness {
 public:
  World(std::uint64_t seed, bool traced) : dice_(seed), network_(time_, dice_), traced_(traced) {}

  WalkResult run();

 private:
  void shape();
  void plan_faults(TimePoint until);
  void cause(Fault fault);
  void start_agent(int host);
  Agent* any_agent();
  std::vector<Agent*> living() const;
  bool run_until(TimePoint limit);

  void started(const Agent& agent, const WorkerSpan& span) override;
  void forget_an_ended_run(bool fresh);
  void finished(const Agent& agent) override;
  void told_that_all_finished(const Agent& agent) override;
  void ended(const Agent& agent, const std::string& why) override;

  void check_settled();
  bool a_round_is_due() const;
  bool can_be_seated(const std::map<std::int64_t, int>& nodes_of, int most) const;
  void check_joiners(const std::vector<Agent*>& running);
  void finish_all();
  void check_all_ended();

  void fault(const std::string& what) {
    if (result_.fault.empty()) result_.fault = what;
    note("FAULT: " + what);
  }
  void note(const std::string& what) {
    if (!traced_) return;
    const auto since = std::chrono::duration_cast<std::chrono::microseconds>(time_.now() - begin_).count();
    result_.trace += std::to_string(static_cast<double>(since) / 1e6) + " " + what + "\n";
  }
  void note_states();

  Timeline time_;
  Dice dice_;
  Network network_;
  bool traced_;
  TimePoint begin_ = time_.now();
  Shape shape_;
  std::vector<std::unique_ptr<Agent>> agents_;  // also those that have ended
  std::map<int, Network::Listener> listeners_;
  std::map<const Agent*, std::string> states_;
  int ids_ = 0;

  struct Started {
    int nodes = 0;
    int restarts = 0;
    std::map<int, const Agent*> by_rank;
    std::set<int> finished;
  };
  std::map<std::int64_t, Started> rounds_;  // by serial
  std::map<int, std::int64_t> serials_;     // by round
  std::set<const Agent*> members_;          // of those rounds
  std::set<int> started_hosts_;
  bool forgetful_ = false;  // the first endpoint is served by a second process
  WalkResult result_;
};

// ---- what a walk is made of

void World::shape() {
  AgentRules& rules = shape_.rules;
  rules.link.endpoints = dice_.chance(0.3) ? 1 : dice_.between(2, 3);
  shape_.agents = dice_.between(2, 7);
  int most = shape_.agents;
  int least = most;
  shape_.static_ranks = rules.link.endpoints == 1 && dice_.chance(0.25);
  if (!shape_.static_ranks && dice_.chance(0.75)) {
    least = dice_.between(1, shape_.agents);
    most = std::max(2, dice_.between(least, shape_.agents + 1));
  }
  rules.link.interval = dice_.chance(0.7) ? milliseconds(1000) : milliseconds(333);
  rules.link.death_limit = 3 * rules.link.interval;
  rules.stop_margin = std::min(milliseconds(1000), rules.link.death_limit / 3);
  rules.stop_grace = dice_.chance(0.3)   ? milliseconds(200)
                     : dice_.chance(0.5) ? milliseconds(2000)
                                         : milliseconds(10'000);
  CoordinatorRules& coordinator = rules.coordinator;
  coordinator.round = {least, most, shape_.static_ranks};
  coordinator.max_restarts = dice_.between(0, 3);
  coordinator.last_call = dice_.chance(0.5) ? milliseconds(500) : milliseconds(4000);
  coordinator.death_limit = rules.link.death_limit;
  coordinator.stop_margin = rules.stop_margin;
  coordinator.endpoints = rules.link.endpoints;
  note("endpoints " + std::to_string(rules.link.endpoints) + ", agents " + std::to_string(shape_.agents) +
       ", nodes " + std::to_string(least) + ":" + std::to_string(most) +
       (shape_.static_ranks ? " static" : "") + ", death limit " +
       std::to_string(rules.link.death_limit.count()) + " ms, stop grace " +
       std::to_string(rules.stop_grace.count()) + " ms, restarts " +
       std::to_string(coordinator.max_restarts));
}

void World::start_agent(int host) {
  for (const Agent* other : living()) {
    if (other->process().host == host) return;
  }
  const std::string id = "h" + std::to_string(host) + "." + std::to_string(++ids_);
  const RoundRule& rule = shape_.rules.coordinator.round;
  Node node{
      "h" + std::to_string(host), ids_, rule.min_nodes, rule.max_nodes, std::nullopt, "a", "r", 1 + host % 2};
  if (shape_.static_ranks) node.wished_rank = host;
  note("start " + id);
  forgetful_ = forgetful_ || (host == 0 && !started_hosts_.insert(host).second);
  agents_.push_back(std::make_unique<Agent>(time_, dice_, network_, listeners_, *this, shape_.rules, host,
                                            node, id, dice_.span(Duration(0), std::chrono::hours(10))));
}

std::vector<Agent*> World::living() const {
  std::vector<Agent*> found;
  for (const std::unique_ptr<Agent>& agent : agents_) {
    if (agent->alive()) found.push_back(agent.get());
  }
  return found;
}

Agent* World::any_agent() {
  const std::vector<Agent*> all = living();
  return all.empty() ? nullptr : all[static_cast<std::size_t>(dice_.below(static_cast<int>(all.size())))];
}

// Few kinds of faults in one walk, and those often.
void World::plan_faults(TimePoint until) {
  std::vector<Fault> kinds;
  for (int i = 0; i < kFaults; ++i) {
    if (dice_.chance(0.4)) kinds.push_back(static_cast<Fault>(i));
  }
  const int count = kinds.empty() ? 0 : dice_.below(14);
  for (int i = 0; i < count; ++i) {
    const Fault kind = kinds[static_cast<std::size_t>(dice_.below(static_cast<int>(kinds.size())))];
    time_.at(begin_ + dice_.span(Duration(0), until - begin_), [this, kind] { cause(kind); });
  }
}

void World::cause(Fault fault) {
  Agent* const agent = any_agent();
  const int hosts = shape_.agents + 2;
  const TimePoint heals = time_.now() + dice_.span(milliseconds(100), seconds(12));
  switch (fault) {
    case Fault::Kill:
    case Fault::KillHost:
      if (!agent) return;
      note(std::string("kill ") + agent->membership().report().id);
      return agent->kill(fault == Fault::KillHost);
    case Fault::Start:
      return start_agent(dice_.below(shape_.static_ranks ? shape_.agents : hosts));
    case Fault::Stop:
      if (!agent) return;
      note("stop " + agent->membership().report().id);
      return agent->ask_to_stop();
    case Fault::CutOneWay: {
      const int from = dice_.below(hosts);
      const int to = dice_.below(hosts);
      note("cut " + std::to_string(from) + " to " + std::to_string(to));
      if (from != to) network_.cut(from, to, heals);
      return;
    }
    case Fault::CutGroups: {
      std::set<int> group;
      std::string text;
      for (int host = 0; host < hosts; ++host) {
        if (dice_.chance(0.4)) group.insert(host);
      }
      const bool both = dice_.chance(0.8);
      for (int a = 0; a < hosts; ++a) {
        if (group.count(a) != 0) text += " " + std::to_string(a);
        for (int b = 0; b < hosts; ++b) {
          if (group.count(a) == 0 || group.count(b) != 0) continue;
          network_.cut(a, b, heals);
          if (both) network_.cut(b, a, heals);
        }
      }
      return note("cut off" + text + (both ? "" : ", one way"));
    }
    case Fault::Break:
      note("break a connection");
      return network_.break_one();
    case Fault::Freeze:
      // Workers of a frozen agent live on: that is a documented limit.
      if (!agent || agent->has_workers()) return;
      note("freeze " + agent->membership().report().id);
      return agent->freeze(dice_.span(milliseconds(100), seconds(9)));
    case Fault::SlowNetwork:
      note("slow network");
      return network_.set_delays(milliseconds(0), milliseconds(dice_.between(1, 1500)), 0.05,
                                 milliseconds(dice_.between(1500, 6000)));
    case Fault::FailWorkers:
      if (!agent || !agent->has_workers()) return;
      note("workers fail at " + agent->membership().report().id);
      return agent->fail_workers(dice_.chance(0.1));
    case Fault::FinishWorkers:
      return finish_all();
    case Fault::kCount:
      return;
  }
}

// The workers of the present round end well, one node after the other.
void World::finish_all() {
  note("workers end well");
  for (Agent* agent : living()) {
    const std::int64_t serial = agent->membership().report().run.serial;
    time_.after(dice_.span(Duration(0), seconds(3)), [agent, serial] {
      if (agent->has_workers() && agent->membership().report().run.serial == serial) agent->finish_workers();
    });
  }
}

// ---- what must hold

void World::started(const Agent& agent, const WorkerSpan& span) {
  const Ticket& run = agent.membership().report().run;
  const std::string id = agent.membership().report().id;
  note(id + " starts workers of round " + std::to_string(run.round) + ", serial " +
       std::to_string(run.serial) + ", rank " + std::to_string(run.rank) + " of " +
       std::to_string(run.nodes) + ", restarts " + std::to_string(run.restarts));
  for (const Agent* other : living()) {
    if (other == &agent || !other->has_workers()) continue;
    const Ticket& others = other->membership().report().run;
    const WorkerSpan& theirs = other->membership().order().workers;
    const std::string& name = other->membership().report().id;
    if (others.serial != run.serial) {
      fault("two worker sets: " + id + " starts those of round " + std::to_string(run.round) + ", " + name +
            " has those of round " + std::to_string(others.round));
    } else if (other->membership().order().kind == Order::Kind::Run &&
               theirs.first_rank < span.first_rank + agent.workers_per_node() &&
               span.first_rank < theirs.first_rank + other->workers_per_node()) {
      fault("a global rank lives twice, at " + id + " and at " + name);
    }
  }
  const std::vector<Agent*> all = living();
  const bool first = std::none_of(
      all.begin(), all.end(), [&](const Agent* other) { return other != &agent && other->has_workers(); });
  forget_an_ended_run(run.round == 0 && first);
  members_.insert(&agent);
  // The assumption that RENDEZVOUS.md names: who serves the first endpoint again, with no memory and before
  // all others, begins a run of its own.
  const auto known_round = rounds_.find(run.serial);
  if (run.round == 0 && forgetful_ && !rounds_.empty() &&
      (known_round == rounds_.end() || known_round->second.by_rank.count(run.rank) != 0)) {
    result_.beyond_promise = true;
    result_.fault.clear();
    return;
  }
  if (!rounds_.empty() && rounds_.rbegin()->first > run.serial) fault("a round starts after a later one");
  if (serials_.try_emplace(run.round, run.serial).first->second != run.serial) {
    fault("two rounds have the number " + std::to_string(run.round));
  }
  if (rounds_.count(run.serial) == 0) ++result_.rounds;
  Started& round = rounds_[run.serial];
  if (!round.by_rank.try_emplace(run.rank, &agent).second) {
    fault("two agents have rank " + std::to_string(run.rank) + " of round " + std::to_string(run.round));
  }
  round.nodes = run.nodes;
  round.restarts = run.restarts;
  if (result_.beyond_promise) return;
  const auto next = rounds_.upper_bound(run.serial);
  const auto self = rounds_.find(run.serial);
  if (self != rounds_.begin() && std::prev(self)->second.restarts > run.restarts) {
    fault("restarts were forgotten");
  }
  if (self != rounds_.begin() && next == rounds_.end() && round.by_rank.size() == 1 &&
      std::prev(self)->first >> 20 != run.serial >> 20) {
    ++result_.takeovers;
  }
  if (run.restarts > shape_.rules.coordinator.max_restarts) fault("more restarts than the budget");
  if (run.nodes < shape_.rules.coordinator.round.min_nodes ||
      run.nodes > shape_.rules.coordinator.round.max_nodes) {
    fault("a round of " + std::to_string(run.nodes) + " nodes");
  }
}

// Where nobody is left who knows of the rounds before, the run's name is that of a new run.
void World::forget_an_ended_run(bool fresh) {
  const bool known = std::any_of(members_.begin(), members_.end(), [](const Agent* member) {
    return member->alive() && member->phase() != Agent::Phase::Closing;
  });
  // So it is where a new leader knows nothing of them: an assumption that RENDEZVOUS.md names.
  if (known && !fresh) return;
  rounds_.clear();
  serials_.clear();
  members_.clear();
}

void World::finished(const Agent& agent) {
  const Ticket& run = agent.membership().report().run;
  note(agent.membership().report().id + " has finished rank " + std::to_string(run.rank));
  rounds_[run.serial].finished.insert(run.rank);
}

void World::told_that_all_finished(const Agent& agent) {
  note(agent.membership().report().id + " is told that all have finished");
  result_.finished = true;
  const bool true_word = std::any_of(rounds_.begin(), rounds_.end(), [](const auto& round) {
    return static_cast<int>(round.second.finished.size()) == round.second.nodes;
  });
  if (!true_word) fault("told that all have finished before they had");
}

void World::ended(const Agent& agent, const std::string& why) {
  note(agent.membership().report().id + " ends: " + why);
}

// Whether a set of at most `most` living agents has more than half of each of the rounds.
bool World::can_be_seated(const std::map<std::int64_t, int>& nodes_of, int most) const {
  const std::vector<Agent*> all = living();
  for (unsigned chosen = 0; chosen < 1U << all.size(); ++chosen) {
    std::map<std::int64_t, std::set<int>> ranks;
    int seats = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if ((chosen >> i & 1U) == 0) continue;
      const Report& report = all[i]->membership().report();
      ++seats;
      for (const Ticket& ticket : {report.run, report.offered}) ranks[ticket.serial].insert(ticket.rank);
    }
    const bool good = seats <= most && std::all_of(nodes_of.begin(), nodes_of.end(), [&](const auto& round) {
                        const std::set<int>& here = ranks[round.first];
                        const int count = 2 * static_cast<int>(here.size());
                        return count > round.second || (count == round.second && here.count(0) != 0);
                      });
    if (good) return true;
  }
  return false;
}

bool World::a_round_is_due() const {
  const RoundRule& rule = shape_.rules.coordinator.round;
  std::set<int> hosts;
  std::int64_t ran = 0;
  for (const Agent* agent : living()) {
    hosts.insert(agent->process().host);
    ran = std::max(ran, agent->membership().report().run.serial);
  }
  if (static_cast<int>(hosts.size()) < (rule.ranks_given ? rule.max_nodes : rule.min_nodes)) return false;
  if (listeners_.empty()) return false;
  if (shape_.rules.link.endpoints == 1) return true;
  std::map<std::int64_t, int> needed;
  for (const Agent* agent : living()) {
    const Report& report = agent->membership().report();
    if (ran != 0 && report.run.serial == ran) needed[ran] = report.run.nodes;
    if (report.offered.serial <= ran) continue;
    needed[report.offered.serial] = report.offered.nodes;
    if (report.offered.after_serial > ran) needed[report.offered.after_serial] = report.offered.after_nodes;
  }
  if (needed.empty()) return listeners_.count(0) != 0 && rounds_.empty();  // who is to lead first
  return can_be_seated(needed, rule.max_nodes);
}

void World::check_settled() {
  const std::vector<Agent*> all = living();
  std::vector<Agent*> running;
  for (Agent* agent : all) {
    const Agent::Phase phase = agent->phase();
    if (phase == Agent::Phase::Working || phase == Agent::Phase::Finishing) {
      running.push_back(agent);
    } else if (phase != Agent::Phase::Joining && phase != Agent::Phase::Closing) {
      fault("hangs: " + agent->state_text());
    }
  }
  if (running.empty()) {
    if (!all.empty() && a_round_is_due()) fault("nobody runs, though a round is due");
    return;
  }
  const Ticket& run = running.front()->membership().report().run;
  for (const Agent* agent : running) {
    if (agent->membership().report().run.serial != run.serial) fault("two rounds run at the end");
  }
  if (static_cast<int>(running.size()) != run.nodes) fault("a round runs without all its nodes");
  check_joiners(running);
}

void World::check_joiners(const std::vector<Agent*>& running) {
  const bool full = static_cast<int>(running.size()) >= shape_.rules.coordinator.round.max_nodes;
  const bool ending = std::any_of(running.begin(), running.end(), [](const Agent* agent) {
    return agent->phase() == Agent::Phase::Finishing;
  });
  for (const Agent* agent : living()) {
    if (agent->phase() != Agent::Phase::Joining) continue;
    const Order& order = agent->membership().order();
    if (!agent->membership().knows_leader()) fault("does not find the leader: " + agent->state_text());
    if (full && order.kind != Order::Kind::Park) fault("is no spare: " + agent->state_text());
    if (!full && !ending) fault("is left waiting: " + agent->state_text());
    if (order.text.empty()) fault("is not told for what it waits: " + agent->state_text());
  }
}

void World::check_all_ended() {
  for (const Agent* agent : living()) fault("has not ended: " + agent->state_text());
  if (!result_.finished) fault("nobody was told that all have finished");
}

// ---- the walk

void World::note_states() {
  if (!traced_) return;
  for (const std::unique_ptr<Agent>& agent : agents_) {
    std::string text = agent->state_text();
    if (states_[agent.get()] == text) continue;
    note("    " + text);
    states_[agent.get()] = std::move(text);
  }
}

bool World::run_until(TimePoint limit) {
  while (result_.fault.empty() && !result_.beyond_promise && time_.step(limit)) note_states();
  return result_.fault.empty() && !result_.beyond_promise;
}

WalkResult World::run() {
  shape();
  const bool steady = dice_.chance(0.5);  // the first round runs before anything happens
  for (int host = 0; host < shape_.agents; ++host) {
    time_.after(dice_.span(Duration(0), steady ? milliseconds(300) : milliseconds(3000)),
                [this, host] { start_agent(host); });
  }
  network_.set_delays(milliseconds(0), milliseconds(dice_.between(1, 20)), dice_.chance(0.5) ? 0.01 : 0,
                      milliseconds(dice_.between(20, 3000)));
  if (steady && !run_until(begin_ + seconds(8))) return result_;
  const TimePoint end = time_.now() + dice_.span(seconds(5), seconds(40));
  plan_faults(end);
  if (!run_until(end)) return result_;
  note("quiet");
  network_.heal();
  network_.set_delays(milliseconds(0), milliseconds(5), 0, milliseconds(5));
  if (!run_until(time_.now() + kSettleLimit)) return result_;
  check_settled();
  const std::vector<Agent*> all = living();
  const bool runs =
      std::any_of(all.begin(), all.end(), [](const Agent* agent) { return agent->has_workers(); });
  if (!runs || !result_.fault.empty()) return result_;
  finish_all();
  if (run_until(time_.now() + kFinishLimit)) check_all_ended();
  return result_;
}

}  // namespace

WalkResult walk(std::uint64_t seed, bool traced) {
  return World(seed, traced).run();
}

}  // namespace cpprun::rendezvous::walks
