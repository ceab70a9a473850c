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
#include "rendezvous/store/byte_stream.hpp"
#include "rendezvous/store/link_end.hpp"
#include "rendezvous/store/protocol.hpp"
#include "rendezvous/store/session_work.hpp"

namespace cpprun::store {

class StoreSession {
 public:
  using Endpoint = boost::asio::ip::tcp::endpoint;
  enum class State {
    Open,
    Ended,   // the peer sends nothing more
    Left,    // the connection is broken
    Faulty,  // see fault()
    Opened,  // an agent's, to be released
  };

  // Owns the stream's socket.
  StoreSession(ByteStream stream, ConnectionId id, Endpoint peer, async::Clock::time_point accepted);
  ~StoreSession();
  StoreSession(const StoreSession&) = delete;
  StoreSession& operator=(const StoreSession&) = delete;

  // Reads once, serves every complete request and sends the replies.
  State on_readable(SessionWork& work);
  // Sends what is left of earlier replies, then serves the requests that waited for that.
  State on_writable(SessionWork& work);
  // Another client's request has ended this one's wait.
  State on_woken();
  // Likewise, of a client that comes over this link; sent at the next flush(). True where that is not yet
  // asked for.
  bool on_woken(std::uint32_t channel);
  State flush();
  // Sends what somebody else's store has answered to this client.
  State deliver(std::string_view bytes);
  // Before the session goes.
  void close(SessionWork& work);

  // What the peer sends is not looked at any more.
  void stop_reading() { reads_ = false; }

  bool wants_read() const { return reads_ && unsent() < kReplyPauseBytes; }
  bool wants_write() const { return unsent() > 0 || stream_.waits_to_write(); }
  // When this connection is to be closed unless something happens, and for which fault.
  struct Limit {
    async::Clock::time_point when;
    Fault fault;
  };
  std::optional<Limit> limit(const ServerLimits& limits) const;

  bool of_worker() const { return of_worker_; }  // has used the table
  // Gives up the socket of an opened connection.
  struct Released {
    ByteStream stream;
    std::string early;  // the bytes that came behind OPEN
    std::unique_ptr<Opening> opening;
  };
  Released release();
  int fd() const { return stream_.fd(); }
  const Endpoint& peer() const { return peer_; }
  Fault fault() const { return fault_; }  // where Faulty

  unsigned interest = 0;  // the events the server's epoll watches for

 private:
  std::size_t unsent() const { return outbox_.size() - sent_; }
  State serve(std::string_view input, SessionWork& work);
  std::size_t serve_some(std::string_view input, SessionWork& work);
  Fault apply(SessionWork& work);
  Fault open(SessionWork& work);
  Fault link(SessionWork& work);
  State lost();
  void refuse_tls(std::span<char> scratch);
  State send(std::string_view bytes);

  ByteStream stream_;
  bool released_ = false;
  bool of_worker_ = false;
  bool reads_ = true;
  ConnectionId id_;
  std::unique_ptr<Opening> opening_;  // once answered kOpened
  std::unique_ptr<LinkEnd> link_;     // likewise
  Fault fault_ = Fault::None;
  RequestDecoder decoder_;
  std::string inbox_;   // the beginning of a request, or requests that wait for the outbox to empty
  std::string outbox_;  // what could not be sent at once, from sent_ on
  std::size_t sent_ = 0;
  async::Clock::time_point since_;  // accepted; from the first unsent byte on: last progress
  Endpoint peer_;
};

}  // namespace cpprun::store
