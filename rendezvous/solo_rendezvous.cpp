#include "rendezvous/solo_rendezvous.hpp"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <utility>

namespace cpprun::rendezvous {

SoloRendezvous::SoloRendezvous(asio::any_io_executor executor, std::string address)
    : executor_(std::move(executor)), address_(std::move(address)) {}

awaitable<RendezvousInfo> SoloRendezvous::next_rendezvous() {
  ++round_;
  store_.emplace(executor_);
  co_return RendezvousInfo{0, 1, round_, restarts_, address_};
}

awaitable<RoundEvent> SoloRendezvous::round_ended() {
  asio::steady_timer never(co_await asio::this_coro::executor, asio::steady_timer::time_point::max());
  co_await never.async_wait(asio::use_awaitable);  // ends by cancellation only
  co_return RendezvousLost{"the wait for a change was ended"};
}

awaitable<FinishEvent> SoloRendezvous::finish() {
  co_return AllFinished{};
}

awaitable<RoundEnd> SoloRendezvous::end_round(RoundEnd wanted) {
  if (wanted.charged) ++restarts_;
  co_return wanted;
}

awaitable<void> SoloRendezvous::leave(RoundEnd) {
  co_return;
}

awaitable<void> SoloRendezvous::close() {
  co_return;
}

}  // namespace cpprun::rendezvous
