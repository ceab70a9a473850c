#include "rendezvous/store/store_server.hpp"

#include <dirent.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "tests/store/server_thread.hpp"
#include "tests/unit/rendezvous/bytes_in_use.hpp"

namespace cpprun::store {
namespace {

using std::chrono::milliseconds;

const std::string kStop(1, '\0');

// What the store logs at level info while this lives; may be asked while the server runs.
class LogCapture {
 public:
  LogCapture() : before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", lines_));
  }
  ~LogCapture() { spdlog::set_default_logger(before_); }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;
  std::ptrdiff_t count(const std::string& part) const {
    const std::vector<std::string> lines = lines_->last_formatted();
    return std::count_if(lines.begin(), lines.end(),
                         [&part](const std::string& line) { return line.find(part) != std::string::npos; });
  }

 private:
  std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> lines_ =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(1000);
  std::shared_ptr<spdlog::logger> before_;
};

std::size_t open_descriptors() {
  std::size_t n = 0;
  DIR* folder = ::opendir("/proc/self/fd");
  while (::readdir(folder)) ++n;
  ::closedir(folder);
  return n;
}

TEST(BindAcceptor, APortInUseIsNamed) {
  asio::io_context context;
  const asio::ip::tcp::acceptor first = bind_acceptor(context, asio::ip::address_v4::loopback(), 0);
  const std::uint16_t port = first.local_endpoint().port();
  for (const std::optional<asio::ip::address>& address :
       {std::optional<asio::ip::address>(asio::ip::address_v4::loopback()),
        std::optional<asio::ip::address>()}) {
    try {
      bind_acceptor(context, address, port);
      ADD_FAILURE() << "the port was given twice";
    } catch (const std::system_error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find(address ? "127.0.0.1" : "every interface"), std::string::npos) << text;
      EXPECT_NE(text.find(std::to_string(port)), std::string::npos) << text;
      EXPECT_NE(text.find("Address already in use"), std::string::npos) << text;
    }
  }
}

TEST(BindAcceptor, AnAddressOfAnotherHostIsRefused) {
  asio::io_context context;
  EXPECT_THROW(bind_acceptor(context, asio::ip::make_address("192.0.2.1"), 0), std::system_error);
}

TEST(BindAcceptor, WithoutAnAddressItListensForIPv4Too) {
  asio::io_context context;
  const asio::ip::tcp::acceptor everywhere = bind_acceptor(context, std::nullopt, 0);
  const RawClient client(everywhere.local_endpoint().port());
}

TEST(StoreServer, PipelinedRequestsAreAnsweredInOrder) {
  ServerThread server;
  RawClient client = RawClient::validated(server.port());
  EXPECT_EQ(client.ask(set_bytes("p", "1") + add_bytes("p", 1) + get_bytes("p") + ping_bytes(7), 21),
            number_bytes<std::int64_t>(2) + text_bytes("2") + number_bytes<std::uint32_t>(7));
}

TEST(StoreServer, ManyRequestsByteByByte) {
  ServerThread server;
  RawClient client(server.port());
  const std::string requests = validate_bytes() + set_bytes("k", "value") + get_bytes("k") +
                               key_list_bytes(Op::MultiGet, {"k", "x"}) + ping_bytes(9);
  for (const char byte : requests) client.send(std::string_view(&byte, 1));
  EXPECT_EQ(client.receive(38),
            text_bytes("value") + text_bytes("value") + text_bytes("") + number_bytes<std::uint32_t>(9));
}

TEST(StoreServer, TheLargestValueGoesInAndOut) {
  ServerThread server;
  RawClient client = RawClient::validated(server.port());
  const std::string value(kMaxValueBytes, 'v');
  client.send(set_bytes("big", value));
  EXPECT_EQ(client.ask(get_bytes("big"), 8 + value.size()), text_bytes(value));
}

// Two hundred connections that all wait for one another's keys and count at one.
TEST(StoreServer, ManyClients) {
  ServerThread server;
  constexpr int kClients = 200;
  constexpr int kRounds = 5;
  std::vector<RawClient> clients;
  for (int i = 0; i < kClients; ++i) clients.push_back(RawClient::validated(server.port()));
  EXPECT_EQ(server.connections(), static_cast<std::size_t>(kClients));
  for (int round = 0; round < kRounds; ++round) {
    const std::string go = "go" + std::to_string(round);
    for (RawClient& client : clients) client.send(add_bytes("n", 1) + key_list_bytes(Op::Wait, {go}));
    for (RawClient& client : clients) client.receive(sizeof(std::int64_t));
    clients.front().send(set_bytes(go, "1"));
    for (RawClient& client : clients) ASSERT_EQ(client.receive(1), kStop);
  }
  EXPECT_EQ(clients.back().ask(add_bytes("n", 0), 8), number_bytes<std::int64_t>(kClients * kRounds));
}

