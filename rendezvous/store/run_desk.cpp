#include "rendezvous/store/run_desk.hpp"

#include <boost/asio/error.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/system/system_error.hpp>

#include "rendezvous/store/protocol.hpp"

namespace cpprun::store {

std::uint8_t RunDesk::admit(const Opening& opening) {
  return opening.run == run_ ? kOpened : kOtherRun;
}

void RunDesk::take(const Opening&, OpenedConnection&& connection) {
  waiting_.push_back(std::move(connection));
  arrived_.notify_all();
}

awaitable<OpenedConnection> RunDesk::next() {
  while (waiting_.empty()) {
    co_await arrived_.wait();
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) {
      throw boost::system::system_error(asio::error::operation_aborted);
    }
  }
  OpenedConnection connection = std::move(waiting_.front());
  waiting_.pop_front();
  co_return connection;
}

}  // namespace cpprun::store
