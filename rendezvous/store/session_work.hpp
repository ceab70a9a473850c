// What the sessions of a server share while one of them works.
#pragma once

#include <span>
#include <string>

#include "rendezvous/store/channel_ids.hpp"
#include "rendezvous/store/request_handler.hpp"
#include "rendezvous/store/server_config.hpp"
#include "rendezvous/store/store_use.hpp"

namespace cpprun::store {

struct SessionWork {
  RequestHandler& handler;
  const StoreServerConfig& config;
  StoreUse& use;
  std::span<char> input;  // what one read may fill
  std::string reply{};    // of the requests at hand; empty between calls
  Request request{};
  ChannelIds channels{};
  // For the server to see to:
  Wakeups woken{};                        // other clients
  Fault fault_behind_link = Fault::None;  // for which one client of a link was closed
};

}  // namespace cpprun::store
