#include "rendezvous/etcd/etcd_council.hpp"

#include <spdlog/spdlog.h>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <utility>

namespace cpprun::rendezvous {
namespace {

using async::Clock;
using async::Deadline;

// Between two candidatures.
constexpr std::chrono::milliseconds kPause(100);
// For what is still to be put, and then for the end of the session.
constexpr std::chrono::milliseconds kFarewellLimit(2000);

}  // namespace

EtcdCouncil::EtcdCouncil(asio::any_io_executor executor, EtcdCouncilConfig config, EtcdClient& client,
                         EtcdSession& session)
    : executor_(executor), config_(std::move(config)), client_(client), session_(session), tasks_(executor) {}

awaitable<void> EtcdCouncil::run() {
  co_await asio::this_coro::throw_if_cancelled(false);
  tasks_.start(session_.run());
  tasks_.start(stand());
  co_await tasks_.join();
}

awaitable<void> EtcdCouncil::stand() {
  asio::steady_timer timer(executor_);
  for (;;) {
    while (!session_.holds(Clock::now())) co_await session_.changed().wait();
    try {
      const bool vacant = co_await stand_once();
      if (vacant) continue;
    } catch (const EtcdError& error) {
      spdlog::debug("rendezvous: {}", error.what());
    }
    timer.expires_after(kPause);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

// True if nobody leads any more.
awaitable<bool> EtcdCouncil::stand_once() {
  const LeaseId lease = session_.lease();
  const CreateResult result = co_await client_.create(config_.keys.leader(), config_.name, lease);
  // One may also have won unawares, or lead already.
  if (result.holder.lease == lease) {
    co_await lead(result.holder.created);
  } else if (result.holder.lease == kNoLease) {
    // No agent has put that, and nobody's end would remove it.
    Fence fence{config_.keys.leader(), result.holder.created};
    co_await client_.erase_fenced(config_.keys.leader(), std::move(fence));
  } else {
    const bool vacant = co_await await_vacancy(result.revision + 1);
    co_return vacant;
  }
  co_return false;
}

awaitable<void> EtcdCouncil::lead(Revision created) {
  spdlog::debug("rendezvous: this agent leads the run");
  Fence fence{config_.keys.leader(), created};
  const std::shared_ptr<EtcdReign> reign = std::make_shared<EtcdReign>(
      executor_, client_, session_, config_.keys, config_.rules, std::move(fence));
  reign_ = reign;
  co_await reign->run();
}

// False when the watch has broken.
awaitable<bool> EtcdCouncil::await_vacancy(Revision from) {
  KeyRange range{config_.keys.leader(), false};
  const std::unique_ptr<EtcdWatch> watch = co_await client_.watch(std::move(range), from);
  for (;;) {
    const WatchNews news = co_await watch->next();
    if (news.kind != WatchNews::Kind::Events) co_return false;
    for (const KeyEvent& event : news.events) {
      if (event.deleted) co_return true;
    }
  }
}

awaitable<void> EtcdCouncil::say_farewell(std::string) {
  co_await asio::this_coro::throw_if_cancelled(false);
  const std::shared_ptr<EtcdReign> reign = reign_;  // the next one may take its place meanwhile
  if (reign) co_await reign->settle(Deadline::after(kFarewellLimit));
  tasks_.cancel();
  try {
    co_await tasks_.join();
  } catch (const std::exception& error) {
    spdlog::debug("rendezvous: {}", error.what());
  }
  co_await session_.end(Deadline::after(kFarewellLimit));
}

}  // namespace cpprun::rendezvous
