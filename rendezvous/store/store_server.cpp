#include "rendezvous/store/store_server.hpp"

#include <spdlog/spdlog.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <queue>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "rendezvous/async/event.hpp"
#include "rendezvous/async/task_group.hpp"
#include "rendezvous/store/address_text.hpp"
#include "rendezvous/store/refusal_limit.hpp"
#include "rendezvous/store/secret.hpp"
#include "rendezvous/store/socket_options.hpp"
#include "rendezvous/store/store_session.hpp"
#include "rendezvous/store/table_handler.hpp"

namespace cpprun::store {
namespace {

using asio::ip::tcp;
using async::Clock;
using async::error_code;

constexpr std::size_t kReadBytes = 64 * 1024;
constexpr int kEventsPerRound = 256;
constexpr int kRoundsPerTurn = 16;   // before other coroutines of the thread get theirs
constexpr int kAcceptsPerTurn = 64;  // likewise
constexpr std::chrono::seconds kAcceptPause(1);

int open_epoll() {
  const int fd = ::epoll_create1(EPOLL_CLOEXEC);
  if (fd < 0) throw std::system_error(errno, std::system_category(), "epoll_create1");
  return fd;
}

bool is_shortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM || error == ENOSPC;
}

}  // namespace

// The sessions' sockets are watched by an epoll instance of the server's own, of which Asio sees only
// "something is ready": a session then needs no coroutine and no operation in Asio (a sixth of the memory),
// and a request costs two system calls (receive, send) instead of three.
class StoreServer::Impl {
 public:
  // `handler`: null for one with a table.
  Impl(tcp::acceptor acceptor, StoreServerConfig config, RequestHandler* handler)
      : config_(std::move(config)),
        acceptor_(std::move(acceptor)),
        port_(acceptor_.local_endpoint().port()),
        epoll_(acceptor_.get_executor(), open_epoll()),
        input_(kReadBytes),
        table_(config_),
        work_{handler ? *handler : table_, config_, use_, input_},
        room_(acceptor_.get_executor()),
        resumed_(acceptor_.get_executor()),
        earlier_limit_(acceptor_.get_executor()) {
    no_delay(acceptor_.native_handle());
    keep_alive(acceptor_.native_handle());
  }

  awaitable<void> run();
  void stop();
  void start_empty_table();
  void deliver(ConnectionId id, std::string_view bytes) { settle(id, sessions_[id]->deliver(bytes)); }
  void close(ConnectionId id, Fault why);
  void pause() { paused_ = true; }
  void resume();
  asio::any_io_executor executor() { return acceptor_.get_executor(); }
  std::uint16_t port() const { return port_; }
  std::size_t connections() const { return sessions_.size() - free_.size(); }
  StoreUse use() const;

 private:
  awaitable<void> accept_connections();
  awaitable<void> serve_connections();
  awaitable<void> enforce_limits();

  int accept_one();
  void serve_ready();
  void count_turn(Clock::time_point begin);
  void settle(ConnectionId id, StoreSession::State state);
  void tell_woken();
  void watch_limit(ConnectionId id);
  void close(ConnectionId id);
  void hand_over(ConnectionId id);
  void note_fault(const tcp::endpoint& peer, Fault fault);
  void close_all();

  struct Watch {
    Clock::time_point when;
    ConnectionId id;
    bool operator>(const Watch& other) const { return when > other.when; }
  };

  StoreServerConfig config_;
  tcp::acceptor acceptor_;
  std::uint16_t port_;
  asio::posix::stream_descriptor epoll_;
  std::vector<char> input_;
  TableHandler table_;
  StoreUse use_;  // what can only be counted
  SessionWork work_;
  std::vector<std::unique_ptr<StoreSession>> sessions_;  // by connection id; null where free
  std::vector<ConnectionId> free_;
  // Looked at lazily: an entry whose session has gone, or no longer has a limit, is dropped when it comes up.
  std::priority_queue<Watch, std::vector<Watch>, std::greater<>> watches_;
  async::Event room_;     // a connection was closed
  async::Event resumed_;  // no longer paused_
  std::vector<ConnectionId> to_flush_;
  async::Event earlier_limit_;  // the first of watches_ has changed
  std::array<bool, static_cast<std::size_t>(Fault::RefusedTooOften) + 1> logged_{};
  RefusalLimit refusals_;
  bool shortage_logged_ = false;
  bool stopped_ = false;
  bool paused_ = false;
  async::TaskGroup* tasks_ = nullptr;  // while run() runs
};

