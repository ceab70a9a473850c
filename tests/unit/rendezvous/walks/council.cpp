#include "tests/unit/rendezvous/walks/council.hpp"

#include <algorithm>

namespace cpprun::rendezvous::walks {
namespace {

constexpr seconds kReportLimit(10);
constexpr milliseconds kLookLimit(2000);
constexpr milliseconds kLookPause(300);
constexpr milliseconds kHandOverPause(5);

}  // namespace

std::int64_t ticks(TimePoint when) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
}

TimePoint at_ticks(std::int64_t count) {
  return TimePoint(std::chrono::nanoseconds(count));
}

Council::Council(Timeline& time, Network& network, const Process& process, CoordinatorRules rules,
                 const Membership& own_agent, const std::map<int, Network::Listener>& listeners)
    : time_(time),
      network_(network),
      process_(process),
      rules_(rules),
      own_agent_(own_agent),
      listeners_(listeners),
      coordinator_(rules, process.clock(time.now())),
      alarm_(time, [this] { patiently([this] { decide(); }); }) {
  for (int other = 1; rules.own_endpoint == 0 && other < rules.endpoints; ++other) {
    looks_.push_back(std::make_unique<Look>());
    Look& look_there = *looks_.back();
    look_there.council = this;
    look_there.endpoint = other;
    look_there.alarm = std::make_unique<Alarm>(time, [this, &look_there] {
      patiently([this, &look_there] {
        if (look_there.connection) return looked(look_there, false);
        if (!coordinator_.leads()) look(look_there);
      });
    });
    look(look_there);
  }
  soon();
}

// A process that is frozen does what is due when it goes on; one that has ended, nothing.
void Council::patiently(const std::function<void()>& what) {
  if (!process_.alive) return;
  if (process_.frozen_until > time_.now()) {
    time_.at(process_.frozen_until, [this, what] { patiently(what); });
    return;
  }
  what();
}

void Council::soon() {
  alarm_.set(time_.now());
}

void Council::decide() {
  coordinator_.advance(now());
  for (const std::string& id : coordinator_.take_changed()) {
    const auto known = by_id_.find(id);
    if (known != by_id_.end()) network_.send(*known->second, *this, coordinator_.order(id));
  }
  end_silent_sessions();
  alarm_.set(time_.now() + std::max(coordinator_.next_wake() - now(), Duration(1)));
}

void Council::receive(Connection& connection, const Message& message) {
  if (std::holds_alternative<Opened>(message)) {
    sessions_[&connection] = {std::nullopt, now()};
    network_.send(connection, *this, status_of(coordinator_, &own_agent_));
    return;
  }
  const auto found = sessions_.find(&connection);
  if (found == sessions_.end()) return;
  if (std::holds_alternative<Closed>(message)) return end(connection);
  Session& session = found->second;
  session.heard = now();
  if (const Report* report = std::get_if<Report>(&message)) return take_report(connection, *report);
  if (const Beat* beat = std::get_if<Beat>(&message)) {
    coordinator_.hear(*session.report, session.heard);
    acknowledge(connection, beat->clock);
  } else if (const Echo* echo = std::get_if<Echo>(&message)) {
    coordinator_.follows(session.report->id, at_ticks(echo->clock));
  }
}

void Council::take_report(Connection& connection, const Report& report) {
  Connection*& known = by_id_[report.id];
  const bool is_new = known != &connection;
  Connection* const before = known;
  known = &connection;
  if (is_new && before) {
    sessions_.erase(before);
    network_.close(*before, *this);
    coordinator_.part(report.id);
  }
  Session& session = sessions_[&connection];
  session.report = report;
  coordinator_.hear(report, session.heard);
  if (is_new) coordinator_.tell_again(report.id);
  if (report.state == AgentState::Gone) by_id_.erase(report.id);
  soon();
}

void Council::acknowledge(Connection& connection, std::int64_t agent_clock) {
  const Duration lease = std::max(coordinator_.lease(now()) - now(), Duration::zero());
  network_.send(connection, *this, Ack{agent_clock, ticks(now()), lease.count()});
}

void Council::end(Connection& connection) {
  const auto session = sessions_.find(&connection);
  if (session == sessions_.end()) return;
  const std::optional<Report> report = session->second.report;
  sessions_.erase(session);
  network_.close(connection, *this);
  if (!report) return;
  const auto known = by_id_.find(report->id);
  if (known == by_id_.end() || known->second != &connection) return;
  by_id_.erase(known);
  coordinator_.part(report->id);
  soon();
}

void Council::end_silent_sessions() {
  std::vector<Connection*> silent;
  for (const auto& [connection, session] : sessions_) {
    const Duration limit = session.report ? Duration(4 * rules_.death_limit) : Duration(kReportLimit);
    if (now() - session.heard > limit) silent.push_back(connection);
  }
  for (Connection* connection : silent) end(*connection);
}

void Council::look(Look& look) {
  look.connection = &network_.open(process_, look, look.endpoint, listeners_);
  look.alarm->set(time_.now() + kLookLimit);
}

void Council::Look::receive(Connection&, const Message& message) {
  const CouncilStatus* status = std::get_if<CouncilStatus>(&message);
  council->looked(*this, status ? *status == CouncilStatus::Idle : connection->refused);
}

void Council::looked(Look& look, bool nobody) {
  network_.close(*look.connection, look);
  look.connection = nullptr;
  if (nobody) {
    look.alarm->clear();
    coordinator_.clear_endpoint(look.endpoint);
    soon();
    return;
  }
  look.alarm->set(time_.now() + kLookPause);
}

void Council::say_farewell(const std::string& why, TimePoint limit) {
  if (coordinator_.hands_over() && now() < limit) {
    time_.at(time_.now() + kHandOverPause,
             [this, why, limit] { patiently([this, why, limit] { say_farewell(why, limit); }); });
    return;
  }
  coordinator_.abandon(why);
  soon();
}

}  // namespace cpprun::rendezvous::walks
