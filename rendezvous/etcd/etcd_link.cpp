#include "rendezvous/etcd/etcd_link.hpp"

#include <boost/asio/steady_timer.hpp>
#include <memory>
#include <utility>

#include "rendezvous/async/task_group.hpp"

namespace cpprun::rendezvous {
namespace {

using async::Clock;
using async::Deadline;

// After a failure, before the next try.
constexpr std::chrono::milliseconds kPause(100);
// A report that got no answer may still reach etcd, and replace a newer one, for so long.
constexpr std::chrono::seconds kLateLimit(10);

awaitable<void> pause(asio::any_io_executor executor) {
  asio::steady_timer timer(executor, kPause);
  co_await timer.async_wait(asio::use_awaitable);
}

}  // namespace

EtcdLink::EtcdLink(asio::any_io_executor executor, EtcdLinkConfig config, EtcdClient& client,
                   EtcdSession& session, Membership& membership, async::Event& changed)
    : executor_(executor),
      config_(std::move(config)),
      client_(client),
      session_(session),
      membership_(membership),
      changed_(changed),
      said_(executor) {}

awaitable<void> EtcdLink::run() {
  Order none;
  none.text = "no agent leads the run yet";
  membership_.take(std::move(none));
  async::TaskGroup tasks(executor_);
  tasks.start(follow_lease());
  tasks.start(put_reports());
  tasks.start(take_orders());
  co_await tasks.join();
}

awaitable<void> EtcdLink::flush(Deadline limit) {
  while (session_.holds(Clock::now()) && sent_version_ != membership_.version() && !limit.passed()) {
    co_await said_.wait_until(limit.time());
  }
}

const std::string& EtcdLink::problem() const {
  return session_.problem().empty() ? problem_ : session_.problem();
}

const std::string& EtcdLink::refusal() const {
  return session_.refusal().empty() ? refusal_ : session_.refusal();
}

// The agent may go on as long as its lease holds: nobody takes it for dead before. A leader that comes or
// goes meanwhile makes no difference.
awaitable<void> EtcdLink::follow_lease() {
  Clock::time_point renewed{};
  for (;;) {
    const Clock::time_point now = Clock::now();
    const bool holds = session_.holds(now);
    if (holds && session_.renewal()->sent != renewed) {
      renewed = session_.renewal()->sent;
      const bool is_back = !membership_.knows_leader();
      membership_.renew(renewed, session_.renewal()->time_to_live, now);
      // The workers of a round have been told where to meet.
      const bool may_move = !config_.fixed_address && !membership_.lease_end();
      if (may_move && !client_.local_address().empty()) membership_.set_address(client_.local_address());
      if (is_back && order_) membership_.take(*order_);
      session_.changed().notify_all();
      changed_.notify_all();
    } else if (!holds && membership_.knows_leader() && !membership_.lease_end()) {
      membership_.forget_leader();
      changed_.notify_all();
    } else if (!session_.refusal().empty()) {
      changed_.notify_all();
    }
    const Clock::time_point limit = holds ? session_.renewal()->end() : Clock::time_point::max();
    co_await session_.changed().wait_until(limit);
  }
}

awaitable<void> EtcdLink::put_reports() {
  for (;;) {
    const LeaseId lease = session_.lease();
    const int version = membership_.version();
    if (say_again_ && Clock::now() >= *say_again_) {
      say_again_.reset();
      sent_version_ = 0;
    }
    if (lease == kNoLease || (lease == sent_lease_ && version == sent_version_)) {
      co_await session_.changed().wait_until(say_again_.value_or(Clock::time_point::max()));
      continue;
    }
    try {
      co_await client_.put(config_.keys.agent(membership_.report().id), to_json(membership_.report()), lease);
      sent_version_ = version;
      sent_lease_ = lease;
      problem_.clear();
      said_.notify_all();
      continue;
    } catch (const EtcdError& error) {
      problem_ = error.what();
      if (error.failure() == EtcdFailure::NoAnswer) say_again_ = Clock::now() + kLateLimit;
      if (error.failure() == EtcdFailure::Refused) session_.doubt();  // the lease may be over
      // While the lease holds, it is not that.
      const bool hopeless = sent_lease_ == kNoLease && session_.holds(Clock::now());
      if (error.failure() == EtcdFailure::Refused && hopeless) refusal_ = problem_;
    }
    changed_.notify_all();
    co_await pause(executor_);
  }
}

awaitable<void> EtcdLink::take_orders() {
  for (;;) {
    try {
      co_await watch_order();
    } catch (const EtcdError& error) {
      problem_ = error.what();
    }
    co_await pause(executor_);
  }
}

// Until the watch breaks.
awaitable<void> EtcdLink::watch_order() {
  const std::string key = config_.keys.order(membership_.report().id);
  const KeyReading reading = co_await client_.get(key);
  if (reading.entry) take(reading.entry->value);
  KeyRange range{key, false};
  const std::unique_ptr<EtcdWatch> watch = co_await client_.watch(std::move(range), reading.revision + 1);
  for (;;) {
    const WatchNews news = co_await watch->next();
    if (news.kind != WatchNews::Kind::Events) co_return;
    for (const KeyEvent& event : news.events) {
      if (!event.deleted) {
        take(event.value);
        continue;
      }
      // The leader takes this agent for gone: it is to see that it is not.
      sent_version_ = 0;
      session_.changed().notify_all();
    }
  }
}

// What is no order changes nothing: the last one holds.
void EtcdLink::take(const std::string& text) {
  std::optional<Order> order = order_from_json(text);
  if (!order) return;
  order_ = *order;
  membership_.take(std::move(*order));
  changed_.notify_all();
}

}  // namespace cpprun::rendezvous
