#include "rendezvous/etcd/etcd_reign.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <exception>
#include <memory>
#include <utility>

#include "rendezvous/async/failure_of.hpp"

namespace cpprun::rendezvous {
namespace {

using async::Clock;
using async::Deadline;

constexpr std::chrono::milliseconds kPause(100);
// As many as the client keeps connections.
constexpr int kWriters = 4;
// What nobody leads any more stays for so long.
constexpr std::chrono::seconds kKeepRecords(3600);
constexpr std::chrono::seconds kKeepInterval(600);

awaitable<void> pause(asio::any_io_executor executor) {
  asio::steady_timer timer(executor, kPause);
  co_await timer.async_wait(asio::use_awaitable);
}

std::int64_t last_place(const Report& report) {
  return std::max(report.run.serial, report.offered.serial);
}

std::string order_of_latecomer() {
  Order order;
  order.text = "the last run of this name has ended; waiting for its agents to go";
  return to_json(order);
}

}  // namespace

EtcdReign::EtcdReign(asio::any_io_executor executor, EtcdClient& client, EtcdSession& session,
                     const EtcdKeys& keys, const CoordinatorRules& rules, Fence leader)
    : executor_(executor),
      client_(client),
      session_(session),
      keys_(keys),
      coordinator_(rules, Clock::now()),
      leader_(std::move(leader)),
      own_lease_(session.lease()),
      heard_(executor),
      to_put_(executor),
      written_(executor),
      tasks_(executor) {}

awaitable<void> EtcdReign::run() {
  const Lease records = co_await client_.grant(kKeepRecords);
  records_ = records.id;
  keep_records_ = Clock::now() + kKeepInterval;
  const PrefixReading reading = co_await client_.list(keys_.root);
  if (!leads_in(reading)) co_return;
  take_over(reading);
  co_await asio::this_coro::throw_if_cancelled(false);  // what is started is waited for
  KeyRange agents{keys_.agents(), true};
  KeyRange leader{keys_.leader(), false};
  tasks_.start(watch(std::move(agents), reading.revision + 1));
  tasks_.start(watch(std::move(leader), reading.revision + 1));
  tasks_.start(decide());
  for (int i = 0; i < kWriters; ++i) tasks_.start(put_orders());
  const std::exception_ptr failure = co_await async::failure_of(tasks_.join());
  co_await asio::this_coro::throw_if_cancelled(true);
  written_.notify_all();  // nothing more will be
  if (failure) std::rethrow_exception(failure);
}

void EtcdReign::step_down() {
  tasks_.cancel();
}

// ---- what is there

bool EtcdReign::leads_in(const PrefixReading& reading) const {
  return std::any_of(reading.entries.begin(), reading.entries.end(), [&](const KeyValue& entry) {
    return entry.key == keys_.leader() && entry.created == leader_.created;
  });
}

void EtcdReign::take_over(const PrefixReading& reading) {
  std::map<std::string, Order> told;
  std::map<std::string, Agent> found;
  for (const KeyValue& entry : reading.entries) {
    if (const std::optional<std::string> id = id_below(keys_.agents(), entry.key)) {
      std::optional<Report> report = report_from_json(entry.value);
      if (report && report->id == *id) found[*id] = {std::move(*report), entry.created};
    } else if (const std::optional<std::string> whose = id_below(keys_.orders(), entry.key)) {
      erasures_.insert(*whose);
      if (std::optional<Order> order = order_from_json(entry.value)) told[*whose] = std::move(*order);
    } else if (entry.key == keys_.last_word()) {
      word_ = order_from_json(entry.value);
      const bool final = word_ && (word_->kind == Order::Kind::End || word_->kind == Order::Kind::Finished);
      if (!final) word_.reset();
      if (word_) spoken_ = entry.created;
    }
  }
  word_is_put_ = word_.has_value();
  if (word_ && word_->kind == Order::Kind::End) {
    coordinator_.conclude(word_->end);
  } else if (word_) {
    coordinator_.conclude(std::nullopt);
  }
  for (auto& [id, agent] : found) hear(id, std::move(agent));
  if (!word_) coordinator_.succeed(told, Clock::now());
}

awaitable<void> EtcdReign::watch(KeyRange range, Revision from) {
  for (;;) {
    try {
      const std::unique_ptr<EtcdWatch> watch = co_await client_.watch(range, from);
      for (bool whole = true; whole;) {
        const WatchNews news = co_await watch->next();
        if (news.kind == WatchNews::Kind::Compacted) co_return step_down();  // to read all anew
        whole = news.kind == WatchNews::Kind::Events;
        for (const KeyEvent& event : news.events) {
          take(event);
          from = event.changed + 1;
        }
        heard_.notify_all();
      }
    } catch (const EtcdError& error) {
      spdlog::debug("rendezvous: {}", error.what());
    }
    co_await pause(executor_);
  }
}

// What is no report changes nothing: the agent lives, and its last one holds.
void EtcdReign::take(const KeyEvent& event) {
  // Erased by somebody; while there is nothing to put, the fence would not tell.
  if (event.key == keys_.leader() && event.deleted) return step_down();
  const std::optional<std::string> id = id_below(keys_.agents(), event.key);
  if (!id) return;
  if (event.deleted) return lose(*id);
  std::optional<Report> report = report_from_json(event.value);
  if (report && report->id == *id) hear(*id, {std::move(*report), event.created});
}

void EtcdReign::hear(const std::string& id, Agent agent) {
  if (agents_.count(id) == 0 && comes_too_late(agent)) {
    if (agent.report.state == AgentState::Gone) {
      latecomers_.erase(id);
    } else if (latecomers_.emplace(id, std::move(agent)).second) {
      orders_[id] = order_of_latecomer();
      erasures_.erase(id);
    }
    return;
  }
  coordinator_.hear(agent.report, Clock::now());
  // One that was taken for lost has lost its order too.
  if (agents_.count(id) == 0) coordinator_.tell_again(id);
  erasures_.erase(id);
  if (agent.report.state == AgentState::Gone) {
    agents_.erase(id);
    orders_.erase(id);
  } else {
    agents_[id] = std::move(agent);
  }
}

void EtcdReign::lose(const std::string& id) {
  latecomers_.erase(id);
  agents_.erase(id);
  orders_.erase(id);
  erasures_.insert(id);
  coordinator_.lose(id, Clock::now());
}

// For this run, which has had its last word.
bool EtcdReign::comes_too_late(const Agent& agent) const {
  if (!word_) return false;
  const std::int64_t place = last_place(agent.report);
  const bool had_place = place != 0 && place <= word_->ticket.serial;
  const bool was_there = spoken_ != 0 && agent.created < spoken_;
  return !had_place && !was_there;
}

// ---- what follows

awaitable<void> EtcdReign::decide() {
  Clock::time_point tick{};
  for (;;) {
    // What has come at the same time is decided on at once.
    co_await asio::post(executor_, asio::use_awaitable);
    const Clock::time_point now = Clock::now();
    if (session_.lease() != own_lease_ || !session_.holds(now)) co_return step_down();
    // An agent whose key is there lives.
    if (now >= tick) {
      for (const auto& [id, agent] : agents_) coordinator_.hear(agent.report, now);
    }
    coordinator_.advance(now);
    tick = coordinator_.next_wake();
    if (coordinator_.over() && !word_is_put_) co_await speak_last_word();
    for (const std::string& id : coordinator_.take_changed()) {
      if (agents_.count(id) != 0) orders_[id] = to_json(coordinator_.order(id));
    }
    for (const std::string& notice : coordinator_.take_notices()) spdlog::warn("rendezvous: {}", notice);
    to_put_.notify_all();
    written_.notify_all();
    if (coordinator_.over() && agents_.empty() && !latecomers_.empty()) co_await begin_next_run();
    if (now >= keep_records_) {
      co_await client_.keep_alive(records_);
      keep_records_ = now + kKeepInterval;
    }
    co_await heard_.wait_until(tick);
  }
}

// Nobody hears it before it is sure to outlive this leader.
awaitable<void> EtcdReign::speak_last_word() {
  Order word;
  word.kind = Order::Kind::Finished;
  if (coordinator_.last_word()) {
    word.kind = Order::Kind::End;
    word.end = *coordinator_.last_word();
  }
  for (const auto& [id, agent] : agents_) {
    word.ticket.serial = std::max(word.ticket.serial, last_place(agent.report));
  }
  const bool leads = co_await client_.put_fenced(keys_.last_word(), to_json(word), leader_, records_);
  word_ = std::move(word);
  word_is_put_ = true;
  if (!leads) step_down();
}

awaitable<void> EtcdReign::begin_next_run() {
  co_await client_.erase_fenced(keys_.last_word(), leader_);
  step_down();
}

std::optional<std::string> EtcdReign::next_to_put() const {
  for (const auto& [id, order] : orders_) {
    if (in_flight_.count(id) == 0) return id;
  }
  if (!orders_.empty()) return std::nullopt;
  for (const std::string& id : erasures_) {
    if (in_flight_.count(id) == 0) return id;
  }
  return std::nullopt;
}

// One of several that do this, never two of them for the same agent.
awaitable<void> EtcdReign::put_orders() {
  for (;;) {
    const std::optional<std::string> id = next_to_put();
    if (!id) {
      co_await to_put_.wait();
      continue;
    }
    in_flight_.insert(*id);
    const bool leads = co_await put_next(*id);
    in_flight_.erase(*id);
    written_.notify_all();
    if (!leads) step_down();
  }
}

// False if another may lead by now.
awaitable<bool> EtcdReign::put_next(const std::string& id) {
  const std::map<std::string, std::string>::node_type order = orders_.extract(id);
  const bool erases = order.empty();
  if (erases) erasures_.erase(id);
  try {
    awaitable<bool> change = erases ? client_.erase_fenced(keys_.order(id), leader_)
                                    : client_.put_fenced(keys_.order(id), order.mapped(), leader_, records_);
    const bool leads = co_await std::move(change);
    co_return leads;
  } catch (const EtcdError& error) {
    spdlog::debug("rendezvous: {}", error.what());
    if (error.failure() == EtcdFailure::Refused) throw;
    // A newer one takes its place.
    const bool is_here = agents_.count(id) + latecomers_.count(id) != 0;
    if (erases && !is_here) erasures_.insert(id);
    if (!erases && is_here) orders_.emplace(id, order.mapped());
  }
  co_await pause(executor_);
  co_return true;
}

awaitable<void> EtcdReign::settle(Deadline limit) {
  while (!tasks_.empty() && session_.holds(Clock::now()) && !limit.passed()) {
    const bool to_speak = coordinator_.over() && !word_is_put_;
    if (!to_speak && orders_.empty() && in_flight_.empty()) co_return;
    co_await written_.wait_until(limit.time());
  }
}

}  // namespace cpprun::rendezvous
