// The client of etcd at a real server.
#include "rendezvous/etcd/etcd_client.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <memory>
#include <optional>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/etcd/http_connection.hpp"
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
  const bool erased_while_leading = co_await one.erase_fenced("election/state", reign);
  EXPECT_TRUE(erased_while_leading);
  const KeyReading erased = co_await two.get("election/state");
  EXPECT_FALSE(erased.entry.has_value());
  co_await one.put_fenced("election/state", "of one", reign);
  const bool ended = co_await one.revoke(lease.id);
  EXPECT_TRUE(ended);
  const bool erased_late = co_await one.erase_fenced("election/state", reign);
  EXPECT_FALSE(erased_late);
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

}  // namespace
}  // namespace cpprun::rendezvous
