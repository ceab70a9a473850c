// A council and its agents over real sockets in one process.
#include "rendezvous/dynamic_rendezvous.hpp"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/write.hpp>

#include "rendezvous/council/council.hpp"
#include "rendezvous/council/council_link.hpp"
#include "rendezvous/store/store_connection.hpp"
#include "rendezvous/store/store_server.hpp"

namespace cpprun::rendezvous {
namespace {

using async::Deadline;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kRun[] = "job";

Node node_of(int number, int nodes) {
  return {"host" + std::to_string(number), number, nodes, nodes, std::nullopt, "", "default", 1};
}

CoordinatorRules rules_for(int nodes) {
  CoordinatorRules rules;
  rules.round = {nodes, nodes};
  rules.death_limit = seconds(20);  // nobody dies of a busy machine
  return rules;
}

// An agent by its bare words.
struct Peer {
  Report report;
  std::unique_ptr<store::StoreConnection> connection;
};

// The council and what a test does with it; the test's time-out is ctest's.
class Meeting {
 public:
  explicit Meeting(int nodes)
      : desk_(io_.get_executor(), kRun),
        server_(store::bind_acceptor(io_, asio::ip::address_v4::loopback(), 0), {&desk_, false}),
        endpoint_{"127.0.0.1", server_.port()},
        council_(io_.get_executor(), {kRun, {endpoint_}, rules_for(nodes)}, desk_),
        nodes_(nodes),
        tasks_(io_.get_executor()) {}

  void play(awaitable<void> script) {
    std::exception_ptr failure;
    asio::co_spawn(io_, run(std::move(script)), [&](std::exception_ptr error) { failure = error; });
    io_.run();
    if (failure) std::rethrow_exception(failure);
  }

  awaitable<void> connect(Peer& peer) {
    const asio::ip::tcp::endpoint where(asio::ip::address_v4::loopback(), server_.port());
    std::string name = "the council";
    store::ConnectionPurpose purpose{store::Opening{kRun, to_json(rules_for(nodes_))}, nullptr};
    peer.connection = co_await store::StoreConnection::open(where, std::move(name), std::move(purpose),
                                                            Deadline::after(seconds(20)));
  }

  Peer peer(int number) const {
    Peer peer;
    peer.report.id = "agent" + std::to_string(number);
    peer.report.node = node_of(number, nodes_);
    return peer;
  }

  std::unique_ptr<DynamicRendezvous> handler(int number) {
    DynamicRendezvousConfig config;
    config.node = node_of(number, nodes_);
    config.open_store = [](const std::string& address) { return StoreEndpoint{address, 1234}; };
    CouncilLinkConfig link;
    link.opening = {kRun, to_json(rules_for(nodes_))};
    link.endpoints = {endpoint_};
    link.death_limit = seconds(20);
    const asio::any_io_executor executor = io_.get_executor();
    return std::make_unique<DynamicRendezvous>(
        executor, std::move(config), [executor, link](Membership& membership, async::Event& changed) {
          return std::make_unique<CouncilLink>(executor, link, membership, changed);
        });
  }

  asio::io_context& io() { return io_; }
  std::uint16_t port() const { return server_.port(); }
  Council& council() { return council_; }

 private:
  awaitable<void> run(awaitable<void> script) {
    tasks_.start(server_.run());
    tasks_.start(council_.run());
    std::exception_ptr failure;
    try {
      co_await std::move(script);
    } catch (...) {
      failure = std::current_exception();
    }
    tasks_.cancel();
    co_await tasks_.join();
    if (failure) std::rethrow_exception(failure);
  }

