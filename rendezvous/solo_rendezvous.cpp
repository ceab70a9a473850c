#include "rendezvous/solo_rendezvous.hpp"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <utility>

#include "rendezvous/restart_budget.hpp"

namespace cpprun::rendezvous {

SoloRendezvous::SoloRendezvous(std::string address, int workers, int max_restarts, OpenWorkerStore open_store)
    : address_(std::move(address)),
      workers_(workers),
      max_restarts_(max_restarts),
      open_store_(std::move(open_store)) {}

awaitable<std::optional<RendezvousInfo>> SoloRendezvous::next_rendezvous() {
  StoreEndpoint store = open_store_(address_);
  const WorkerSpan workers{0, workers_, 0, workers_};
  co_return RendezvousInfo{0, 1, ++round_, restarts_, address_, workers, std::move(store)};
}

awaitable<RoundEvent> SoloRendezvous::round_ended() {
  asio::steady_timer never(co_await asio::this_coro::executor, asio::steady_timer::time_point::max());
  co_await never.async_wait(asio::use_awaitable);  // ends by cancellation only
  co_return RoundEvent(RoundEnd{});
}

awaitable<FinishEvent> SoloRendezvous::finish() {
  co_return AllFinished{};
}

awaitable<async::Deadline> SoloRendezvous::fenced_before(async::Deadline limit) {
  asio::steady_timer never(co_await asio::this_coro::executor, asio::steady_timer::time_point::max());
  co_await never.async_wait(asio::use_awaitable);  // ends by cancellation only
  co_return limit;
}

awaitable<RoundEnd> SoloRendezvous::settled() {
  charge(end_, max_restarts_ - restarts_);
  if (end_.charged) ++restarts_;
  co_return end_;
}

awaitable<void> SoloRendezvous::close(std::string) {
  co_return;
}

}  // namespace cpprun::rendezvous
