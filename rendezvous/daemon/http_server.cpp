#include "rendezvous/daemon/http_server.hpp"

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/beast/core/flat_static_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstddef>
#include <utility>

#include "rendezvous/async/deadline.hpp"

namespace cpprun::rendezvous {
namespace {

namespace beast = boost::beast;
namespace http = boost::beast::http;
using asio::ip::tcp;
using async::Clock;
using async::Deadline;

// Of one connection, from its acceptance to the end of its answer.
constexpr std::chrono::seconds kLimit(10);
constexpr std::size_t kMostConnections = 64;
constexpr std::size_t kMostHeaderBytes = 8 * 1024;
constexpr std::chrono::milliseconds kAcceptPause(200);

}  // namespace

HttpServer::HttpServer(tcp::acceptor acceptor, Answer answer)
    : acceptor_(std::move(acceptor)),
      port_(acceptor_.local_endpoint().port()),
      answer_(std::move(answer)),
      fewer_(acceptor_.get_executor()),
      tasks_(acceptor_.get_executor()) {}

awaitable<void> HttpServer::run() {
  co_await asio::this_coro::throw_if_cancelled(false);
  tasks_.start(accept());
  co_await tasks_.join();
}

awaitable<void> HttpServer::accept() {
  for (;;) {
    while (tasks_.size() > kMostConnections) co_await fewer_.wait();
    auto [error, socket] = co_await acceptor_.async_accept(async::use_error);
    if (error == asio::error::operation_aborted) co_return;
    if (error) {  // as at the limit of open files
      const Clock::time_point retry = Clock::now() + kAcceptPause;
      co_await fewer_.wait_until(retry);
    } else {
      tasks_.start(serve(std::move(socket)));
    }
  }
}

awaitable<void> HttpServer::serve(tcp::socket socket) {
  co_await async::before(Deadline::after(kLimit), exchange(socket));
  fewer_.notify_all();
}

awaitable<void> HttpServer::exchange(tcp::socket& socket) {
  beast::flat_static_buffer<kMostHeaderBytes> buffer;
  http::request_parser<http::empty_body> parser;
  parser.header_limit(kMostHeaderBytes);
  const auto [error, read] = co_await http::async_read_header(socket, buffer, parser, async::use_error);
  if (error == http::error::end_of_stream || error == asio::error::operation_aborted) co_return;
  HttpAnswer answer{400, "text/plain; charset=utf-8", "this is no HTTP request that is understood here\n"};
  const http::verb verb = parser.get().method();
  if (!error && verb != http::verb::get && verb != http::verb::head) {
    answer = {405, "text/plain; charset=utf-8", "only GET is served here\n"};
  } else if (!error) {
    const std::string target(parser.get().target());
    answer = answer_(target.substr(0, target.find('?')));
  }
  http::response<http::string_body> response(http::int_to_status(static_cast<unsigned>(answer.status)), 11);
  response.set(http::field::content_type, answer.type);
  response.keep_alive(false);
  response.body() = std::move(answer.body);
  response.prepare_payload();
  http::response_serializer<http::string_body> serializer(response);
  if (verb == http::verb::head) {
    co_await http::async_write_header(socket, serializer, async::use_error);
  } else {
    co_await http::async_write(socket, serializer, async::use_error);
  }
  // The end of what the client still sends is waited for, so that the answer is not lost to a reset.
  async::error_code ignored;
  socket.shutdown(tcp::socket::shutdown_send, ignored);
  std::array<char, 1024> rest;
  for (;;) {
    const auto [over, n] = co_await socket.async_read_some(asio::buffer(rest), async::use_error);
    if (over) co_return;
  }
}

}  // namespace cpprun::rendezvous
