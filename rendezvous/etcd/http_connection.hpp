// One HTTP/1.1 connection to one endpoint of etcd, plain or over TLS, used for one request at a time.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <memory>
#include <string>

#include "rendezvous/async/deadline.hpp"
#include "rendezvous/etcd/etcd_error.hpp"

namespace cpprun::rendezvous {

struct HttpReply {
  unsigned status = 0;
  std::string body;
};

// Whom to connect to, and how it is called.
struct HttpPeer {
  std::string host;  // as the user wrote it: the certificate must be for it
  std::string name;  // host:port, for messages
  asio::ip::tcp::endpoint address;
};

class HttpConnection {
 public:
  // `tls`: null for plain HTTP, else it must outlive the connection. A connection whose peer vanished is
  // noticed after `silence_limit`, in steps of a second. Throws EtcdError, Unreachable or Refused.
  static awaitable<std::unique_ptr<HttpConnection>> open(HttpPeer peer, asio::ssl::context* tls,
                                                         std::chrono::milliseconds silence_limit,
                                                         async::Deadline deadline);
  virtual ~HttpConnection() = default;

  // Posts a JSON body. Each throws EtcdError(NoAnswer or Refused), after which the connection is of no use;
  // so it is after being cancelled.
  virtual awaitable<HttpReply> ask(std::string target, std::string body, async::Deadline deadline) = 0;
  // The same for a reply that comes bit by bit: returns when its head has come, with an empty body if all is
  // well and with the whole one if the status is an error. Then `more` gives what comes next, without a
  // deadline; empty is the end.
  virtual awaitable<HttpReply> ask_stream(std::string target, std::string body, async::Deadline deadline) = 0;
  virtual awaitable<std::string> more() = 0;

  // Whether it can carry another request: the last reply allows it, and the peer has not closed it since.
  virtual bool usable() = 0;
  // Of this machine, on the way to the peer.
  virtual std::string local_address() const = 0;
  // Ends what is being waited for with NoAnswer, for this reason.
  virtual void cut(const std::string& reason) = 0;
};

}  // namespace cpprun::rendezvous