awaitable<void> StoreServer::Impl::run() {
  co_await asio::this_coro::throw_if_cancelled(false);
  async::TaskGroup tasks(acceptor_.get_executor());
  tasks_ = &tasks;
  if (!stopped_) {
    tasks.start(accept_connections());
    tasks.start(serve_connections());
    tasks.start(enforce_limits());
  }
  co_await tasks.join();
  tasks_ = nullptr;
  close_all();
  error_code ignored;
  acceptor_.close(ignored);
}

void StoreServer::Impl::stop() {
  stopped_ = true;
  if (tasks_) tasks_->cancel();
}

void StoreServer::Impl::start_empty_table() {
  const std::size_t before = connections();
  for (ConnectionId id = 0; id < sessions_.size(); ++id) {
    if (sessions_[id] && sessions_[id]->of_worker()) close(id);
  }
  table_.start_empty();
  spdlog::debug("store: the table is empty; closed {} of their connections", before - connections());
}

awaitable<void> StoreServer::Impl::accept_connections() {
  for (;;) {
    auto [error] = co_await acceptor_.async_wait(tcp::acceptor::wait_read, async::use_error);
    if (error) co_return;
    int failure = 0;
    bool full = false;
    for (int i = 0; i < kAcceptsPerTurn && failure == 0 && !full; ++i) {
      full = connections() >= config_.limits.connections;
      if (!full) failure = accept_one();
    }
    if (failure == EAGAIN) shortage_logged_ = false;
    if (!full && !is_shortage(failure)) continue;
    if (!std::exchange(shortage_logged_, true)) {
      spdlog::info("store: accepting no more connections for now ({} are open): {}", connections(),
                   full ? "that is its limit" : std::system_category().message(failure));
    }
    const Clock::time_point retry = Clock::now() + kAcceptPause;
    co_await room_.wait_until(retry);
  }
}

// Zero, or why there was nothing to accept.
int StoreServer::Impl::accept_one() {
  tcp::endpoint peer;
  socklen_t length = static_cast<socklen_t>(peer.capacity());
  const int fd = ::accept4(acceptor_.native_handle(), peer.data(), &length, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return errno == EAGAIN || is_shortage(errno) ? errno : 0;  // else: that peer has gone again
  peer.resize(length);
  if (refusals_.exceeded(peer.address(), Clock::now())) {
    note_fault(peer, Fault::RefusedTooOften);
    ::close(fd);
    return 0;
  }
  if (free_.empty()) {
    free_.push_back(static_cast<ConnectionId>(sessions_.size()));
    sessions_.emplace_back();
  }
  const ConnectionId id = free_.back();
  ByteStream stream = config_.secret ? config_.secret->accept(fd) : ByteStream(fd);
  std::unique_ptr<StoreSession> session =
      std::make_unique<StoreSession>(std::move(stream), id, peer, Clock::now());
  session->interest = EPOLLIN;
  epoll_event event{.events = EPOLLIN, .data = {.u32 = id}};
  if (::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_ADD, fd, &event) != 0) return errno;
  free_.pop_back();
  sessions_[id] = std::move(session);
  ++use_.accepted;
  watch_limit(id);
  return 0;
}

awaitable<void> StoreServer::Impl::serve_connections() {
  for (;;) {
    auto [error] = co_await epoll_.async_wait(asio::posix::stream_descriptor::wait_read, async::use_error);
    if (error) co_return;
    while (paused_) {
      co_await resumed_.wait();
      const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
      if (state.cancelled() != asio::cancellation_type::none) co_return;
    }
    serve_ready();
  }
}

