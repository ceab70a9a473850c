#include "rendezvous/store/host_lookup.hpp"

#include <memory>
#include <utility>

#include "rendezvous/async/event.hpp"

namespace cpprun::store {
namespace {

using asio::ip::tcp;
using async::error_code;

// Shared with the resolver's handler, which may run after the caller has given up: getaddrinfo cannot be
// cancelled.
struct LookUp {
  explicit LookUp(const asio::any_io_executor& executor) : resolver(executor), ended(executor) {}
  tcp::resolver resolver;
  async::Event ended;
  bool done = false;
  HostAddresses found;
};

}  // namespace

awaitable<HostAddresses> look_up(std::string host, std::uint16_t port, async::Deadline deadline) {
  error_code not_numeric;
  const asio::ip::address numeric = asio::ip::make_address(host, not_numeric);
  if (!not_numeric) co_return HostAddresses{{tcp::endpoint(numeric, port)}, ""};

  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const std::shared_ptr<LookUp> look_up = std::make_shared<LookUp>(executor);
  look_up->resolver.async_resolve(
      host, std::to_string(port), tcp::resolver::numeric_service,
      [look_up](const error_code& error, const tcp::resolver::results_type& results) {
        look_up->done = true;
        if (error) look_up->found.error = error.message();
        for (const tcp::resolver::results_type::value_type& entry : results) {
          look_up->found.endpoints.push_back(entry.endpoint());
        }
        look_up->ended.notify_all();
      });
  if (!look_up->done) co_await look_up->ended.wait_until(deadline.time());
  if (!look_up->done) co_return HostAddresses{{}, "the name was not resolved in time"};
  co_return look_up->found;
}

}  // namespace cpprun::store
