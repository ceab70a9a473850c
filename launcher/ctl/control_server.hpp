// The agent's end of the control socket: one request a connection, a line of JSON, answered by another.
//
//   {"request":"status"}   ->  {"protocol":1,"status":{...}}
//   {"request":"stacks"}   ->  {"protocol":1,"stacks":{...}}
//   anything else          ->  {"protocol":1,"error":"a sentence"}
//
// Whoever is not this user or root is closed without an answer. Nothing that a client does, or leaves undone,
// costs the agent more than a connection for a moment.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "launcher/process/worker_streams.hpp"
#include "rendezvous/async/task_group.hpp"
#include "rendezvous/async/tokens.hpp"

namespace cpprun::launcher {

// Each gives the text of a JSON object.
struct ControlAnswers {
  std::function<std::string()> status;
  // Cancel-safe; never more than one at a time: who asks meanwhile shares its outcome.
  std::function<awaitable<std::string>()> stacks;
};

struct ControlLimits {
  std::size_t connections = 64;  // at once; further ones wait
  std::size_t request_bytes = 4096;
  std::chrono::milliseconds request{2'000};   // from the connection to the end of its line
  std::chrono::milliseconds answer{120'000};  // of one capture
  std::chrono::milliseconds reply{10'000};    // for the client to take it
};

class ControlServer {
 public:
  // `listener` is a listening socket, see listen_at().
  ControlServer(asio::io_context& io, FileDescriptor listener, ControlAnswers answers,
                ControlLimits limits = {});

  // Until cancelled. Trouble is logged, never thrown.
  awaitable<void> run();

 private:
  using Socket = asio::local::stream_protocol::socket;

  awaitable<void> accept();
  awaitable<void> serve(Socket socket);
  awaitable<void> exchange(Socket& socket);
  awaitable<std::optional<std::string>> request_line(Socket& socket);
  awaitable<std::string> reply_to(std::string line);
  awaitable<std::string> shared_stacks();
  awaitable<std::string> stacks();

  asio::local::stream_protocol::acceptor acceptor_;
  ControlAnswers answers_;
  ControlLimits limits_;
  // A capture that is going on, and its answer for all who ask meanwhile; null: there is none.
  struct Capture {
    explicit Capture(const asio::any_io_executor& executor) : answered(executor) {}
    std::optional<std::string> answer;
    async::Event answered;
  };
  std::shared_ptr<Capture> capture_;
  async::Event fewer_;  // a connection has ended
  async::TaskGroup tasks_;
};

}  // namespace cpprun::launcher
