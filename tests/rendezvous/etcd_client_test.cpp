// The client of etcd at a real server, and at what is none.
#include "rendezvous/etcd/etcd_client.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/etcd/http_connection.hpp"
#include "tests/rendezvous/etcd_server.hpp"
#include "tests/store/run_coroutine.hpp"

namespace cpprun::rendezvous {
namespace {

using asio::ip::tcp;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = WatchNews::Kind;

// Long enough for a server that is starting on a busy machine.
EtcdOptions patient() {
  EtcdOptions options;
  options.request_limit = seconds(30);
  return options;
}
EtcdOptions hasty() {
  EtcdOptions options;
  options.request_limit = milliseconds(300);
  return options;
}

EtcdEndpoint at(std::uint16_t port) {
  return {"127.0.0.1", port};
}

std::string where(std::uint16_t port) {
  return "127.0.0.1:" + std::to_string(port);
}

// g++ 12 does not take braces within a co_await expression.
KeyRange the_key(const char* key) {
  return {key, false};
}
KeyRange all_below(const char* prefix) {
  return {prefix, true};
}

// What a call that must fail says.
struct Failed {
  std::optional<EtcdFailure> failure;
  std::string what;
};
awaitable<Failed> failure_of(EtcdClient& client, std::string key) {
  try {
    co_await client.get(key);
  } catch (const EtcdError& error) {
    co_return Failed{error.failure(), error.what()};
  }
  co_return Failed{std::nullopt, "it succeeded"};
}
awaitable<void> fail_in(EtcdClient& client, Failed& failed) {
  failed = co_await failure_of(client, "key");
}
awaitable<void> next_in(EtcdWatch& watch, WatchNews& news) {
  news = co_await watch.next();
}

// One server for all tests that do it no harm, each with keys of its own.
class EtcdClientTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { server_ = std::make_unique<EtcdServer>(); }
  static void TearDownTestSuite() { server_.reset(); }

  template <typename... Arguments>
  void run(awaitable<void> (*story)(Arguments...), std::type_identity_t<Arguments>... arguments) {
    run_coroutine(io_, story(std::forward<Arguments>(arguments)...));
  }

