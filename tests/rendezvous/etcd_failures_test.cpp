// The client of etcd when its server dies, freezes, is alone, or is none at all.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/write.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "rendezvous/async/task_group.hpp"
#include "tests/rendezvous/etcd_calls.hpp"
#include "tests/rendezvous/etcd_server.hpp"
#include "tests/store/run_coroutine.hpp"

namespace cpprun::rendezvous {
namespace {

using asio::ip::tcp;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = WatchNews::Kind;

// The server is frozen first, so that the request is pending when it dies.
awaitable<void> killed(EtcdServer& server) {
  EtcdClient client({at(server.port())}, patient());
  co_await client.put("key", "value");
  const std::unique_ptr<EtcdWatch> watch = co_await client.watch(the_key("key"), 0);
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  server.signal(SIGSTOP);
  Failed request;
  WatchNews news;
  async::TaskGroup pending(executor);
  pending.start(fail_in(client, request));
  pending.start(next_in(*watch, news));
  server.signal(SIGKILL);
  co_await pending.join();
  EXPECT_EQ(request.failure, EtcdFailure::NoAnswer) << request.what;
  EXPECT_THAT(request.what, HasSubstr(where(server.port())));
  EXPECT_EQ(news.kind, Kind::Broken);
  EXPECT_THAT(news.reason, HasSubstr(where(server.port())));

  const Failed next = co_await failure_of(client, "key");
  EXPECT_EQ(next.failure, EtcdFailure::Unreachable);
  EXPECT_THAT(next.what, AllOf(HasSubstr(where(server.port())), HasSubstr("refused")));
}
TEST(EtcdFailuresTest, AServerThatDiesEndsARequestAndAWatch) {
  EtcdServer server;
  run_coroutine(killed(server));
}

// Two servers that know nothing of each other stand in for two members.
awaitable<void> frozen(EtcdServer& first, EtcdServer& second) {
  EtcdClient to_first({at(first.port())}, patient());
  co_await to_first.put("key", "first");
  EtcdClient to_second({at(second.port())}, patient());
  co_await to_second.put("key", "second");
  EtcdOptions options = hasty();
  options.request_limit = seconds(2);
  EtcdClient client({at(first.port()), at(second.port())}, options);
  const std::unique_ptr<EtcdWatch> watch = co_await client.watch(the_key("key"), 0);
  first.signal(SIGSTOP);
  const Failed request = co_await failure_of(client, "key");
  EXPECT_EQ(request.failure, EtcdFailure::NoAnswer) << request.what;
  EXPECT_THAT(request.what, AllOf(HasSubstr(where(first.port())), HasSubstr("time limit")));
  const WatchNews news = co_await watch->next();
  EXPECT_EQ(news.kind, Kind::Broken);
  EXPECT_THAT(news.reason, AllOf(HasSubstr(where(first.port())), HasSubstr("no answer in time")));
  const KeyReading elsewhere = co_await client.get("key");
  EXPECT_EQ(elsewhere.entry.value().value, "second");
}
TEST(EtcdFailuresTest, AFrozenServerIsLeftForTheNextEndpoint) {
  EtcdServer first;
  EtcdServer second;
  run_coroutine(frozen(first, second));
}

// Of two members one is no majority.
awaitable<void> lonely(EtcdServer& one, EtcdServer& other) {
  EtcdClient client({at(one.port())}, patient());
  co_await client.put("key", "value");
  const std::unique_ptr<EtcdWatch> watch = co_await client.watch(the_key("key"), 0);
  other.signal(SIGKILL);
  const WatchNews news = co_await watch->next();
  EXPECT_EQ(news.kind, Kind::Broken);
  EXPECT_THAT(news.reason, HasSubstr("no leader"));
  const Failed request = co_await failure_of(client, "key");
  EXPECT_EQ(request.failure, EtcdFailure::NoAnswer);
  EXPECT_THAT(request.what, HasSubstr("no leader"));
}
TEST(EtcdFailuresTest, AMemberWithoutItsClusterEndsAWatch) {
  EtcdServerOptions one;
  EtcdServerOptions two;
  one.name = "one";
  two.name = "two";
  one.peer_port = free_port();
  two.peer_port = free_port();
  one.cluster = two.cluster = "one=http://" + where(one.peer_port) + ",two=http://" + where(two.peer_port);
  EtcdServer first(one);
  EtcdServer second(two);
  run_coroutine(lonely(first, second));
}

// A listener that answers every connection's first bytes with its own, or with nothing, and hangs up.
class OddServer {
 public:
  OddServer(asio::io_context& io, std::string answer)
      : acceptor_(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0)),
        answer_(std::move(answer)),
        tasks_(io.get_executor()) {}
  void start() { tasks_.start(serve()); }
  awaitable<void> stop() {
    tasks_.cancel();
    return tasks_.join();
  }
  std::uint16_t port() const { return acceptor_.local_endpoint().port(); }