TEST(StoreServer, ADisconnectForgetsTheWaitAndNothingElse) {
  ServerThread server;
  RawClient other = RawClient::validated(server.port());
  {
    RawClient waiter = RawClient::validated(server.port());
    waiter.send(set_bytes("kept", "v") + key_list_bytes(Op::Wait, {"k"}));
    waiter.expect_nothing_pending();
  }
  while (server.connections() > 1) other.expect_nothing_pending();
  other.send(set_bytes("k", "v"));
  EXPECT_EQ(other.ask(get_bytes("kept"), 9), text_bytes("v"));
}

TEST(StoreServer, AHalfClosedConnectionIsClosed) {
  ServerThread server;
  RawClient client = RawClient::validated(server.port());
  client.send(key_list_bytes(Op::Wait, {"never"}));
  client.close_sending();
  EXPECT_TRUE(client.closed_by_peer());
}

TEST(StoreServer, GarbageIsClosedAndCostsOthersNothing) {
  LogCapture log;
  ServerThread server;
  RawClient good = RawClient::validated(server.port());
  const std::vector<std::string> first_bytes = {"GET / HTTP/1.1\r\n\r\n", std::string(100'000, '\0'),
                                                std::string(100, '\xff'), std::string("\0\1\2\3\4", 5),
                                                ping_bytes(1)};
  for (int round = 0; round < 20; ++round) {
    for (const std::string& bytes : first_bytes) {
      RawClient bad(server.port());
      bad.send(bytes);
      EXPECT_TRUE(bad.closed_by_peer());
    }
    good.expect_nothing_pending();
  }
  for (const std::string& bytes : {std::string("\x13"), op_bytes(Op::Get) + number_bytes(kMaxKeyBytes + 1),
                                   op_bytes(Op::Set) + text_bytes("k") + number_bytes(kMaxValueBytes + 1),
                                   op_bytes(Op::Wait) + number_bytes(kMaxKeysPerRequest + 1),
                                   validate_bytes(), set_bytes("text", "t") + add_bytes("text", 1)}) {
    RawClient bad = RawClient::validated(server.port());
    bad.send(bytes);
    EXPECT_TRUE(bad.closed_by_peer());
  }
  good.expect_nothing_pending();
  server.stop();
  EXPECT_EQ(log.count(describe(Fault::NotValidated)), 1) << "once for each cause";
  EXPECT_EQ(log.count(describe(Fault::UnknownOpcode)), 1);
  EXPECT_EQ(log.count(describe(Fault::KeyTooLong)), 1);
  EXPECT_EQ(log.count("127.0.0.1:"), 7);
}

TEST(StoreServer, RepliesBeforeAFaultAreSent) {
  ServerThread server;
  RawClient client = RawClient::validated(server.port());
  EXPECT_EQ(client.ask(ping_bytes(5) + "\x13", 4), number_bytes<std::uint32_t>(5));
  EXPECT_TRUE(client.closed_by_peer());
}

TEST(StoreServer, WhoNeverValidatesIsClosed) {
  LogCapture log;
  ServerThread server({.unvalidated = milliseconds(500)});
  RawClient good = RawClient::validated(server.port());
  RawClient silent(server.port());
  RawClient slow(server.port());
  slow.send(validate_bytes().substr(0, 4));
  EXPECT_TRUE(silent.closed_by_peer());
  EXPECT_TRUE(slow.closed_by_peer());
  good.expect_nothing_pending();
  server.stop();
  EXPECT_EQ(log.count(describe(Fault::NeverValidated)), 1);
}

TEST(StoreServer, WhoStopsReadingIsClosedAndTakesLittleMemory) {
  LogCapture log;
  ServerThread server({.stalled = milliseconds(50)});
  RawClient good = RawClient::validated(server.port());
  good.send(set_bytes("big", std::string(1 << 20, 'v')));
  good.expect_nothing_pending();
  RawClient greedy = RawClient::validated(server.port());
  std::string requests;
  for (int i = 0; i < 3000; ++i) requests += get_bytes("big");  // 3 GB of replies
  greedy.send(requests);
  while (server.connections() > 1) good.expect_nothing_pending();
#ifndef __SANITIZE_ADDRESS__  // which keeps what was freed
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 300 * 1024) << "KiB";
#endif
  server.stop();
  EXPECT_EQ(log.count(describe(Fault::SlowReader)), 1);
}