  asio::io_context io_{1};
  store::RunDesk desk_;
  store::StoreServer server_;
  store::StoreEndpoint endpoint_;
  Council council_;
  int nodes_;
  async::TaskGroup tasks_;
};

awaitable<void> say(Peer& peer) {
  std::string words;
  put_frame(words, FrameKind::Report, to_json(peer.report));
  co_await peer.connection->send(words, Deadline::after(seconds(20)));
}

awaitable<Order> next_order(Peer& peer) {
  for (;;) {
    const Deadline limit = Deadline::after(seconds(20));
    const std::string header = co_await peer.connection->receive(kFrameHeader, limit);
    const std::string payload = co_await peer.connection->receive(payload_length(header).value(), limit);
    if (FrameKind{header.front()} == FrameKind::Order) co_return order_from_json(payload).value();
  }
}

// Orders of other kinds are passed over.
awaitable<Order> order_to(Peer& peer, Order::Kind kind) {
  for (;;) {
    Order order = co_await next_order(peer);
    if (order.kind == kind) co_return order;
  }
}

awaitable<void> accept_offer(Peer& peer) {
  const Order offer = co_await order_to(peer, Order::Kind::Offer);
  peer.report.offered = offer.ticket;
  if (offer.ticket.rank == 0) peer.report.store = StoreEndpoint{"127.0.0.1", 1};
  co_await say(peer);
}

awaitable<void> start_workers(Peer& peer) {
  co_await order_to(peer, Order::Kind::Run);
  peer.report.run = peer.report.offered;
  peer.report.state = AgentState::Running;
  co_await say(peer);
}

awaitable<void> start_round(Meeting& meeting, Peer& a, Peer& b) {
  co_await meeting.connect(a);
  co_await meeting.connect(b);
  co_await say(a);
  co_await say(b);
  co_await accept_offer(a);
  co_await accept_offer(b);
  co_await start_workers(a);
  co_await start_workers(b);
}

awaitable<void> finish_round(Peer& a, Peer& b) {
  a.report.state = b.report.state = AgentState::Finished;
  co_await say(a);
  co_await say(b);
  co_await order_to(a, Order::Kind::Finished);
  co_await order_to(b, Order::Kind::Finished);
}

awaitable<void> take_part(RendezvousHandler& handler, std::vector<RendezvousInfo>& infos, int& finished) {
  const std::optional<RendezvousInfo> info = co_await handler.next_rendezvous();
  infos.push_back(info.value());
  const FinishEvent event = co_await handler.finish();
  finished += std::holds_alternative<AllFinished>(event) ? 1 : 0;
  co_await handler.close("");
}

awaitable<void> all_take_part(Meeting& meeting, int nodes, std::vector<RendezvousInfo>& infos,
                              int& finished) {
  std::vector<std::unique_ptr<DynamicRendezvous>> handlers;
  async::TaskGroup tasks(meeting.io().get_executor());
  for (int i = 0; i < nodes; ++i) {
    handlers.push_back(meeting.handler(i));
    tasks.start(take_part(*handlers.back(), infos, finished));
  }
  co_await tasks.join();
}

TEST(DynamicRendezvous, ThreeNodesMeetAndFinish) {
  Meeting meeting(3);
  std::vector<RendezvousInfo> infos;
  int finished = 0;
  meeting.play(all_take_part(meeting, 3, infos, finished));
  ASSERT_EQ(infos.size(), 3U);
  std::set<int> ranks;
  for (const RendezvousInfo& info : infos) {
    ranks.insert(info.group_rank);
    EXPECT_EQ(info.group_world_size, 3);
    EXPECT_EQ(info.workers.first_rank, info.group_rank);
    EXPECT_EQ(info.store, (StoreEndpoint{"127.0.0.1", 1234}));
  }
  EXPECT_EQ(ranks, (std::set<int>{0, 1, 2}));
  EXPECT_EQ(finished, 3);
}

// The council once wrote into an entry that it had just freed, and lost the agent's orders.
awaitable<void> connect_again(Meeting& meeting, Peer& a, Peer& b) {
  co_await start_round(meeting, a, b);
  const std::unique_ptr<store::StoreConnection> before = std::move(b.connection);
  co_await meeting.connect(b);
  co_await say(b);
  const Order again = co_await next_order(b);
  EXPECT_EQ(again.kind, Order::Kind::Run);
  EXPECT_EQ(again.ticket.serial, b.report.run.serial);
  co_await finish_round(a, b);
}

TEST(Council, AnAgentThatConnectsAgainBeforeItsOldConnectionEndsKeepsItsRound) {
  Meeting meeting(2);
  Peer a = meeting.peer(0);
  Peer b = meeting.peer(1);
  meeting.play(connect_again(meeting, a, b));
}

awaitable<void> cut_and_connect(Meeting& meeting, Peer& a, Peer& b) {
  co_await start_round(meeting, a, b);
  b.connection.reset();
  co_await meeting.connect(b);
  co_await say(b);
  const Order again = co_await next_order(b);
  EXPECT_EQ(again.kind, Order::Kind::Run);
  co_await finish_round(a, b);
}

TEST(Council, ACutConnectionThatIsMadeAgainKeepsTheRound) {
  Meeting meeting(2);
  Peer a = meeting.peer(0);
  Peer b = meeting.peer(1);
  meeting.play(cut_and_connect(meeting, a, b));
}

awaitable<bool> is_shown_out(Peer& peer) {
  try {
    co_await next_order(peer);
  } catch (const store::StoreError& error) {
    co_return error.failure() == store::StoreFailure::Lost;
  }
  co_return false;
}

awaitable<void> meet_among_garbage(Meeting& meeting, Peer& a, Peer& b) {
  const asio::ip::tcp::endpoint where(asio::ip::address_v4::loopback(), meeting.port());
  asio::ip::tcp::socket browser(meeting.io());
  co_await browser.async_connect(where, asio::use_awaitable);
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  co_await asio::async_write(browser, asio::buffer(request), asio::use_awaitable);
  asio::ip::tcp::socket silent(meeting.io());
  co_await silent.async_connect(where, asio::use_awaitable);
  std::vector<Peer> strangers(5);
  const std::vector<std::string> words = {
      std::string(), std::string("X\x01\x00\x00\x00?", 6), std::string("R\x02\x00\x00\x00{}", 7),
      std::string("R\xff\xff\xff\xff", 5), std::string("B\x00\x00\x00\x00", 5)};
  for (std::size_t i = 0; i < words.size(); ++i) {
    co_await meeting.connect(strangers[i]);
    co_await strangers[i].connection->send(words[i], Deadline::after(seconds(20)));
  }
  co_await start_round(meeting, a, b);
  // Beside the one that has said nothing yet, all have been shown out.
  for (std::size_t i = 1; i < words.size(); ++i) {
    const bool shown_out = co_await is_shown_out(strangers[i]);
    EXPECT_TRUE(shown_out) << i;
  }
  co_await finish_round(a, b);
}

TEST(Council, GarbageAndSilenceCostTheOthersNothing) {
  Meeting meeting(2);
  Peer a = meeting.peer(0);
  Peer b = meeting.peer(1);
  meeting.play(meet_among_garbage(meeting, a, b));
}

awaitable<void> hear_the_last_word(Meeting& meeting, Peer& a, Peer& b) {
  co_await start_round(meeting, a, b);
  async::TaskGroup tasks(meeting.io().get_executor());
  tasks.start(meeting.council().say_farewell("it was stopped"));
  const Order last = co_await order_to(b, Order::Kind::End);
  EXPECT_TRUE(last.end.final);
  EXPECT_EQ(last.end.sentence, "it was stopped");
  a.report.state = b.report.state = AgentState::Gone;
  co_await say(a);
  co_await say(b);
  co_await tasks.join();
}

TEST(Council, SaysItsLastWord) {
  Meeting meeting(2);
  Peer a = meeting.peer(0);
  Peer b = meeting.peer(1);
  meeting.play(hear_the_last_word(meeting, a, b));
}

}  // namespace
}  // namespace cpprun::rendezvous
