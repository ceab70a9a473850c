#include "rendezvous/council/council.hpp"

#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <cerrno>
#include <utility>

#include "rendezvous/council/council_status.hpp"
#include "rendezvous/store/address_text.hpp"
#include "rendezvous/store/store_connection.hpp"

namespace cpprun::rendezvous {
namespace {

using asio::ip::tcp;
using async::Clock;
using async::Deadline;
using async::error_code;

constexpr std::size_t kReadBytes = 64 * 1024;
// From OPEN to the first report.
constexpr std::chrono::seconds kReportLimit(10);
// An agent that does not take its orders may leave so much of them unread.
constexpr std::size_t kMaxUnsent = 8U << 20;
// For the agents to take the last word.
constexpr std::chrono::milliseconds kFarewellLimit(5000);
constexpr std::chrono::milliseconds kHandOverLimit(10'000);
constexpr std::chrono::milliseconds kHandOverPause(5);
// Between two decisions: so many times what one takes, and the least that is worth a timer.
constexpr int kPausePerDecision = 4;
constexpr std::chrono::microseconds kShortestPause(200);
constexpr std::chrono::milliseconds kLongestPause(20);
// Between two looks for sessions that have ended or say nothing.
constexpr std::chrono::milliseconds kCleanEvery(100);
// Of one look at another endpoint, and between two.
constexpr std::chrono::milliseconds kLookLimit(2000);
constexpr std::chrono::milliseconds kLookPause(300);

}  // namespace

// One agent's connection.
struct Council::Session {
  Session(store::OpenedConnection opened, Clock::time_point now)
      : socket(std::move(opened.socket)),
        stream(std::move(opened.stream)),
        inbox(std::move(opened.early)),
        heard(now) {}

