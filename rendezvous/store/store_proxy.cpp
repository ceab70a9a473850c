#include "rendezvous/store/store_proxy.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <utility>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/store/dial.hpp"
#include "rendezvous/store/link_frames.hpp"

namespace cpprun::store {
namespace {

using async::Clock;

// With so much unsent, no client is served until it is on its way.
constexpr std::size_t kPauseBytes = std::size_t{1} << 20;
// A reply, and the wake-up that may go before it.
constexpr std::size_t kMaxFrame = kMaxReplyBytes + 1024;
// Of one attempt to connect; between two; and how long it fails before the reason is said, and said again.
constexpr std::chrono::milliseconds kAttemptLimit(5'000);
constexpr std::chrono::milliseconds kFirstPause(20);
constexpr std::chrono::milliseconds kLongestPause(1'000);
constexpr std::chrono::seconds kSayFirst(2);
constexpr std::chrono::seconds kSayEvery(10);
// For the store to take what it is sent.
constexpr std::chrono::milliseconds kStallLimit = kStalledReaderLifetime;

}  // namespace

StoreProxy::StoreProxy(asio::ip::tcp::acceptor acceptor, ProxyConfig config)
    : config_(std::move(config)),
      server_(std::move(acceptor), StoreServerConfig{.limits = config_.limits}, *this),
      led_(server_.executor()),
      to_send_(server_.executor()) {}

StoreProxy::~StoreProxy() = default;

awaitable<void> StoreProxy::run() {
  co_await asio::this_coro::throw_if_cancelled(false);
  server_.pause();
  async::TaskGroup tasks(server_.executor());
  tasks.start(server_.run());
  tasks.start(keep_link());
  co_await tasks.join();
}

// ---- the clients' side

Fault StoreProxy::serve(ConnectionId id, const Request& request, std::string&, Wakeups&) {
  if (id >= by_id_.size()) by_id_.resize(id + 1);
  Client& client = by_id_[id];
  if (client.channel == 0) {
    client.channel = ++last_channel_;
    clients_.emplace(client.channel, id);
  }
  {
    const LinkFrameWriter frame(outbox_, client.channel);
    put_request(outbox_, request);
  }
  put_off();
  return Fault::None;
}

// The store confirms the end behind its last reply.
bool StoreProxy::finish(ConnectionId id) {
  if (id >= by_id_.size() || by_id_[id].channel == 0) return false;
  by_id_[id].finished = true;
  put_link_closed(outbox_, by_id_[id].channel);
  put_off();
  return true;
}

void StoreProxy::forget(ConnectionId id) {
  if (id >= by_id_.size()) return;
  const Client client = std::exchange(by_id_[id], {});
  if (client.channel == 0) return;
  clients_.erase(client.channel);
  if (client.finished) return;
  put_link_closed(outbox_, client.channel);
  put_off();
}

// What has been added to the outbox is sent after this turn.
void StoreProxy::put_off() {
  if (outbox_.size() >= kPauseBytes) server_.pause();
  to_send_.notify_all();
}

// ---- the store's side

void StoreProxy::lead_to(StoreEndpoint store) {
  store_ = std::move(store);
  server_.pause();  // what comes now is the new store's
  close_clients();
  if (link_) link_->cancel();
  led_.notify_all();
}

awaitable<void> StoreProxy::keep_link() {
  co_await asio::this_coro::throw_if_cancelled(false);
  for (;;) {
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return;
    if (!store_) {
      co_await led_.wait();
      continue;
    }
    async::TaskGroup tasks(server_.executor());
    link_ = &tasks;
    tasks.start(carry(tasks));
    try {
      co_await tasks.join();
    } catch (const StoreError& error) {
      spdlog::log(clients_.empty() ? spdlog::level::debug : spdlog::level::warn,
                  "proxy: {}; closing the connections of {} clients", error.what(), clients_.size());
      close_clients();
    }
    link_ = nullptr;
    connection_.reset();
    server_.pause();
  }
}

// Throws StoreError when the connection is lost.
awaitable<void> StoreProxy::carry(async::TaskGroup& tasks) {
  connection_ = co_await connect();
  spdlog::debug("proxy: connected to the store of the workers at {}", to_string(*store_));
  server_.resume();
  tasks.start(listen());
  co_await speak();
}

awaitable<StoreProxy::Connection> StoreProxy::connect() {
  const std::string name = to_string(*store_);
  asio::steady_timer timer(server_.executor());
  std::chrono::milliseconds pause = kFirstPause;
  Clock::time_point say = Clock::now() + kSayFirst;
  for (;;) {
    std::string reason;
    try {
      ConnectionPurpose purpose{Linking{config_.run}, config_.secret};
      const Deadline limit = Deadline::after(kAttemptLimit);
      co_return co_await dial(lookups_, *store_, name, std::move(purpose), limit);
    } catch (const StoreError& error) {
      reason = error.what();
    }
    const Clock::time_point now = Clock::now();
    if (now >= say) {
      spdlog::warn("proxy: {}; the workers' requests wait, trying again", reason);
      say = now + kSayEvery;
    }
    timer.expires_after(pause);
    co_await timer.async_wait(async::use_error);
    pause = std::min(pause * 2, kLongestPause);
  }
}

awaitable<void> StoreProxy::speak() {
  for (;;) {
    while (outbox_.empty()) co_await to_send_.wait();
    const std::string frames = std::exchange(outbox_, {});
    server_.resume();
    const Deadline limit = Deadline::after(kStallLimit);
    co_await connection_->send(frames, limit);
  }
}

awaitable<void> StoreProxy::listen() {
  std::string inbox;
  for (;;) {
    const std::string more = co_await connection_->receive_some();
    if (inbox.empty()) {
      inbox.assign(more, take_frames(more), std::string::npos);
    } else {
      inbox += more;
      inbox.erase(0, take_frames(inbox));
    }
  }
}

// Returns the bytes of those that were whole.
std::size_t StoreProxy::take_frames(std::string_view input) {
  std::size_t taken = 0;
  for (;;) {
    LinkFrame frame;
    const LinkInput next = next_link_frame(input.substr(taken), kMaxFrame, frame);
    if (next == LinkInput::NeedMore) return taken;
    if (next == LinkInput::TooLong) {
      throw StoreError(StoreFailure::Lost,
                       "what answers at " + to_string(*store_) + " is no store of this version of cpprun");
    }
    taken += frame.size;
    const auto client = clients_.find(frame.channel);
    if (client == clients_.end()) continue;  // it has gone meanwhile
    const ConnectionId id = client->second;
    if (frame.closed) {
      server_.close(id, by_id_[id].finished ? Fault::None : Fault::ClosedBehind);
    } else {
      server_.deliver(id, frame.bytes);
    }
  }
}

void StoreProxy::close_clients() {
  while (!clients_.empty()) server_.close(clients_.begin()->second, Fault::ClosedBehind);
  outbox_.clear();
}

}  // namespace cpprun::store
