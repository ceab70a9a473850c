// Where the agents of one run arrive.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

#include "rendezvous/async/event.hpp"
#include "rendezvous/async/tokens.hpp"
#include "rendezvous/store/agent_desk.hpp"
#include "rendezvous/store/byte_stream.hpp"

namespace cpprun::store {

// A connection that was answered kOpened.
struct OpenedConnection {
  asio::ip::tcp::socket socket;
  ByteStream stream;  // over the socket
  std::string early;  // what the agent has sent since
};

// Keeps their connections until they are asked for.
class RunDesk : public AgentDesk {
 public:
  RunDesk(asio::any_io_executor executor, std::string run)
      : run_(std::move(run)), arrived_(std::move(executor)) {}

  std::uint8_t admit(const Opening& opening) override;
  void take(const Opening& opening, OpenedConnection&& connection) override;

  // The next connection. Throws operation_aborted when cancelled; none is lost by that.
  awaitable<OpenedConnection> next();

 private:
  std::string run_;
  std::deque<OpenedConnection> waiting_;
  async::Event arrived_;
};

}  // namespace cpprun::store