// One more turn of reading, serving and sending.
void StoreServer::Impl::count_turn(Clock::time_point begin) {
  const std::chrono::nanoseconds took = Clock::now() - begin;
  ++use_.turns;
  use_.turn_time += took;
  for (std::size_t i = 0; i < StoreUse::kTurnBounds.size(); ++i) {
    if (took <= StoreUse::kTurnBounds[i]) ++use_.turns_within[i];
  }
}

void StoreServer::Impl::serve_ready() {
  std::array<epoll_event, kEventsPerRound> events;
  for (int round = 0; round < kRoundsPerTurn; ++round) {
    const int ready = ::epoll_wait(epoll_.native_handle(), events.data(), kEventsPerRound, 0);
    if (ready <= 0) return;
    for (int i = 0; i < ready; ++i) {
      const ConnectionId id = events[i].data.u32;
      const bool writable = (events[i].events & EPOLLOUT) != 0;
      const bool gone = (events[i].events & (EPOLLERR | EPOLLHUP)) != 0;
      StoreSession* session = sessions_[id].get();
      if (!session) continue;  // closed by an earlier event of this round
      const Clock::time_point begin = Clock::now();
      StoreSession::State state = StoreSession::State::Open;
      if (writable && session->wants_write()) state = session->on_writable(work_);
      const bool readable = (events[i].events & EPOLLIN) != 0;
      if (state == StoreSession::State::Open && (readable || gone) && session->wants_read()) {
        state = session->on_readable(work_);
      } else if (gone) {
        state = StoreSession::State::Left;
      }
      if (work_.fault_behind_link != Fault::None) {
        note_fault(session->peer(), std::exchange(work_.fault_behind_link, Fault::None));
      }
      settle(id, state);
      tell_woken();
      count_turn(begin);
      if (paused_) return;
    }
  }
}

// The clients of one link hear of it with one write.
void StoreServer::Impl::tell_woken() {
  for (const ConnectionId id : work_.woken) {
    if (!ChannelIds::holds(id)) {
      settle(id, sessions_[id]->on_woken());
      continue;
    }
    const ChannelIds::Owner& owner = work_.channels.owner(id);
    if (sessions_[owner.link]->on_woken(owner.channel)) to_flush_.push_back(owner.link);
  }
  work_.woken.clear();
  for (const ConnectionId id : to_flush_) settle(id, sessions_[id]->flush());
  to_flush_.clear();
}

void StoreServer::Impl::resume() {
  paused_ = false;
  resumed_.notify_all();
}

// After anything that touched a session: closes it, or watches its socket for what it now needs.
void StoreServer::Impl::settle(ConnectionId id, StoreSession::State state) {
  StoreSession& session = *sessions_[id];
  if (state == StoreSession::State::Opened) return hand_over(id);
  if (state == StoreSession::State::Faulty) note_fault(session.peer(), session.fault());
  if (state == StoreSession::State::Ended || state == StoreSession::State::Faulty) {
    if (!work_.handler.finish(id)) return close(id);
    session.stop_reading();
  } else if (state == StoreSession::State::Left) {
    return close(id);
  }
  const unsigned interest = (session.wants_read() ? EPOLLIN : 0U) | (session.wants_write() ? EPOLLOUT : 0U);
  if (interest == session.interest) return;
  if (session.wants_write() && (session.interest & EPOLLOUT) == 0) watch_limit(id);
  session.interest = interest;
  epoll_event event{.events = interest, .data = {.u32 = id}};
  ::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_MOD, session.fd(), &event);
}

void StoreServer::Impl::watch_limit(ConnectionId id) {
  const std::optional<StoreSession::Limit> limit = sessions_[id]->limit(config_.limits);
  if (!limit) return;
  const bool first = watches_.empty() || limit->when < watches_.top().when;
  watches_.push({limit->when, id});
  if (first) earlier_limit_.notify_all();
}

