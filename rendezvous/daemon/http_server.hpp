// A small HTTP server for those who watch a daemon: one GET a connection, answered from memory.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <string>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/async/tokens.hpp"

namespace cpprun::rendezvous {

struct HttpAnswer {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  // `answer`: to a GET of that path.
  using Answer = std::function<HttpAnswer(const std::string& path)>;

  HttpServer(asio::ip::tcp::acceptor acceptor, Answer answer);

  // Until cancelled.
  awaitable<void> run();
  std::uint16_t port() const { return port_; }

 private:
  awaitable<void> accept();
  awaitable<void> serve(asio::ip::tcp::socket socket);
  awaitable<void> exchange(asio::ip::tcp::socket& socket);

  asio::ip::tcp::acceptor acceptor_;
  std::uint16_t port_;
  Answer answer_;
  async::Event fewer_;  // a connection has ended
  async::TaskGroup tasks_;
};

}  // namespace cpprun::rendezvous