 private:
  awaitable<void> serve() {
    for (;;) {
      tcp::socket socket = co_await acceptor_.async_accept(asio::use_awaitable);
      std::string request(64 * 1024, '\0');
      co_await socket.async_read_some(asio::buffer(request), asio::use_awaitable);
      co_await asio::async_write(socket, asio::buffer(answer_), asio::use_awaitable);
      socket.shutdown(tcp::socket::shutdown_send);
    }
  }

  tcp::acceptor acceptor_;
  std::string answer_;
  async::TaskGroup tasks_;
};

std::string reply(const std::string& status, const std::string& body) {
  return "HTTP/1.1 " + status + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

struct OddAnswer {
  std::string answer;
  EtcdFailure failure;
  const char* cause;
};
void PrintTo(const OddAnswer& odd, std::ostream* out) {
  *out << odd.cause;
}
class OddAnswerTest : public ::testing::TestWithParam<OddAnswer> {};

awaitable<void> meet(OddServer& server, const OddAnswer& odd, bool watches) {
  EtcdClient client({at(server.port())}, patient());
  server.start();
  Failed failed;
  if (watches) {
    try {
      co_await client.watch(the_key("key"), 0);
    } catch (const EtcdError& error) {
      failed = Failed{error.failure(), error.what()};
    }
  } else {
    failed = co_await failure_of(client, "key");
  }
  EXPECT_EQ(failed.failure, odd.failure) << failed.what;
  EXPECT_THAT(failed.what, AllOf(HasSubstr(where(server.port())), HasSubstr(odd.cause)));
  co_await server.stop();
}
TEST_P(OddAnswerTest, IsAClearError) {
  for (const bool watches : {false, true}) {
    asio::io_context io;
    OddServer server(io, GetParam().answer);
    run_coroutine(io, meet(server, GetParam(), watches));
  }
}
INSTANTIATE_TEST_SUITE_P(
    Etcd, OddAnswerTest,
    ::testing::Values(
        OddAnswer{"", EtcdFailure::NoAnswer, "closed the connection without a word; is it protocol=https?"},
        OddAnswer{"SSH-2.0-OpenSSH\r\n", EtcdFailure::Refused, "does not speak plain HTTP"},
        OddAnswer{"HTTP/1.1 200 OK\r\nContent-Length: 90\r\n\r\n{", EtcdFailure::NoAnswer,
                  "closed the connection"},
        OddAnswer{reply("200 OK", "hello\n"), EtcdFailure::Refused, "no JSON object"},
        OddAnswer{reply("200 OK", "{}\n"), EtcdFailure::Refused, "what answers there is no etcd"},
        OddAnswer{reply("404 Not Found", ""), EtcdFailure::Refused, "HTTP status 404"},
        OddAnswer{reply("403 Forbidden", R"({"error":"x","message":"permission denied","code":7})"),
                  EtcdFailure::Refused, "permission denied"},
        OddAnswer{reply("503 Busy", R"({"error":"x","message":"no leader","code":14})"),
                  EtcdFailure::NoAnswer, "no leader"}));

awaitable<void> meet_in_tls(OddServer& server) {
  EtcdOptions options = patient();
  options.https = true;
  EtcdClient client({at(server.port())}, options);
  server.start();
  const Failed failed = co_await failure_of(client, "key");
  EXPECT_EQ(failed.failure, EtcdFailure::Refused);
  EXPECT_THAT(failed.what, AllOf(HasSubstr(where(server.port())), HasSubstr("does not speak TLS")));
  co_await server.stop();
}
TEST(EtcdTlsTest, AServerWithoutTlsIsAClearError) {
  asio::io_context io;
  OddServer server(io, reply("400 Bad Request", ""));
  run_coroutine(io, meet_in_tls(server));
}

TEST(EtcdTlsTest, AWrongFileIsAClearError) {
  const std::string text = ::testing::TempDir() + "etcd_client_test_no_pem";
  std::ofstream(text) << "no certificate\n";
  const std::string missing = text + ".missing";
  const std::pair<EtcdTls, std::string> cases[] = {
      {{missing, "", ""}, "cacert=" + missing + " cannot be read: No such file"},
      {{text, "", ""}, "cacert=" + text + " holds no certificates in PEM"},
      {{"", missing, ""}, "cert=" + missing + " cannot be read: No such file"},
      {{"", text, ""}, "cert=" + text + " holds no certificate in PEM"}};
  for (const auto& [files, sentence] : cases) {
    EtcdOptions options;
    options.https = true;
    options.tls = files;
    try {
      const EtcdClient client({at(1)}, options);
      ADD_FAILURE() << sentence;
    } catch (const SettingsError& error) {
      EXPECT_THAT(error.what(), HasSubstr(sentence));
    }
  }
  std::filesystem::remove(text);
}

}  // namespace
}  // namespace cpprun::rendezvous