awaitable<void> StoreServer::Impl::enforce_limits() {
  for (;;) {
    const Clock::time_point next = watches_.empty() ? Clock::time_point::max() : watches_.top().when;
    co_await earlier_limit_.wait_until(next);
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return;
    const Clock::time_point now = Clock::now();
    while (!watches_.empty() && watches_.top().when <= now) {
      const ConnectionId id = watches_.top().id;
      watches_.pop();
      const std::optional<StoreSession::Limit> limit =
          sessions_[id] ? sessions_[id]->limit(config_.limits) : std::optional<StoreSession::Limit>();
      if (!limit) continue;
      if (limit->when > now) {
        watches_.push({limit->when, id});
        continue;
      }
      note_fault(sessions_[id]->peer(), limit->fault);
      close(id);
    }
  }
}

// Once for each cause, so that a flood of bad clients does not become a flood of lines.
void StoreServer::Impl::note_fault(const tcp::endpoint& peer, Fault fault) {
  ++use_.faults;
  if (fault == Fault::NoSecret || fault == Fault::OtherSecret) refusals_.failed(peer.address(), Clock::now());
  const bool first = !std::exchange(logged_[static_cast<std::size_t>(fault)], true);
  const spdlog::level::level_enum level =
      fault == Fault::TorchrunAgent ? spdlog::level::warn : spdlog::level::info;
  spdlog::log(first ? level : spdlog::level::debug, "store: closed the connection of {}: {}{}", to_text(peer),
              describe(fault),
              first ? " (further connections closed for this are logged at level debug)" : "");
}

void StoreServer::Impl::close(ConnectionId id, Fault why) {
  if (why != Fault::None) note_fault(sessions_[id]->peer(), why);
  close(id);
}

void StoreServer::Impl::close(ConnectionId id) {
  sessions_[id]->close(work_);
  const int fd = sessions_[id]->fd();
  // Explicitly: a child between fork and exec may hold the socket open, and with it the registration.
  if (fd >= 0) ::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_DEL, fd, nullptr);
  sessions_[id].reset();
  free_.push_back(id);
  room_.notify_all();
}

void StoreServer::Impl::hand_over(ConnectionId id) {
  ::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_DEL, sessions_[id]->fd(), nullptr);
  StoreSession::Released released = sessions_[id]->release();
  tcp::socket socket(acceptor_.get_executor());
  error_code error;
  socket.assign(acceptor_.local_endpoint().protocol(), released.stream.fd(), error);
  if (error) {
    ::close(released.stream.fd());
  } else {
    config_.desk->take(*released.opening,
                       {std::move(socket), std::move(released.stream), std::move(released.early)});
  }
  close(id);
}

StoreUse StoreServer::Impl::use() const {
  StoreUse use = use_;
  use.connections = connections();
  use.waiting = table_.table().waiting();
  use.keys = table_.table().size();
  use.bytes = table_.table().bytes();
  return use;
}

void StoreServer::Impl::close_all() {
  for (ConnectionId id = 0; id < sessions_.size(); ++id) {
    if (sessions_[id]) close(id);
  }
}

StoreServer::StoreServer(tcp::acceptor acceptor, StoreServerConfig config)
    : impl_(std::make_unique<Impl>(std::move(acceptor), std::move(config), nullptr)) {}
StoreServer::StoreServer(tcp::acceptor acceptor, StoreServerConfig config, RequestHandler& handler)
    : impl_(std::make_unique<Impl>(std::move(acceptor), std::move(config), &handler)) {}
StoreServer::~StoreServer() = default;

awaitable<void> StoreServer::run() {
  return impl_->run();
}
void StoreServer::stop() {
  impl_->stop();
}
void StoreServer::start_empty_table() {
  impl_->start_empty_table();
}
void StoreServer::deliver(ConnectionId client, std::string_view bytes) {
  impl_->deliver(client, bytes);
}
void StoreServer::close(ConnectionId client, Fault why) {
  impl_->close(client, why);
}
void StoreServer::pause() {
  impl_->pause();
}
void StoreServer::resume() {
  impl_->resume();
}
asio::any_io_executor StoreServer::executor() const {
  return impl_->executor();
}
std::uint16_t StoreServer::port() const {
  return impl_->port();
}
std::size_t StoreServer::connections() const {
  return impl_->connections();
}
StoreUse StoreServer::use() const {
  return impl_->use();
}

}  // namespace cpprun::store
