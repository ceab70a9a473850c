// Where a store's port leads to something else: an agent names its run in an OPEN request, and its connection
// leaves the store.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/async/event.hpp"
#include "rendezvous/async/tokens.hpp"

namespace cpprun::store {

// What an agent says in OPEN.
struct Opening {
  std::string run;
  std::string rules;  // of the run, as the agent would have them; the store does not read them
};

// A connection that was answered kOpened.
struct OpenedConnection {
  asio::ip::tcp::socket socket;
  std::string early;  // what the agent has sent since
};

// Who answers OPEN. Called by the server, on its thread.
class AgentDesk {
 public:
  virtual ~AgentDesk() = default;

  // The answer: kOpened, or why not.
  virtual std::uint8_t admit(const Opening& opening) = 0;
  // After kOpened, in the same turn of the loop.
  virtual void take(const Opening& opening, OpenedConnection connection) = 0;
};

// The desk of one run: keeps its connections until they are asked for.
class RunDesk : public AgentDesk {
 public:
  RunDesk(asio::any_io_executor executor, std::string run)
      : run_(std::move(run)), arrived_(std::move(executor)) {}

  std::uint8_t admit(const Opening& opening) override;
  void take(const Opening& opening, OpenedConnection connection) override;

  // The next connection. Throws operation_aborted when cancelled; none is lost by that.
  awaitable<OpenedConnection> next();

 private:
  std::string run_;
  std::deque<OpenedConnection> waiting_;
  async::Event arrived_;
};

}  // namespace cpprun::store
