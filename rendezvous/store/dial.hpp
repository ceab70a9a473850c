// A connection to a store that is known by its host's name or address.
#pragma once

#include <memory>
#include <string>

#include "rendezvous/store/host_lookup.hpp"
#include "rendezvous/store/store_client.hpp"
#include "rendezvous/store/store_connection.hpp"

namespace cpprun::store {

// One attempt at each of the host's addresses, in order; a refusal ends it. `name` is the store's in error
// messages. Throws StoreError as StoreConnection::open does, of the last address.
awaitable<std::unique_ptr<StoreConnection>> dial(HostLookups& lookups, StoreEndpoint where, std::string name,
                                                 ConnectionPurpose purpose, Deadline deadline);

}  // namespace cpprun::store
