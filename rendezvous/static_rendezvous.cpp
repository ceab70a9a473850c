#include "rendezvous/static_rendezvous.hpp"

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>

namespace cpprun::rendezvous {

awaitable<RendezvousInfo> StaticRendezvous::next_rendezvous() {
  co_return RendezvousInfo{0, 1, rounds_++};
}

awaitable<std::variant<MembershipChanged, RendezvousLost>> StaticRendezvous::membership_changed() {
  asio::steady_timer never(co_await asio::this_coro::executor, asio::steady_timer::time_point::max());
  co_await never.async_wait(asio::use_awaitable);  // ends by cancellation only
  co_return RendezvousLost{"the wait for a change was ended"};
}

}  // namespace cpprun::rendezvous
