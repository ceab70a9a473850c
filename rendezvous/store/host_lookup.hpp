// The addresses a host name stands for.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "rendezvous/async/deadline.hpp"

namespace cpprun::store {

struct HostAddresses {
  std::vector<asio::ip::tcp::endpoint> endpoints;  // in the order to try them; empty: see `error`
  std::string error;
};

// A numeric address is taken as it is, without asking anybody. A name is looked up on Asio's resolver thread;
// at the deadline the caller goes on and the look-up is left to end by itself (the io_context's destructor
// waits for it).
awaitable<HostAddresses> look_up(std::string host, std::uint16_t port, async::Deadline deadline);

}  // namespace cpprun::store
