// The network's part of StoreClient: nobody there, the wrong one there, silence, death, crossings.
#include "rendezvous/store/store_client.hpp"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <string>

#include "rendezvous/async/task_group.hpp"
#include "tests/store/run_coroutine.hpp"
#include "tests/store/server_thread.hpp"

namespace cpprun::store {
namespace {

using asio::ip::tcp;
using std::chrono::milliseconds;

Deadline far() {
  return Deadline::after(std::chrono::minutes(5));
}
Deadline soon() {
  return Deadline::after(milliseconds(50));
}

tcp::acceptor listen(asio::io_context& context) {
  return bind_acceptor(context, asio::ip::address_v4::loopback(), 0);
}

StoreEndpoint endpoint_of(const tcp::acceptor& acceptor) {
  return {"127.0.0.1", acceptor.local_endpoint().port()};
}

// The failure of a call that must fail, and its sentence.
template <typename T>
StoreError failure_of(asio::io_context& context, awaitable<T> call) {
  try {
    run_coroutine(context, std::move(call));
  } catch (const StoreError& error) {
    return error;
  }
  ADD_FAILURE() << "the call succeeded";
  return StoreError(StoreFailure::Refused, "");
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(StoreEndpoint, IsWrittenAsHostAndPort) {
  EXPECT_EQ(to_string(StoreEndpoint{"host", 29500}), "host:29500");
  EXPECT_EQ(to_string(StoreEndpoint{"::1", 80}), "[::1]:80");
}

TEST(StoreClient, NobodyThereIsAnErrorThatNamesHostAndPort) {
  asio::io_context context;
  std::optional<tcp::acceptor> acceptor = listen(context);
  const StoreEndpoint endpoint = endpoint_of(*acceptor);
  acceptor.reset();
  const StoreError error = failure_of(context, StoreClient::connect(endpoint, soon()));
  EXPECT_EQ(error.failure(), StoreFailure::Unreachable);
  EXPECT_TRUE(contains(error.what(), to_string(endpoint))) << error.what();
  EXPECT_TRUE(contains(error.what(), "Connection refused")) << error.what();
}

TEST(StoreClient, SilenceIsAnErrorAtTheDeadline) {
  asio::io_context context;
  const tcp::acceptor silent = listen(context);
  const StoreError error = failure_of(context, StoreClient::connect(endpoint_of(silent), soon()));
  EXPECT_EQ(error.failure(), StoreFailure::Unreachable);
  EXPECT_TRUE(contains(error.what(), to_string(endpoint_of(silent)))) << error.what();
}

// Answers one connection with fixed bytes: to the hello, and then for each further request of a known size.
struct Exchange {
  std::size_t request_size;
  std::string reply;
};
awaitable<void> play(tcp::acceptor& acceptor, std::vector<Exchange> script) {
  tcp::socket socket = co_await acceptor.async_accept(asio::use_awaitable);
  for (const Exchange& exchange : script) {
    std::string request(exchange.request_size, '\0');
    co_await asio::async_read(socket, asio::buffer(request), asio::use_awaitable);
    co_await asio::async_write(socket, asio::buffer(exchange.reply), asio::use_awaitable);
  }
  // Until the client has gone.
  char bytes[64];
  for (bool open = true; open;) {
    auto [error, n] = co_await socket.async_read_some(asio::buffer(bytes), async::use_error);
    open = !error;
  }
}

const std::size_t kHelloBytes = 10;
std::string hello_reply() {
  return number_bytes(static_cast<std::uint32_t>(::getpid()));
}

awaitable<void> connect_to_a_web_server(tcp::acceptor& acceptor) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  async::TaskGroup group(executor);
  const std::vector<Exchange> script = {{kHelloBytes, "HTTP/1.1 400 Bad Request\r\n"}};
  group.start(play(acceptor, script));
  const StoreEndpoint endpoint = endpoint_of(acceptor);
  StoreFailure failure = StoreFailure::Lost;
  std::string text;
  try {
    co_await StoreClient::connect(endpoint, far());
  } catch (const StoreError& error) {
    failure = error.failure();
    text = error.what();
  }
  EXPECT_EQ(failure, StoreFailure::Refused);
  EXPECT_TRUE(contains(text, to_string(endpoint) + ": what answers there is not a store")) << text;
  co_await group.join();
}

TEST(StoreClient, AnotherServiceIsRecognisedAtOnce) {
  asio::io_context context;
  tcp::acceptor acceptor = listen(context);
  run_coroutine(context, connect_to_a_web_server(acceptor));
}

// Waits for one key with a deadline that passes; the peer answers the CANCEL_WAIT with `reply`.
awaitable<WaitResult> wait_with_cancel_answered_by(tcp::acceptor& acceptor, std::string reply) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  async::TaskGroup group(executor);
  const std::size_t wait_bytes = 1 + 8 + 8 + 2;  // opcode, count, length, /k
  const std::vector<Exchange> script = {
      {kHelloBytes, hello_reply()}, {wait_bytes, ""}, {1, reply}, {1 + 8 + 2, text_bytes("value")}};
  group.start(play(acceptor, script));
  std::unique_ptr<StoreClient> client = co_await StoreClient::connect(endpoint_of(acceptor), far());
  const std::vector<Key> keys = {"k"};
  const WaitResult result = co_await client->wait(keys, soon());
  // On the same connection: nothing of the wait is left on it.
  const Bytes value = co_await client->get("k");
  EXPECT_EQ(value, "value");
  client.reset();
  co_await group.join();
  co_return result;
}

TEST(StoreClient, ADeadlineCancelsTheWait) {
  asio::io_context context;
  tcp::acceptor acceptor = listen(context);
  EXPECT_EQ(run_coroutine(context, wait_with_cancel_answered_by(acceptor, "\1")), WaitResult::TimedOut);
}

TEST(StoreClient, AWakeUpThatCrossesTheCancelIsReady) {
  asio::io_context context;
  tcp::acceptor acceptor = listen(context);
  EXPECT_EQ(run_coroutine(context, wait_with_cancel_answered_by(acceptor, std::string("\0\1", 2))),
            WaitResult::Ready);
}

awaitable<StoreFailure> ask_a_silent_store(tcp::acceptor& acceptor) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  async::TaskGroup group(executor);
  const std::vector<Exchange> script = {{kHelloBytes, hello_reply()}};
  group.start(play(acceptor, script));
  std::unique_ptr<StoreClient> client =
      co_await StoreClient::connect(endpoint_of(acceptor), far(), milliseconds(50));
  StoreFailure failure = StoreFailure::Refused;
  try {
    co_await client->get("k");
  } catch (const StoreError& error) {
    failure = error.failure();
  }
  client.reset();
  co_await group.join();
  co_return failure;
}