  static inline std::unique_ptr<EtcdServer> server_;
  asio::io_context io_;
  EtcdClient client_{{at(server_->port())}, patient()};
  EtcdClient other_{{at(server_->port())}, patient()};
};

awaitable<void> bytes_come_back(EtcdClient& client) {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  const std::string key = "bytes/" + all;
  const KeyReading absent = co_await client.get(key);
  EXPECT_FALSE(absent.entry);
  const Revision put = co_await client.put(key, all + all);
  const KeyReading reading = co_await client.get(key);
  EXPECT_TRUE(reading.entry.has_value());
  if (!reading.entry) co_return;
  EXPECT_EQ(reading.entry->key, key);
  EXPECT_EQ(reading.entry->value, all + all);
  EXPECT_EQ(reading.entry->created, put);
  EXPECT_EQ(reading.entry->changed, put);
  EXPECT_EQ(reading.revision, put);

  const Revision again = co_await client.put(key, "");
  const KeyReading empty = co_await client.get(key);
  EXPECT_EQ(empty.entry.value().value, "");
  EXPECT_EQ(empty.entry.value().created, put);
  EXPECT_EQ(empty.entry.value().changed, again);
  const bool erased = co_await client.erase(key);
  const bool erased_again = co_await client.erase(key);
  EXPECT_TRUE(erased);
  EXPECT_FALSE(erased_again);
}
TEST_F(EtcdClientTest, BytesOfEveryKindComeBack) {
  run(bytes_come_back, client_);
}

awaitable<void> put_some(EtcdClient& client, int first, int end) {
  for (int i = first; i < end; ++i) {
    co_await client.put("pages/" + std::to_string(10'000 + i), std::to_string(i));
  }
}
awaitable<void> pages(EtcdClient& client) {
  constexpr int kKeys = 2'500;  // three pages
  constexpr int kWriters = 5;
  async::TaskGroup writers(co_await asio::this_coro::executor);
  for (int i = 0; i < kWriters; ++i) {
    writers.start(put_some(client, kKeys / kWriters * i, kKeys / kWriters * (i + 1)));
  }
  co_await writers.join();
  co_await client.put("pages", "before");
  const Revision last = co_await client.put("pages0", "behind");

  const PrefixReading reading = co_await client.list("pages/");
  EXPECT_EQ(reading.entries.size(), kKeys);
  EXPECT_EQ(reading.revision, last);
  for (std::size_t i = 0; i < reading.entries.size(); ++i) {
    EXPECT_EQ(reading.entries[i].value, std::to_string(i));
  }
  const std::int64_t erased = co_await client.erase_prefix("pages/");
  EXPECT_EQ(erased, kKeys);
  const PrefixReading nothing = co_await client.list("pages/");
  EXPECT_TRUE(nothing.entries.empty());
  const KeyReading spared = co_await client.get("pages");
  EXPECT_TRUE(spared.entry.has_value());
}
TEST_F(EtcdClientTest, ManyKeysAreReadInPages) {
  run(pages, client_);
}

awaitable<void> election(EtcdClient& one, EtcdClient& two) {
  const Lease lease = co_await one.grant(seconds(60));
  const CreateResult first = co_await one.create("election/leader", "one", lease.id);
  EXPECT_TRUE(first.won);
  EXPECT_EQ(first.holder.value, "one");
  const CreateResult second = co_await two.create("election/leader", "two");
  EXPECT_FALSE(second.won);
  EXPECT_EQ(second.holder.value, "one");
  EXPECT_EQ(second.holder.created, first.holder.created);
  EXPECT_EQ(second.holder.lease, lease.id);

  const Fence reign{"election/leader", first.holder.created};
  const bool while_leading = co_await one.put_fenced("election/state", "of one", reign);
  EXPECT_TRUE(while_leading);
  const bool ended = co_await one.revoke(lease.id);
  EXPECT_TRUE(ended);
  const bool without_leader = co_await one.put_fenced("election/state", "late", reign);
  EXPECT_FALSE(without_leader);

  const CreateResult third = co_await two.create("election/leader", "two");
  EXPECT_TRUE(third.won);
  EXPECT_GT(third.holder.created, first.holder.created);
  const bool under_another = co_await one.put_fenced("election/state", "late", reign);
  EXPECT_FALSE(under_another);
  const KeyReading state = co_await two.get("election/state");
  EXPECT_EQ(state.entry.value().value, "of one");
}
TEST_F(EtcdClientTest, OneIsElectedAndADeposedOneWritesNothing) {
  run(election, client_, other_);
}

awaitable<void> lease_ends(EtcdClient& client, EtcdClient& other) {
  const Lease lease = co_await client.grant(seconds(1));
  EXPECT_GE(lease.time_to_live, seconds(1));
  const Revision put = co_await client.put("lease/node", "here", lease.id);
  const std::optional<seconds> alive = co_await client.keep_alive(lease.id);
  EXPECT_EQ(alive, lease.time_to_live);

  const std::unique_ptr<EtcdWatch> watch = co_await other.watch(all_below("lease/"), put);
  const WatchNews born = co_await watch->next();
  EXPECT_EQ(born.kind, Kind::Events);
  EXPECT_EQ(born.events.at(0).value, "here");
  const WatchNews died = co_await watch->next();
  EXPECT_EQ(died.kind, Kind::Events);
  EXPECT_TRUE(died.events.at(0).deleted);
  EXPECT_EQ(died.events.at(0).key, "lease/node");

  const std::optional<seconds> dead = co_await client.keep_alive(lease.id);
  EXPECT_EQ(dead, std::nullopt);
  const bool revoked = co_await client.revoke(lease.id);
  EXPECT_FALSE(revoked);
  try {
    co_await client.put("lease/node", "late", lease.id);
    ADD_FAILURE() << "a put under a lease that has ended";
  } catch (const EtcdError& error) {
    EXPECT_EQ(error.failure(), EtcdFailure::Refused);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("127.0.0.1:"), HasSubstr("lease not found")));
  }
}
TEST_F(EtcdClientTest, ALeaseThatEndsTakesItsKeysAlong) {
  run(lease_ends, client_, other_);
}

awaitable<void> watch_tells(EtcdClient& client) {
  const KeyRange range{"watch/", true};
  const std::unique_ptr<EtcdWatch> from_now = co_await client.watch(range, 0);
  const Revision first = co_await client.put("watch/a", std::string("\0\xff", 2));
  co_await client.put("watching", "not below the prefix");
  co_await client.erase("watch/a");
  const Revision last = co_await client.put("watch/b", "2");
  const std::unique_ptr<EtcdWatch> from_first = co_await client.watch(range, first);
  const std::unique_ptr<EtcdWatch> one_key = co_await client.watch(the_key("watch/b"), first);

  for (EtcdWatch* watch : {from_now.get(), from_first.get()}) {
    std::vector<KeyEvent> events;
    while (events.size() < 3) {
      const WatchNews news = co_await watch->next();
      EXPECT_EQ(news.kind, Kind::Events) << news.reason;
      if (news.kind != Kind::Events) co_return;
      events.insert(events.end(), news.events.begin(), news.events.end());
    }
    EXPECT_EQ(events[0].value, std::string("\0\xff", 2));
    EXPECT_EQ(events[0].changed, first);
    EXPECT_FALSE(events[0].deleted);
    EXPECT_EQ(events[1].key, "watch/a");
    EXPECT_TRUE(events[1].deleted);
    EXPECT_EQ(events[2].key, "watch/b");
    EXPECT_EQ(events[2].changed, last);
  }
  const WatchNews news = co_await one_key->next();
  EXPECT_EQ(news.events.at(0).key, "watch/b");
}
TEST_F(EtcdClientTest, AWatchTellsEveryChangeOnce) {
  run(watch_tells, client_);
}

awaitable<void> compact(std::uint16_t port, Revision revision) {
  HttpPeer peer{"127.0.0.1", "etcd", tcp::endpoint(asio::ip::address_v4::loopback(), port)};
  const async::Deadline deadline = async::Deadline::after(seconds(30));
  const std::unique_ptr<HttpConnection> connection =
      co_await HttpConnection::open(std::move(peer), nullptr, seconds(3), deadline);
  std::string body = R"({"revision":")" + std::to_string(revision) + R"(","physical":true})";
  const HttpReply reply = co_await connection->ask("/v3/kv/compaction", std::move(body), deadline);
  EXPECT_EQ(reply.status, 200U) << reply.body;
}
awaitable<void> compaction(EtcdClient& client, std::uint16_t port) {
  const Revision old = co_await client.put("compacted", "1");
  const Revision recent = co_await client.put("compacted", "2");
  co_await compact(port, recent);
  const KeyRange key{"compacted", false};
  const std::unique_ptr<EtcdWatch> watch = co_await client.watch(key, old);
  for (int i = 0; i < 2; ++i) {
    const WatchNews news = co_await watch->next();
    EXPECT_EQ(news.kind, Kind::Compacted) << news.reason;
    EXPECT_THAT(news.reason, AllOf(HasSubstr(where(port)), HasSubstr(std::to_string(recent))));
  }
  const KeyReading anew = co_await client.get("compacted");
  EXPECT_EQ(anew.entry.value().value, "2");
}
TEST_F(EtcdClientTest, AWatchFromAForgottenRevisionSaysSo) {
  run(compaction, client_, server_->port());
}

awaitable<void> cancelled(EtcdClient& client) {
  const std::unique_ptr<EtcdWatch> watch = co_await client.watch(the_key("cancelled"), 0);
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  WatchNews news;
  async::TaskGroup waiting(executor);
  waiting.start(next_in(*watch, news));
  waiting.cancel();
  co_await waiting.join();
  EXPECT_EQ(news.reason, "");
}
TEST_F(EtcdClientTest, AWaitForNewsCanBeCancelled) {
  run(cancelled, client_);
}

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

// The kernel accepts its connections, and nobody answers them.
awaitable<void> silent_first(std::uint16_t silent, std::uint16_t real) {
  EtcdClient client({at(silent), at(real)}, hasty());
  const Failed failed = co_await failure_of(client, "key");
  EXPECT_EQ(failed.failure, EtcdFailure::NoAnswer) << failed.what;
  EXPECT_THAT(failed.what, AllOf(HasSubstr(where(silent)), HasSubstr("time limit")));
}
TEST_F(EtcdClientTest, AServerThatNeverAnswersIsAClearError) {
  tcp::acceptor silent(io_, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  run(silent_first, silent.local_endpoint().port(), server_->port());
}

awaitable<void> absent_first(std::uint16_t absent, std::uint16_t real) {
  EtcdClient client({at(absent), {"no-such-host.invalid", 1}, at(real)}, patient());
  co_await client.put("endpoints", "value");
  EtcdClient nobody({at(absent), {"::1", absent}}, patient());
  const Failed failed = co_await failure_of(nobody, "endpoints");
  EXPECT_EQ(failed.failure, EtcdFailure::Unreachable);
  EXPECT_THAT(failed.what, AllOf(HasSubstr(where(absent)), HasSubstr("[::1]:" + std::to_string(absent))));
}
TEST_F(EtcdClientTest, TheNextEndpointIsTakenWhereOneIsAbsent) {
  run(absent_first, free_port(), server_->port());
}

awaitable<void> over_tls(std::uint16_t port, EtcdOptions trusting) {
  EtcdClient client({at(port)}, trusting);
  co_await client.put("key", "value");
  const std::unique_ptr<EtcdWatch> watch = co_await client.watch(the_key("key"), 1);
  const WatchNews news = co_await watch->next();
  EXPECT_EQ(news.events.at(0).value, "value");

  EtcdOptions wary = trusting;
  wary.tls.cacert.clear();
  EtcdClient distrustful({at(port)}, wary);
  const Failed untrusted = co_await failure_of(distrustful, "key");
  EXPECT_EQ(untrusted.failure, EtcdFailure::Refused);
  EXPECT_THAT(untrusted.what, AllOf(HasSubstr(where(port)), HasSubstr("certificate is not accepted")));

  EtcdClient plain({at(port)}, patient());
  const Failed unencrypted = co_await failure_of(plain, "key");
  EXPECT_EQ(unencrypted.failure, EtcdFailure::NoAnswer);
  EXPECT_THAT(unencrypted.what, AllOf(HasSubstr(where(port)), HasSubstr("is it protocol=https?")));
}
awaitable<void> tls_at_plain(std::uint16_t port, EtcdOptions trusting) {
  EtcdClient client({at(port)}, trusting);
  const Failed failed = co_await failure_of(client, "key");
  EXPECT_EQ(failed.failure, EtcdFailure::Unreachable);
  EXPECT_THAT(failed.what, AllOf(HasSubstr(where(port)), HasSubstr("is it protocol=http?")));
}
TEST_F(EtcdClientTest, TlsIsSpokenAndItsFailuresAreClear) {
  EtcdServerOptions made;
  made.protocol = "https";
  made.more = {"--auto-tls"};
  const EtcdServer secure(made);
  const std::filesystem::path certificates = secure.folder() / "data/fixtures/client";
  EtcdOptions trusting = patient();
  trusting.https = true;
  trusting.tls.cacert = certificates / "cert.pem";
  run(over_tls, secure.port(), trusting);
  run(tls_at_plain, server_->port(), trusting);

  trusting.tls.cert = certificates / "cert.pem";
  trusting.tls.key = certificates / "key.pem";
  EXPECT_NO_THROW(EtcdClient({at(1)}, trusting));
}

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
