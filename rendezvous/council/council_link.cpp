#include "rendezvous/council/council_link.hpp"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <utility>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/store/address_text.hpp"
#include "rendezvous/store/host_lookup.hpp"

namespace cpprun::rendezvous {
namespace {

using asio::ip::tcp;
using async::Clock;
using async::Deadline;

// Of one try to reach an endpoint, and between two rounds of them.
constexpr std::chrono::milliseconds kTryLimit(2000);
constexpr std::chrono::milliseconds kPause(100);
// listen() needs no timer for each frame: speak() ends both when nothing has come for too long.
const Deadline kUntilSilent = Deadline::at(Clock::time_point::max());

std::int64_t ticks(Clock::time_point when) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(when.time_since_epoch()).count();
}

}  // namespace

CouncilLink::CouncilLink(asio::any_io_executor executor, CouncilLinkConfig config, Membership& membership,
                         async::Event& changed)
    : executor_(executor),
      config_(std::move(config)),
      membership_(membership),
      changed_(changed),
      to_say_(executor),
      said_(executor) {}

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
  const int endpoints = static_cast<int>(config_.endpoints.size());
  const bool member = membership_.report().run.serial != 0 || membership_.report().offered.serial != 0;
  const int first = loyal ? leader_ : member ? (leader_ + 1) % endpoints : 0;
  int standby = -1;
  for (int i = 0; i < (loyal ? 1 : endpoints); ++i) {
    const int endpoint = (first + i) % endpoints;
    try {
      const Deadline limit = Deadline::after(kTryLimit);
      Connection connection = co_await open(endpoint, limit);
      const CouncilStatus status = co_await first_status(*connection, limit);
      if (status == CouncilStatus::Leads) {
        co_await follow(endpoint, std::move(connection), true);
        co_return;
      }
      if (standby < 0) standby = endpoint;
      problem_ =
          "no agent leads the run at " + to_string(config_.endpoints[static_cast<std::size_t>(endpoint)]);
    } catch (const store::StoreError& error) {
      problem_ = error.what();
      // Where others may still come to serve it, the wrong one at an endpoint is only a problem.
      if (error.failure() == store::StoreFailure::Refused && !contested()) refusal_ = problem_;
    }
  }
  // To be counted there with others that look for a leader.
  if (standby < 0 || !member || loyal) co_return;
  try {
    Connection connection = co_await open(standby, Deadline::after(kTryLimit));
    co_await first_status(*connection, Deadline::after(kTryLimit));
    co_await follow(standby, std::move(connection), false);
  } catch (const store::StoreError& error) {
    problem_ = error.what();
  }
}

awaitable<CouncilLink::Connection> CouncilLink::open(int endpoint, Deadline limit) {
  store::StoreEndpoint where = config_.endpoints[static_cast<std::size_t>(endpoint)];
  const std::string name = to_string(where);
  if (endpoint == config_.own_endpoint) where.host = "127.0.0.1";
  const store::HostAddresses host = co_await store::look_up(where.host, where.port, limit);
  std::string reason = host.error;
  store::StoreFailure failure = store::StoreFailure::Unreachable;
  for (const tcp::endpoint& address : host.endpoints) {
    try {
      co_return co_await store::StoreConnection::open(address, name, config_.run_id, limit);
    } catch (const store::StoreError& error) {
      reason = error.what();
      failure = error.failure();
      if (failure == store::StoreFailure::Refused) break;
    }
  }
  throw store::StoreError(failure, reason);
}

awaitable<CouncilStatus> CouncilLink::first_status(store::StoreConnection& connection, Deadline limit) {
  const std::string header = co_await connection.receive(kFrameHeader, limit);
  const std::string payload = co_await connection.receive(payload_length(header).value_or(0), limit);
  co_return CouncilStatus{number_in(payload, 0).value_or(0)};
}

awaitable<void> CouncilLink::follow(int endpoint, Connection connection, bool leads) {
  if (!config_.fixed_address) {
    const bool own = endpoint == config_.own_endpoint;
    membership_.set_address(own ? config_.endpoints[static_cast<std::size_t>(endpoint)].host
                                : connection->local_address());
  }
  connected_ = true;
  sent_version_ = 0;
  echo_ = 0;
  heard_ = Clock::now();
  problem_.clear();
  async::TaskGroup tasks(executor_);
  tasks.start(listen(*connection, endpoint, leads));
  tasks.start(speak(*connection));
  try {
    co_await tasks.join();
  } catch (const store::StoreError& error) {
    problem_ = error.what();
  }
  connected_ = false;
  said_.notify_all();
}

// Throws StoreError when the connection is of no use any more.
awaitable<void> CouncilLink::listen(store::StoreConnection& connection, int endpoint, bool leads) {
  const Deadline to_be_led = Deadline::after(config_.death_limit);
  for (;;) {
    const std::string header = co_await connection.receive(kFrameHeader, kUntilSilent);
    const std::optional<std::size_t> length = payload_length(header);
    if (!length) throw store::StoreError(store::StoreFailure::Lost, "what answers there is no cpprun agent");
    const std::string payload = co_await connection.receive(*length, kUntilSilent);
    heard_ = Clock::now();
    const FrameKind kind{header.front()};
    if (kind == FrameKind::Ack) {
      take_ack(payload, endpoint);
      leads = leads || membership_.knows_leader();
      if (!leads && to_be_led.passed()) {
        throw store::StoreError(store::StoreFailure::Lost, membership_.order().text);
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

void CouncilLink::take_ack(std::string_view payload, int endpoint) {
  const std::optional<std::int64_t> lease = number_in(payload, 2);
  if (!lease || *lease <= 0) return;
  const std::chrono::nanoseconds sent(*number_in(payload, 0));
  const Clock::time_point when(std::chrono::duration_cast<Clock::duration>(sent));
  const bool is_news = !membership_.knows_leader();
  membership_.renew(when,
                    std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::nanoseconds(*lease)),
                    Clock::now());
  leader_ = endpoint;
  // A leader that takes agents for dead sooner than this node's user has said is beaten for more often.
  beat_interval_ = std::min(config_.interval, std::chrono::milliseconds(*lease / 3'000'000));
  if (contested()) {
    echo_ = *number_in(payload, 1);
    to_say_.notify_all();
  }
  if (is_news) changed_.notify_all();  // who waits for the lease's end looks at the lease then
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

void CouncilLink::lose_leader() {
  membership_.forget_leader();
  changed_.notify_all();
}

}  // namespace cpprun::rendezvous