  tcp::socket socket;
  store::ByteStream stream;
  std::string inbox;   // the beginning of a frame
  std::string outbox;  // what could not be sent at once
  std::string held;    // acks that go with the first order
  std::optional<Report> report;
  Clock::time_point heard;
  bool awaits_order = false;  // its first, which is due at the next decision
  bool serving = true;        // a coroutine reads it
  bool sending = false;
  bool ended = false;
};

Council::Council(asio::any_io_executor executor, CouncilConfig config, store::RunDesk& desk)
    : executor_(executor),
      config_(std::move(config)),
      desk_(desk),
      coordinator_(config_.rules, Clock::now()),
      input_(kReadBytes),
      heard_(executor),
      parted_(executor),
      tasks_(executor) {}

Council::~Council() = default;

awaitable<void> Council::run() {
  co_await asio::this_coro::throw_if_cancelled(false);
  tasks_.start(take_connections());
  tasks_.start(decide());
  if (config_.rules.own_endpoint == 0) {
    for (int other = 1; other < config_.rules.endpoints; ++other) tasks_.start(clear_endpoint(other));
  }
  co_await tasks_.join();
}

awaitable<void> Council::take_connections() {
  for (;;) {
    store::OpenedConnection opened = co_await desk_.next();
    const Clock::time_point now = Clock::now();
    sessions_.push_back(std::make_unique<Session>(std::move(opened), now));
    Session& session = *sessions_.back();
    error_code unknown;
    const asio::ip::address own = session.socket.local_endpoint(unknown).address();
    const asio::ip::address plain = unknown ? own : asio::ip::make_address(store::to_text(own));
    if (!unknown && !plain.is_loopback() && !reached_at_) reached_at_ = plain;
    const std::int64_t status = static_cast<std::int64_t>(status_of(coordinator_, own_agent_));
    std::string hello;
    put_frame(hello, FrameKind::Status, &status, 1);
    send(session, hello);
    tasks_.start(serve(session));
  }
}

awaitable<void> Council::decide() {
  asio::steady_timer timer(executor_);
  for (;;) {
    // What has come at the same time is decided on at once.
    co_await asio::post(executor_, asio::use_awaitable);
    const Clock::time_point begin = Clock::now();
    coordinator_.advance(begin);
    const Clock::duration took = Clock::now() - begin;
    for (const std::string& id : coordinator_.take_changed()) send_order(id);
    for (const std::string& notice : coordinator_.take_notices()) spdlog::warn("rendezvous: {}", notice);
    end_silent_sessions(begin);
    const Clock::time_point wake = std::min(coordinator_.next_wake(), patience());
    co_await heard_.wait_until(wake);
    // A decision looks at all agents: where they are many, what comes in a moment shares one.
    const Clock::duration pause = std::min<Clock::duration>(kPausePerDecision * took, kLongestPause);
    if (pause < kShortestPause) continue;
    timer.expires_after(pause);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

// ---- connections

awaitable<void> Council::serve(Session& session) {
  bool open = take_frames(session);
  while (open && !session.ended) {
    const auto [error] = co_await session.socket.async_wait(tcp::socket::wait_read, async::use_error);
    open = !error && !session.ended && read(session);
  }
  end(session, nullptr);
  session.serving = false;
}

// False when nothing more will come.
bool Council::read(Session& session) {
  for (;;) {
    const ssize_t n = session.stream.receive(input_);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    session.inbox.append(input_.data(), static_cast<std::size_t>(n));
    if (!take_frames(session)) return false;
    if (static_cast<std::size_t>(n) < input_.size()) return true;
  }
}

bool Council::take_frames(Session& session) {
  std::size_t taken = 0;
  bool good = true;
  const std::string_view inbox = session.inbox;
  while (good && inbox.size() - taken >= kFrameHeader) {
    const std::optional<std::size_t> length = payload_length(inbox.substr(taken));
    good = length.has_value();
    if (!good || inbox.size() - taken < kFrameHeader + *length) break;
    const FrameKind kind{inbox[taken]};
    good = take_frame(session, kind, inbox.substr(taken + kFrameHeader, *length));
    taken += kFrameHeader + *length;
  }
  if (!good) end(session, "sent something that no cpprun agent of this version sends");
  session.inbox.erase(0, taken);
  return good;
}

bool Council::take_frame(Session& session, FrameKind kind, std::string_view payload) {
  session.heard = Clock::now();
  if (kind == FrameKind::Report) return take_report(session, payload);
  const std::optional<std::int64_t> number = number_in(payload, 0);
  if (!session.report || !number) return false;
  if (kind == FrameKind::Beat) {
    coordinator_.hear(*session.report, session.heard);
    acknowledge(session, *number);
  } else if (kind == FrameKind::Echo) {
    coordinator_.follows(session.report->id, at_ticks(*number));
  } else {
    return false;
  }
  return true;
}

bool Council::take_report(Session& session, std::string_view text) {
  std::optional<Report> report = report_from_json(std::string(text));
  if (!report || (session.report && session.report->id != report->id)) return false;
  const auto known = by_id_.find(report->id);
  const bool is_new = known == by_id_.end() || known->second != &session;
  if (is_new && known != by_id_.end()) end(*known->second, nullptr);
  by_id_[report->id] = &session;
  session.report = std::move(report);
  coordinator_.hear(*session.report, session.heard);
  if (is_new) coordinator_.tell_again(session.report->id);
  session.awaits_order = session.awaits_order || is_new;
  if (session.report->state == AgentState::Gone) {
    by_id_.erase(session.report->id);
    parted_.notify_all();
  }
  heard_.notify_all();
  return true;
}

void Council::acknowledge(Session& session, std::int64_t agent_clock) {
  const Clock::time_point now = Clock::now();
  const Clock::duration lease = std::max(coordinator_.lease(now) - now, Clock::duration::zero());
  const std::int64_t numbers[] = {agent_clock, ticks(now),
                                  std::chrono::duration_cast<std::chrono::nanoseconds>(lease).count()};
  std::string ack;
  put_frame(ack, FrameKind::Ack, numbers, 3);
  if (session.awaits_order) {
    session.held += ack;
  } else {
    send(session, ack);
  }
}

void Council::send_order(const std::string& id) {
  const auto session = by_id_.find(id);
  if (session == by_id_.end()) return;
  session->second->awaits_order = false;
  std::string frames = std::exchange(session->second->held, {});
  put_frame(frames, FrameKind::Order, to_json(coordinator_.order(id)));
  send(*session->second, frames);
}

void Council::send(Session& session, std::string_view bytes) {
  if (session.ended) return;
  if (!session.sending) {
    const ssize_t n = session.stream.send(bytes);
    if (n >= 0) bytes.remove_prefix(static_cast<std::size_t>(n));
    if (n < 0 && errno != EAGAIN && errno != EINTR) return end(session, nullptr);
  }
  if (bytes.empty()) return;
  session.outbox.append(bytes);
  if (session.outbox.size() > kMaxUnsent) return end(session, "does not take its orders");
  if (!std::exchange(session.sending, true)) tasks_.start(send_rest(session));
}

awaitable<void> Council::send_rest(Session& session) {
  while (!session.outbox.empty() && !session.ended) {
    const auto [error] = co_await session.socket.async_wait(tcp::socket::wait_write, async::use_error);
    if (error || session.ended) break;
    const ssize_t n = session.stream.send(session.outbox);
    if (n < 0 && errno != EAGAIN && errno != EINTR) break;
    if (n > 0) session.outbox.erase(0, static_cast<std::size_t>(n));
  }
  session.sending = false;
  if (!session.outbox.empty()) end(session, nullptr);
}

// Its coroutines end by themselves; the session stays until the next look, since they still use it.
void Council::end(Session& session, const char* why) {
  if (std::exchange(session.ended, true)) return;
  error_code ignored;
  const tcp::endpoint peer = session.socket.remote_endpoint(ignored);
  ::shutdown(session.socket.native_handle(), SHUT_RDWR);
  if (why) {
    const bool first = !std::exchange(fault_logged_, true);
    spdlog::log(first ? spdlog::level::info : spdlog::level::debug,
                "rendezvous: closed the connection of {}: it {}", store::to_text(peer), why);
  }
  if (!session.report) return;
  const auto known = by_id_.find(session.report->id);
  if (known == by_id_.end() || known->second != &session) return;
  by_id_.erase(known);
  coordinator_.part(session.report->id);
  parted_.notify_all();
  heard_.notify_all();
}

Clock::time_point Council::silence_limit(const Session& session) const {
  return session.heard +
         (session.report ? 4 * config_.rules.death_limit : std::chrono::milliseconds(kReportLimit));
}

// When the first of the connections is to be ended for its silence.
Clock::time_point Council::patience() const {
  Clock::time_point first = Clock::time_point::max();
  for (const std::unique_ptr<Session>& session : sessions_) {
    if (!session->ended) first = std::min(first, silence_limit(*session));
  }
  return std::max(first, clean_at_);
}

std::size_t Council::connections() const {
  return static_cast<std::size_t>(
      std::count_if(sessions_.begin(), sessions_.end(),
                    [](const std::unique_ptr<Session>& session) { return !session->ended; }));
}

void Council::end_silent_sessions(Clock::time_point now) {
  if (now < clean_at_) return;
  clean_at_ = now + kCleanEvery;
  for (const std::unique_ptr<Session>& session : sessions_) {
    if (session->ended || now < silence_limit(*session)) continue;
    end(*session, session->report ? nullptr : "has not said who it is");
  }
  std::erase_if(sessions_, [](const std::unique_ptr<Session>& session) {
    return session->ended && !session->serving && !session->sending;
  });
}

// ---- other endpoints

awaitable<void> Council::clear_endpoint(int endpoint) {
  asio::steady_timer timer(executor_);
  while (!coordinator_.leads()) {
    const bool nobody = co_await nobody_leads_at(endpoint);
    if (nobody) {
      coordinator_.clear_endpoint(endpoint);
      heard_.notify_all();
      co_return;
    }
    timer.expires_after(kLookPause);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

// For sure: an agent there says so, or nobody listens.
awaitable<bool> Council::nobody_leads_at(int endpoint) {
  const Deadline limit = Deadline::after(kLookLimit);
  const store::StoreEndpoint& where = config_.endpoints[static_cast<std::size_t>(endpoint)];
  const store::HostAddresses host = co_await lookups_.look_up(where.host, where.port, limit);
  bool refused = !host.endpoints.empty();
  const store::ConnectionPurpose purpose{store::Opening{config_.run_id, to_json(config_.rules)},
                                         config_.secret};
  for (const tcp::endpoint& address : host.endpoints) {
    try {
      const std::unique_ptr<store::StoreConnection> connection =
          co_await store::StoreConnection::open(address, store::to_string(where), purpose, limit);
      const std::string header = co_await connection->receive(kFrameHeader, limit);
      const std::size_t length = payload_length(header).value_or(0);
      const std::string payload = co_await connection->receive(length, limit);
      co_return number_in(payload, 0) == static_cast<std::int64_t>(CouncilStatus::Idle);
    } catch (const store::StoreError& error) {
      refused = refused && error.failure() == store::StoreFailure::NobodyListens;
    }
  }
  co_return refused;
}

// ---- the end

awaitable<void> Council::say_farewell(std::string why) {
  asio::steady_timer timer(executor_);
  const Deadline handed_over = Deadline::after(kHandOverLimit);
  while (coordinator_.hands_over() && !handed_over.passed()) {
    timer.expires_after(kHandOverPause);
    co_await timer.async_wait(async::use_error);
  }
  const Deadline limit = Deadline::after(kFarewellLimit);
  coordinator_.abandon(why);
  heard_.notify_all();
  while (!by_id_.empty() && !limit.passed()) co_await parted_.wait_until(limit.time());
}

}  // namespace cpprun::rendezvous