TEST(StoreClient, ARequestWithoutAnAnswerEndsInTime) {
  asio::io_context context;
  tcp::acceptor acceptor = listen(context);
  EXPECT_EQ(run_coroutine(context, ask_a_silent_store(acceptor)), StoreFailure::NoAnswer);
}

awaitable<void> expect_lost(StoreClient& client) {
  const std::vector<Key> keys = {"never"};
  StoreFailure failure = StoreFailure::Refused;
  std::string text;
  try {
    co_await client.wait(keys, far());
  } catch (const StoreError& error) {
    failure = error.failure();
    text = error.what();
  }
  EXPECT_EQ(failure, StoreFailure::Lost);
  EXPECT_TRUE(contains(text, to_string(client.endpoint()))) << text;
}

awaitable<void> outlive_the_server(ServerThread& server) {
  const StoreEndpoint endpoint{"localhost", server.port()};
  std::unique_ptr<StoreClient> client = co_await StoreClient::connect(endpoint, far());
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  async::TaskGroup group(executor);
  group.start(expect_lost(*client));
  group.start(expect_lost(*client));
  co_await client->add("n", 1);
  while (server.connections() < 3) co_await client->add("n", 1);
  server.stop();
  co_await group.join();
  StoreFailure failure = StoreFailure::Refused;
  try {
    co_await client->get("n");
  } catch (const StoreError& error) {
    failure = error.failure();
  }
  EXPECT_EQ(failure, StoreFailure::NobodyListens);
}

TEST(StoreClient, TheServersDeathEndsEveryWait) {
  ServerThread server;
  run_coroutine(outlive_the_server(server));
}

awaitable<void> outlive_the_table(ServerThread& server) {
  const StoreEndpoint endpoint{"127.0.0.1", server.port()};
  std::unique_ptr<StoreClient> client = co_await StoreClient::connect(endpoint, far());
  co_await client->set("k", "old");
  server.start_empty_table();
  const Bytes value = co_await client->get("k");
  EXPECT_EQ(value, "");
}

TEST(StoreClient, AnIdleConnectionThatWasClosedIsReplaced) {
  ServerThread server;
  run_coroutine(outlive_the_table(server));
}

awaitable<void> serve_after(tcp::endpoint endpoint, asio::io_context& context,
                            std::unique_ptr<StoreServer>& server, async::TaskGroup& group) {
  asio::steady_timer timer(context, milliseconds(60));
  co_await timer.async_wait(asio::use_awaitable);
  server = std::make_unique<StoreServer>(bind_acceptor(context, endpoint.address(), endpoint.port()));
  group.start(server->run());
}

awaitable<void> connect_before_the_server(asio::io_context& context, tcp::endpoint endpoint) {
  std::unique_ptr<StoreServer> server;
  async::TaskGroup group(context.get_executor());
  group.start(serve_after(endpoint, context, server, group));
  const StoreEndpoint there{"127.0.0.1", endpoint.port()};
  std::unique_ptr<StoreClient> client = co_await StoreClient::connect(there, far());
  const std::int64_t sum = co_await client->add("n", 1);
  EXPECT_EQ(sum, 1);
  server->stop();
  co_await group.join();
}

TEST(StoreClient, WaitsForAServerThatStartsLater) {
  asio::io_context context;
  std::optional<tcp::acceptor> acceptor = listen(context);
  const tcp::endpoint endpoint = acceptor->local_endpoint();
  acceptor.reset();
  run_coroutine(context, connect_before_the_server(context, endpoint));
}

}  // namespace
}  // namespace cpprun::store
