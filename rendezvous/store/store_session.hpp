// One client's connection at the server: what lies between its socket and the table. Plain state, no
// coroutine: the server tells it when its socket is ready, so an idle connection costs little more than this
// object.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/async/clock.hpp"
#include "rendezvous/store/protocol.hpp"
#include "rendezvous/store/server_config.hpp"
#include "rendezvous/store/store_table.hpp"
#include "rendezvous/store/store_use.hpp"

namespace cpprun::store {

// What the sessions of a server share while one of them works.
struct SessionWork {
  StoreTable& table;
  const StoreServerConfig& config;
  StoreUse& use;
  std::span<char> input;  // what one read may fill
  std::string reply;      // of the requests at hand; empty between calls
  Request request;
  Wakeups woken;  // other connections, for the server to tell
};

class StoreSession {
 public:
  using Endpoint = boost::asio::ip::tcp::endpoint;
  enum class State {
    Open,
    Left,    // the peer has closed or reset the connection
    Faulty,  // see fault()
    Opened,  // an agent's, to be released
  };

  // Owns `fd`, a non-blocking socket.
  StoreSession(int fd, ConnectionId id, Endpoint peer, async::Clock::time_point accepted);
  ~StoreSession();
  StoreSession(const StoreSession&) = delete;
  StoreSession& operator=(const StoreSession&) = delete;

  // Reads once, serves every complete request and sends the replies.
  State on_readable(SessionWork& work);
  // Sends what is left of earlier replies, then serves the requests that waited for that.
  State on_writable(SessionWork& work);
  // Another connection's request has ended this one's wait.
  State on_woken();

  bool wants_read() const { return unsent() < kReplyPauseBytes; }
  bool wants_write() const { return unsent() > 0; }
  // When this connection is to be closed unless something happens, and for which fault.
  struct Limit {
    async::Clock::time_point when;
    Fault fault;
  };
  std::optional<Limit> limit(const ServerLimits& limits) const;

  bool of_worker() const { return of_worker_; }  // has used the table
  // Gives up the socket of an opened connection.
  struct Released {
    int fd;
    std::string early;  // the bytes that came behind OPEN
    std::unique_ptr<Opening> opening;
  };
  Released release();
  int fd() const { return fd_; }
  const Endpoint& peer() const { return peer_; }
  Fault fault() const { return fault_; }  // where Faulty

  unsigned interest = 0;  // the events the server's epoll watches for

 private:
  std::size_t unsent() const { return outbox_.size() - sent_; }
  State serve(std::string_view input, SessionWork& work);
  std::size_t serve_some(std::string_view input, SessionWork& work);
  Fault apply(SessionWork& work);
  Fault open(SessionWork& work);
  State send(std::string_view bytes);

  int fd_;
  ConnectionId id_;
  std::unique_ptr<Opening> opening_;  // once answered kOpened
  bool of_worker_ = false;
  Fault fault_ = Fault::None;
  RequestDecoder decoder_;
  std::string inbox_;   // the beginning of a request, or requests that wait for the outbox to empty
  std::string outbox_;  // what could not be sent at once, from sent_ on
  std::size_t sent_ = 0;
  async::Clock::time_point since_;  // accepted; from the first unsent byte on: last progress
  Endpoint peer_;
};

}  // namespace cpprun::store
