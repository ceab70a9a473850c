// One decoded request applied to a table: the reply's bytes and whom it wakes. Pure.
#pragma once

#include <cstddef>
#include <string>

#include "rendezvous/store/protocol.hpp"
#include "rendezvous/store/store_table.hpp"

namespace cpprun::store {

// Appends the reply to `reply` and the other connections whose wait has ended to `woken`: each of these is to
// be sent one byte kStopWaiting. If the request ends a wait of its own connection, that byte comes first in
// `reply`. A fault means that the connection must be closed; nothing was appended then.
Fault apply_request(StoreTable& table, ConnectionId connection, const Request& request,
                    std::size_t max_reply_bytes, std::string& reply, Wakeups& woken);

}  // namespace cpprun::store
