#include "tests/unit/rendezvous/walks/agent.hpp"

#include <algorithm>
#include <array>

namespace cpprun::rendezvous::walks {
namespace {

constexpr milliseconds kFarewellLimit(5000);
constexpr milliseconds kHandOverLimit(10000);

CoordinatorRules rules_at(CoordinatorRules rules, int host) {
  rules.own_endpoint = host;
  return rules;
}

}  // namespace

Agent::Agent(Timeline& time, Dice& dice, Network& network, std::map<int, Network::Listener>& listeners,
             Witness& witness, AgentRules rules, int host, const Node& node, const std::string& id,
             Duration clock_offset)
    : time_(time),
      dice_(dice),
      network_(network),
      listeners_(listeners),
      witness_(witness),
      rules_(rules),
      process_{host, true, {}, clock_offset},
      membership_(id, node, rules.link.death_limit, rules.stop_margin / 2),
      link_(time, network, process_, rules.link, membership_, listeners, [this] { soon(); }),
      alarm_(time, [this] { alarmed(); }) {
  if (host < rules.link.endpoints) {
    council_ = std::make_unique<Council>(time, network, process_, rules_at(rules.coordinator, host),
                                         membership_, listeners);
    listeners[host] = {&process_, council_.get()};
  }
  begin_joining();
  link_.seek();
}

// ---- what happens to it

void Agent::kill(bool with_host) {
  if (!process_.alive) return;
  process_.alive = false;
  workers_alive_ = false;
  phase_ = Phase::Ended;
  why_ = "killed";
  if (council_ && listeners_[process_.host].process == &process_) listeners_.erase(process_.host);
  network_.end_of(process_, with_host);
}

void Agent::freeze(Duration span) {
  process_.frozen_until = time_.now() + span;
}

void Agent::ask_to_stop() {
  told_to_stop_ = true;
  soon();
}

void Agent::fail_workers(bool fatal) {
  outcome_ = fatal ? Outcome::Fatal : Outcome::Failed;
  soon();
}

void Agent::finish_workers() {
  outcome_ = Outcome::Good;
  soon();
}

// ---- what it does

void Agent::alarmed() {
  if (!process_.alive) return;
  if (process_.frozen_until > time_.now()) {
    alarm_.set(process_.frozen_until);
    return;
  }
  Phase before = phase_;
  do {
    before = phase_;
    step();
  } while (phase_ != before && process_.alive);
}

void Agent::step() {
  switch (phase_) {
    case Phase::Joining:
      return join();
    case Phase::Working:
      return work();
    case Phase::Finishing:
      return await_the_others();
    case Phase::Stopping:
      return await_workers();
    case Phase::Settling:
      return settle();
    case Phase::Closing:
      return await_farewell();
    case Phase::Ended:
      return;
  }
}

void Agent::begin_joining() {
  phase_ = Phase::Joining;
  join_limit_ = now() + rules_.join_timeout;
  connect_limit_ = std::min(join_limit_, now() + rules_.connect_timeout);
  membership_.want_place();
  link_.report_changed();
  soon();
}

void Agent::join() {
  if (told_to_stop_) {
    leave();
    return close("stopped");
  }
  was_led_ = was_led_ || membership_.knows_leader();
  if (membership_.all_finished()) {
    witness_.told_that_all_finished(*this);
    return close("finished as a spare");
  }
  if (const std::optional<Ticket> ticket = membership_.offered()) {
    std::optional<StoreEndpoint> store;
    if (ticket->rank == 0) store = StoreEndpoint{membership_.report().node.host, 1};
    membership_.accept(store);
    link_.report_changed();
  }
  if (membership_.placed(now())) {
    membership_.start();
    link_.report_changed();
    phase_ = Phase::Working;
    workers_alive_ = true;
    failed_here_ = false;
    outcome_ = Outcome::None;
    return witness_.started(*this, membership_.order().workers);
  }
  if (membership_.order().kind == Order::Kind::Park) join_limit_ = now() + rules_.join_timeout;
  const std::string why = hopeless();
  if (!why.empty()) return close(why);
  alarm_.set(time_.now() + ((was_led_ ? join_limit_ : connect_limit_) - now()));
}

std::string Agent::hopeless() const {
  const Order& order = membership_.order();
  if (order.kind == Order::Kind::Refused) return "refused: " + order.text;
  if (order.kind == Order::Kind::End && order.end.final) return "the run has ended: " + order.end.sentence;
  if (was_led_ && !membership_.knows_leader() && rules_.link.endpoints == 1) return "the leader was lost";
  if (!was_led_ && now() >= connect_limit_) return "timed out: no leader";
  if (now() >= join_limit_) return "timed out: " + order.text;
  return "";
}

void Agent::work() {
  if (outcome_ == Outcome::Good) {
    workers_alive_ = false;
    membership_.finish();
    link_.report_changed();
    witness_.finished(*this);
    phase_ = Phase::Finishing;
    return;
  }
  if (outcome_ != Outcome::None) {
    const bool fatal = outcome_ == Outcome::Fatal;
    failed_here_ = true;
    membership_.want_end({!fatal, fatal, membership_.report().id + ": a worker failed", "cause"});
    link_.report_changed();
    return stop_workers(rules_.stop_grace);
  }
  if (const std::optional<RoundEvent> event = membership_.round_event(now())) {
    const RendezvousLost* lost = std::get_if<RendezvousLost>(&*event);
    const milliseconds grace = lost ? std::min(rules_.stop_grace, lost->grace) : rules_.stop_grace;
    if (lost) membership_.forget_leader();
    return stop_workers(grace);
  }
  if (told_to_stop_) {
    leave();
    return stop_workers(rules_.stop_grace);
  }
  alarm_.set(time_.now() + (membership_.lease_end().value() - now()));
}

void Agent::await_the_others() {
  if (membership_.all_finished()) {
    witness_.told_that_all_finished(*this);
    return close("finished");
  }
  if (membership_.round_event(now())) return stop_workers(milliseconds(0));
  if (told_to_stop_) {
    leave();
    return close("stopped");
  }
  alarm_.set(time_.now() + (membership_.lease_end().value() - now()));
}

void Agent::stop_workers(milliseconds grace) {
  phase_ = Phase::Stopping;
  stopped_at_ = now();
  stop_limit_ = now() + grace;
  if (workers_alive_) stopped_at_ += dice_.chance(rules_.stubborn) ? grace : dice_.span(Duration(0), grace);
}

void Agent::await_workers() {
  const TimePoint fence = membership_.fence().value_or(TimePoint::max());
  if (fence < stop_limit_ && now() >= membership_.lease_end().value()) {
    stop_limit_ = fence;
    stopped_at_ = std::min(stopped_at_, fence);
  }
  const TimePoint look = fence < stop_limit_ ? *membership_.lease_end() : TimePoint::max();
  if (now() < stopped_at_) return alarm_.set(time_.now() + (std::min(look, stopped_at_) - now()));
  workers_alive_ = false;
  if (membership_.report().state == AgentState::Leaving) return close("stopped");
  if (told_to_stop_ && !failed_here_) {
    leave();
    return close("stopped");
  }
  membership_.want_place();
  link_.report_changed();
  phase_ = Phase::Settling;
}

void Agent::settle() {
  const std::optional<RoundEnd> verdict = membership_.verdict();
  if (verdict && verdict->final) return close("failed: " + verdict->sentence);
  if (told_to_stop_) {
    leave();
    return close("stopped");
  }
  if (verdict) begin_joining();
}

void Agent::leave() {
  RoundEnd wanted{false, false, membership_.report().id + " was stopped", ""};
  wanted.final = council_ && rules_.link.endpoints == 1;
  membership_.leave(wanted);
  link_.report_changed();
}

void Agent::close(const std::string& why) {
  why_ = why;
  phase_ = Phase::Closing;
  membership_.go();
  link_.report_changed();
  link_.stop();
  farewell_limit_ = now() + kHandOverLimit + kFarewellLimit;
  if (council_)
    council_->say_farewell("the agent that led the run has ended: " + why, now() + kHandOverLimit);
}

void Agent::await_farewell() {
  if (council_ && !council_->everyone_has_left() && now() < farewell_limit_) {
    return alarm_.set(time_.now() + milliseconds(5));
  }
  const std::string why = why_;
  kill(false);
  why_ = why;
  witness_.ended(*this, why);
}

std::string Agent::state_text() const {
  static constexpr std::array<const char*, 7> kPhases{"joining",  "working", "finishing", "stopping",
                                                      "settling", "closing", "ended"};
  const Report& report = membership_.report();
  const Order& order = membership_.order();
  static constexpr std::array<const char*, 8> kKinds{"wait", "park",     "offer",   "run",
                                                     "end",  "finished", "refused", "elsewhere"};
  return report.id + " " + kPhases[static_cast<std::size_t>(phase_)] +
         (why_.empty() ? "" : " (" + why_ + ")") + ", run " + std::to_string(report.run.serial) + " rank " +
         std::to_string(report.run.rank) + " of " + std::to_string(report.run.nodes) + ", offered " +
         std::to_string(report.offered.serial) + " rank " + std::to_string(report.offered.rank) + ", order " +
         kKinds[static_cast<std::size_t>(order.kind)] + " " + std::to_string(order.ticket.serial) + " '" +
         order.text + order.end.sentence + "'" + (membership_.knows_leader() ? "" : ", no leader known") +
         (council_ && alive() && council_->coordinator().leads() ? ", LEADS" : "");
}

}  // namespace cpprun::rendezvous::walks
