#include "rendezvous/store/dial.hpp"

namespace cpprun::store {

awaitable<std::unique_ptr<StoreConnection>> dial(HostLookups& lookups, StoreEndpoint where, std::string name,
                                                 ConnectionPurpose purpose, Deadline deadline) {
  const HostAddresses host = co_await lookups.look_up(where.host, where.port, deadline);
  std::string reason = "cannot look up " + where.host + ": " + host.error;
  StoreFailure failure = StoreFailure::Unreachable;
  for (const asio::ip::tcp::endpoint& address : host.endpoints) {
    try {
      co_return co_await StoreConnection::open(address, name, purpose, deadline);
    } catch (const StoreError& error) {
      reason = error.what();
      failure = error.failure();
      if (failure == StoreFailure::Refused) break;
    }
  }
  throw StoreError(failure, reason);
}

}  // namespace cpprun::store
