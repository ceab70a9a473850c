#include "rendezvous/council/council_link.hpp"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <utility>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/store/address_text.hpp"
#include "rendezvous/store/dial.hpp"

namespace cpprun::rendezvous {
namespace {

using async::Clock;
using async::Deadline;

// Of one try to reach an endpoint, and between two rounds of them.
constexpr std::chrono::milliseconds kTryLimit(2000);
constexpr std::chrono::milliseconds kPause(100);
// listen() needs no timer for each frame: speak() ends both when nothing has come for too long.
const Deadline kUntilSilent = Deadline::at(Clock::time_point::max());

}  // namespace

CouncilLink::CouncilLink(asio::any_io_executor executor, CouncilLinkConfig config, Membership& membership,
                         async::Event& changed)
    : executor_(executor),
      config_(std::move(config)),
      membership_(membership),
      changed_(changed),
      to_say_(executor),
      said_(executor),
      search_(static_cast<int>(config_.endpoints.size())),
      troubles_(config_.endpoints.size()) {}

awaitable<void> CouncilLink::run() {
  asio::steady_timer timer(executor_);
  while (refusal_.empty()) {
    co_await seek();
    changed_.notify_all();
    timer.expires_after(kPause);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

awaitable<void> CouncilLink::flush(Deadline limit) {
  while (connected_ && sent_version_ != membership_.version() && !limit.passed()) {
    co_await said_.wait_until(limit.time());
  }
}

// One turn around the endpoints; ends when the connection that it led to is lost.
awaitable<void> CouncilLink::seek() {
  // A leader that is only out of touch for a moment is still followed: others count on that.
  if (membership_.knows_leader() && Clock::now() >= membership_.loyal_until()) lose_leader();
  const bool loyal = membership_.knows_leader();
  search_.begin_turn(membership_, Clock::now());
  while (const std::optional<LeaderSearch::Step> step = search_.next_step()) {
    const std::string name = to_string(config_.endpoints[static_cast<std::size_t>(step->endpoint)]);
    try {
      const Deadline whole = Deadline::after(kTryLimit);
      const Deadline limit =
          loyal ? Deadline::earlier(whole, Deadline::at(membership_.loyal_until())) : whole;
      Connection connection = co_await open(step->endpoint, limit);
      const CouncilStatus status = co_await first_status(*connection, limit);
      if (status == CouncilStatus::Leads || step->to_be_counted) {
        troubles_.clear();
        // When its orders hold no more.
        note_trouble(step->endpoint,
                     status == CouncilStatus::Leads ? "the agent at " + name + " does not answer" : "");
        co_await follow(step->endpoint, std::move(connection));
        co_return;
      }
      search_.answered(step->endpoint);
      note_trouble(step->endpoint,
                   status == CouncilStatus::Standby
                       ? "agents wait at " + name +
                             " for more than half of the nodes of the run's last round: if those are lost "
                             "for good, stop the ones that wait"
                       : "no agent leads the run at " + name);
    } catch (const store::StoreError& error) {
      const std::string what = error.what();
      note_trouble(step->endpoint, what);
      // Where others may still come to serve it, the wrong one at an endpoint is only a problem.
      if (contested() || loyal) continue;
      if (error.failure() == store::StoreFailure::Refused) refusal_ = what;
      if (error.failure() == store::StoreFailure::NobodyListens && led_) {
        refusal_ = "the agent that led the run was lost: " + what;
      }
    }
  }
}

awaitable<CouncilLink::Connection> CouncilLink::open(int endpoint, Deadline limit) {
  store::StoreEndpoint where = config_.endpoints[static_cast<std::size_t>(endpoint)];
  const std::string name = to_string(where);
  if (endpoint == config_.own_endpoint) where.host = "127.0.0.1";
  store::ConnectionPurpose purpose{config_.opening, config_.secret};
  co_return co_await store::dial(lookups_, std::move(where), name, std::move(purpose), limit);
}

awaitable<CouncilStatus> CouncilLink::first_status(store::StoreConnection& connection, Deadline limit) {
  const std::string header = co_await connection.receive(kFrameHeader, limit);
  const std::string payload = co_await connection.receive(payload_length(header).value_or(0), limit);
  co_return CouncilStatus{number_in(payload, 0).value_or(0)};
}

awaitable<void> CouncilLink::follow(int endpoint, Connection connection) {
  if (!config_.fixed_address) {
    const bool own = endpoint == config_.own_endpoint;
    membership_.set_address(own ? config_.endpoints[static_cast<std::size_t>(endpoint)].host
                                : connection->local_address());
  }
  connected_ = true;
  sent_version_ = 0;
  echo_ = 0;
  heard_ = Clock::now();
  async::TaskGroup tasks(executor_);
  tasks.start(listen(*connection, endpoint));
  tasks.start(speak(*connection));
  try {
    co_await tasks.join();
  } catch (const store::StoreError& error) {
    note_trouble(endpoint, error.what());
  }
  connected_ = false;
  said_.notify_all();
}

// Throws StoreError when the connection is of no use any more.
awaitable<void> CouncilLink::listen(store::StoreConnection& connection, int endpoint) {
  Deadline to_be_led = Deadline::after(config_.death_limit);
  for (;;) {
    const std::string header = co_await connection.receive(kFrameHeader, kUntilSilent);
    const std::optional<std::size_t> length = payload_length(header);
    if (!length) throw store::StoreError(store::StoreFailure::Lost, "what answers there is no cpprun agent");
    const std::string payload = co_await connection.receive(*length, kUntilSilent);
    heard_ = Clock::now();
    const FrameKind kind{header.front()};
    if (kind == FrameKind::Ack) {
      const bool led = take_ack(payload, endpoint);
      if (led) to_be_led = Deadline::after(config_.death_limit);
      // One that leads no more still answers, for those who wait there to be counted, and gives no lease.
      if (to_be_led.passed()) {
        const std::string why = membership_.order().text;
        lose_leader();
        throw store::StoreError(store::StoreFailure::Lost, why);
      }
    } else if (kind == FrameKind::Order) {
      std::optional<Order> order = order_from_json(payload);
      if (!order) throw store::StoreError(store::StoreFailure::Lost, "what answers there is no cpprun agent");
      const bool steps_down = order->kind == Order::Kind::Elsewhere;
      membership_.take(std::move(*order));
      changed_.notify_all();
      if (steps_down) {
        lose_leader();
        throw store::StoreError(store::StoreFailure::Lost, "no agent leads the run there");
      }
    }
  }
}

// Whether somebody leads there.
bool CouncilLink::take_ack(std::string_view payload, int endpoint) {
  const std::optional<std::int64_t> lease = number_in(payload, 2);
  if (!lease || *lease <= 0) return false;
  membership_.renew(at_ticks(*number_in(payload, 0)),
                    std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(*lease)),
                    Clock::now());
  search_.led_from(endpoint);
  led_ = true;
  beat_interval_ = next_beat_interval(config_.interval, std::chrono::nanoseconds(*lease));
  if (contested()) {
    echo_ = *number_in(payload, 1);
    to_say_.notify_all();
  }
  changed_.notify_all();
  return true;
}

awaitable<void> CouncilLink::speak(store::StoreConnection& connection) {
  Clock::time_point beat{};
  beat_interval_ = config_.interval;
  for (;;) {
    std::string words;
    const Clock::time_point now = Clock::now();
    const int version = membership_.version();
    if (now >= heard_ + config_.death_limit) {
      throw store::StoreError(store::StoreFailure::NoAnswer, "the agent that leads the run does not answer");
    }
    if (sent_version_ != version) put_frame(words, FrameKind::Report, to_json(membership_.report()));
    if (const std::int64_t echo = std::exchange(echo_, 0)) put_frame(words, FrameKind::Echo, &echo, 1);
    if (now >= beat + beat_interval_) {
      const std::int64_t clock = ticks(now);
      put_frame(words, FrameKind::Beat, &clock, 1);
      beat = now;
    }
    if (!words.empty()) co_await connection.send(words, Deadline::after(config_.death_limit));
    sent_version_ = version;
    said_.notify_all();
    const Clock::time_point due = std::min(beat + beat_interval_, heard_ + config_.death_limit);
    if (membership_.version() == version && echo_ == 0) co_await to_say_.wait_until(due);
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return;
  }
}

void CouncilLink::note_trouble(int endpoint, const std::string& phrase) {
  troubles_.note(endpoint, phrase);
  problem_ = troubles_.all();
}

void CouncilLink::lose_leader() {
  membership_.forget_leader();
  changed_.notify_all();
}

}  // namespace cpprun::rendezvous