TEST(StoreServer, ASlowReaderGetsEverythingInOrder) {
  ServerThread server;
  RawClient client = RawClient::validated(server.port());
  const std::string value(300'000, 'v');
  constexpr int kGets = 40;  // 12 MB: more than the sockets hold
  client.send(set_bytes("k", value));
  std::string requests;
  for (std::uint32_t i = 0; i < kGets; ++i) requests += get_bytes("k") + ping_bytes(i);
  client.send(requests);
  for (std::uint32_t i = 0; i < kGets; ++i) {
    ASSERT_EQ(client.receive(8 + value.size()), text_bytes(value));
    ASSERT_EQ(client.receive(4), number_bytes(i));
  }
}

TEST(StoreServer, AReplyTooLongClosesTheConnection) {
  ServerThread server({.reply_bytes = 1000});
  RawClient client = RawClient::validated(server.port());
  client.send(set_bytes("k", std::string(600, 'v')));
  EXPECT_EQ(client.ask(key_list_bytes(Op::MultiGet, {"k"}), 608).size(), 608U);
  client.send(key_list_bytes(Op::MultiGet, {"k", "k"}));
  EXPECT_TRUE(client.closed_by_peer());
}

TEST(StoreServer, AnEmptyTableClosesTheConnectionsBeforeIt) {
  ServerThread server;
  RawClient old_client = RawClient::validated(server.port());
  RawClient waiting = RawClient::validated(server.port());
  old_client.send(set_bytes("k", "old"));
  waiting.send(key_list_bytes(Op::Wait, {"never"}));
  waiting.expect_nothing_pending();
  server.start_empty_table();
  EXPECT_EQ(server.connections(), 0U);
  EXPECT_TRUE(old_client.closed_by_peer());
  EXPECT_TRUE(waiting.closed_by_peer());
  RawClient client = RawClient::validated(server.port());
  EXPECT_EQ(client.ask(op_bytes(Op::GetNumKeys), 8), number_bytes<std::int64_t>(0));
  client.send(set_bytes("never", "v"));
  client.expect_nothing_pending();
}

TEST(StoreServer, StopClosesEveryConnectionAndThePort) {
  ServerThread server;
  RawClient waiting = RawClient::validated(server.port());
  waiting.send(key_list_bytes(Op::Wait, {"never"}));
  server.stop();
  EXPECT_TRUE(waiting.closed_by_peer());
  asio::io_context context;
  EXPECT_NO_THROW(bind_acceptor(context, asio::ip::address_v4::loopback(), server.port()));
}

TEST(StoreServer, StopBeforeRunMeansDoNotRun) {
  asio::io_context context;
  StoreServer server(bind_acceptor(context, asio::ip::address_v4::loopback(), 0));
  async::TaskGroup tasks(context.get_executor());
  server.stop();
  tasks.start(server.run());
  context.run();
  EXPECT_TRUE(tasks.empty());
}

TEST(StoreServer, NothingLeaksOverManyConnections) {
  const std::size_t before = open_descriptors();
  {
    ServerThread server;
    RawClient good = RawClient::validated(server.port());
    const std::size_t serving = open_descriptors();
    for (int i = 0; i < 500; ++i) {
      RawClient client = RawClient::validated(server.port());
      client.send(key_list_bytes(Op::Wait, {"never"}));
    }
    while (server.connections() > 1) good.expect_nothing_pending();
    EXPECT_EQ(open_descriptors(), serving);
  }
  EXPECT_EQ(open_descriptors(), before);
}

// However large what it sent and was sent.
TEST(StoreServer, AConnectionAtRestHoldsNoBuffers) {
  constexpr std::size_t kBytes = 4'000'000;
  ServerThread server;
  std::vector<RawClient> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(RawClient::validated(server.port()));
  clients[0].send(set_bytes("k", std::string(kBytes, 'v')));
  clients[0].expect_nothing_pending();
  const std::size_t before = bytes_in_use();
  if (before == 0) GTEST_SKIP() << "the allocator does not say";
  for (RawClient& client : clients) {
    client.send(set_bytes("k", std::string(kBytes, 'v')));
    client.send(get_bytes("k") + get_bytes("k"));
    client.receive(2 * (sizeof(std::uint64_t) + kBytes));
    client.expect_nothing_pending();
  }
  EXPECT_LT(bytes_in_use(), before + kBytes);
}

// At the limit of open files the server says so, serves those it has, and goes on when there is room.
TEST(StoreServer, WithoutDescriptorsAcceptingPauses) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "the undefined-behaviour sanitizer checks objects through a pipe, and there is none to be had here";
#endif
  LogCapture log;
  ServerThread server;
  RawClient good = RawClient::validated(server.port());
  RawClient late;
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const rlimit none{.rlim_cur = 3, .rlim_max = limit.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  late.connect(server.port());
  late.send(validate_bytes());
  const std::string pauses = "accepting no more connections for now";
  while (log.count(pauses) == 0) good.expect_nothing_pending();
  EXPECT_EQ(server.connections(), 1U);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  good.close_sending();
  late.expect_nothing_pending();
  server.stop();
  EXPECT_EQ(log.count(pauses), 1);
}

}  // namespace
}  // namespace cpprun::store
