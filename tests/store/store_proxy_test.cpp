#include "rendezvous/store/store_proxy.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/store/server_thread.hpp"

namespace cpprun::store {
namespace {

const std::string kStop(1, '\0');

// Stores and a proxy on 127.0.0.1, in a thread of their own.
class Proxied {
 public:
  explicit Proxied(std::shared_ptr<const Secret> secret = nullptr) : secret_(std::move(secret)) {
    proxy_ = std::make_unique<StoreProxy>(bind_acceptor(context_, asio::ip::address_v4::loopback(), 0),
                                          ProxyConfig{"run", secret_});
    tasks_.start(proxy_->run());
    thread_ = std::thread([this] { context_.run(); });
  }
  ~Proxied() {
    in_thread([this] {
      tasks_.cancel();
      work_.reset();
    });
    thread_.join();
  }
  Proxied(const Proxied&) = delete;
  Proxied& operator=(const Proxied&) = delete;

  // Its number.
  std::size_t add_store(const std::string& run = "run") {
    in_thread([&] {
      StoreServerConfig config;
      config.linked_run = run;
      config.secret = secret_;
      stores_.push_back(std::make_unique<StoreServer>(
          bind_acceptor(context_, asio::ip::address_v4::loopback(), 0), config));
      tasks_.start(stores_.back()->run());
    });
    return stores_.size() - 1;
  }
  void lead_to(std::size_t store) {
    in_thread([&] { proxy_->lead_to({"127.0.0.1", stores_[store]->port()}); });
  }
  void stop_store(std::size_t store) {
    in_thread([&] { stores_[store]->stop(); });
  }
  StoreUse use(std::size_t store) {
    StoreUse use;
    in_thread([&] { use = stores_[store]->use(); });
    return use;
  }
  std::uint16_t port() const { return proxy_->port(); }
  std::uint16_t store_port(std::size_t store) const { return stores_[store]->port(); }

 private:
  void in_thread(const std::function<void()>& work) {
    std::packaged_task<void()> task(work);
    std::future<void> done = task.get_future();
    asio::post(context_, [&task] { task(); });
    done.get();
  }

  std::shared_ptr<const Secret> secret_;
  asio::io_context context_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{context_.get_executor()};
  std::vector<std::unique_ptr<StoreServer>> stores_;
  std::unique_ptr<StoreProxy> proxy_;
  async::TaskGroup tasks_{context_.get_executor()};
  std::thread thread_;
};

class StoreProxyTest : public testing::TestWithParam<bool> {
 protected:
  StoreProxyTest()
      : proxied(GetParam() ? std::make_shared<Secret>(std::string(kMinSecretBytes, 's')) : nullptr) {
    store = proxied.add_store();
    proxied.lead_to(store);
  }

  Proxied proxied;
  std::size_t store = 0;
};

INSTANTIATE_TEST_SUITE_P(WithoutAndWithASecret, StoreProxyTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& with) {
                           return with.param ? "Secret" : "Plain";
                         });

TEST_P(StoreProxyTest, ClientsOfOneNodeShareOneConnection) {
  std::vector<RawClient> clients;
  for (int i = 0; i < 8; ++i) clients.push_back(RawClient::validated(proxied.port()));
  for (std::size_t i = 0; i < clients.size(); ++i) {
    EXPECT_EQ(clients[i].ask(add_bytes("/n", 1), 8),
              number_bytes<std::int64_t>(static_cast<std::int64_t>(i) + 1));
  }
  EXPECT_EQ(proxied.use(store).connections, 1U);
}

TEST_P(StoreProxyTest, WaitersAreWokenByClientsOfTheStoreItself) {
  std::vector<RawClient> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.push_back(RawClient::validated(proxied.port()));
    waiters.back().send(key_list_bytes(Op::Wait, {"/k"}));
    waiters.back().expect_nothing_pending();
  }
  EXPECT_EQ(proxied.use(store).waiting, 4U);
  if (GetParam()) {
    RawClient setter = RawClient::validated(proxied.port());
    setter.send(set_bytes("/k", "v"));
  } else {
    RawClient setter = RawClient::validated(proxied.store_port(store));
    setter.send(set_bytes("/k", "v"));
  }
  for (RawClient& waiter : waiters) {
    EXPECT_EQ(waiter.receive(1), kStop);
    EXPECT_EQ(waiter.ask(get_bytes("/k"), 9), text_bytes("v"));
  }
}

TEST_P(StoreProxyTest, LongValuesPassWhole) {
  RawClient client = RawClient::validated(proxied.port());
  std::string value(kMaxValueBytes, '.');
  for (std::size_t i = 0; i < value.size(); i += 997) value[i] = static_cast<char>(i);
  client.send(set_bytes("/long", value));
  EXPECT_TRUE(client.ask(get_bytes("/long"), 8 + value.size()) == text_bytes(value));
}

TEST_P(StoreProxyTest, WhatIsAskedBeforeTheClientsEndIsAnswered) {
  RawClient client = RawClient::validated(proxied.port());
  client.send(set_bytes("/k", "v") + get_bytes("/k") + op_bytes(Op::GetNumKeys));
  client.close_sending();
  EXPECT_EQ(client.receive(17), text_bytes("v") + number_bytes<std::int64_t>(1));
  EXPECT_TRUE(client.closed_by_peer());
}

TEST_P(StoreProxyTest, WhatIsAskedBeforeAFaultIsAnswered) {
  RawClient client = RawClient::validated(proxied.port());
  client.send(add_bytes("/n", 5) + "\x77");
  EXPECT_EQ(client.receive(8), number_bytes<std::int64_t>(5));
  EXPECT_TRUE(client.closed_by_peer());
}

TEST_P(StoreProxyTest, AFaultAtTheStoreClosesThatClientAlone) {
  RawClient other = RawClient::validated(proxied.port());
  other.send(set_bytes("/text", "x"));
  other.expect_nothing_pending();
  RawClient client = RawClient::validated(proxied.port());
  // What is behind the fault is not served.
  client.send(add_bytes("/text", 1) + set_bytes("/after", "x"));
  EXPECT_TRUE(client.closed_by_peer());
  EXPECT_EQ(other.ask(op_bytes(Op::GetNumKeys), 8), number_bytes<std::int64_t>(1));
}

TEST_P(StoreProxyTest, TheWaitOfOneThatHasGoneIsForgotten) {
  {
    RawClient client = RawClient::validated(proxied.port());
    client.send(key_list_bytes(Op::Wait, {"/never"}));
    client.expect_nothing_pending();
    EXPECT_EQ(proxied.use(store).waiting, 1U);
  }
  RawClient other = RawClient::validated(proxied.port());
  while (proxied.use(store).waiting > 0) other.expect_nothing_pending();
}

TEST_P(StoreProxyTest, TheClientsAreClosedWithTheStore) {
  RawClient client = RawClient::validated(proxied.port());
  client.send(key_list_bytes(Op::Wait, {"/never"}));
  client.expect_nothing_pending();
  proxied.stop_store(store);
  EXPECT_TRUE(client.closed_by_peer());
}

TEST_P(StoreProxyTest, LedToAnotherStoreItsClientsAreNew) {
  RawClient client = RawClient::validated(proxied.port());
  client.send(set_bytes("/k", "old"));
  client.expect_nothing_pending();
  proxied.lead_to(proxied.add_store());
  EXPECT_TRUE(client.closed_by_peer());
  RawClient another = RawClient::validated(proxied.port());
  EXPECT_EQ(another.ask(op_bytes(Op::GetNumKeys), 8), number_bytes<std::int64_t>(0));
}

TEST_P(StoreProxyTest, WhoComesBeforeTheStoreIsServedWhenItIsThere) {
  Proxied early(nullptr);
  RawClient client(early.port());
  client.send(validate_bytes() + add_bytes("/n", 3));
  early.lead_to(early.add_store());
  EXPECT_EQ(client.receive(8), number_bytes<std::int64_t>(3));
}

TEST(StoreLink, WhatIsNoFrameOfAProxysEndsIt) {
  Proxied proxied;
  const std::size_t store = proxied.add_store();
  const std::string link = validate_bytes() + op_bytes(Op::Link) + text_bytes("run");
  const std::string header = number_bytes<std::uint32_t>(1);
  for (const std::string& frame : {
           header + number_bytes<std::uint32_t>(kMaxRequestBytes + 1),             // too long, by its header
           header + number_bytes<std::uint32_t>(1) + "\x77",                       // no opcode of c10d's
           header + number_bytes<std::uint32_t>(5) + op_bytes(Op::Link) + "1234",  // a link in a link
           header + number_bytes<std::uint32_t>(6) + ping_bytes(1) + op_bytes(Op::ListKeys)  // two requests
       }) {
    RawClient client(proxied.store_port(store));
    EXPECT_EQ(client.ask(link, 1), kStop);
    client.send(frame);
    EXPECT_TRUE(client.closed_by_peer());
  }
}

TEST_P(StoreProxyTest, AStoreOfAnotherRunGivesNothing) {
  const std::size_t others = proxied.add_store("another");
  proxied.lead_to(others);
  RawClient client(proxied.port());
  client.send(validate_bytes() + set_bytes("/k", "v"));
  while (proxied.use(others).accepted == 0) std::this_thread::yield();
  EXPECT_EQ(proxied.use(others).keys, 0);
}

}  // namespace
}  // namespace cpprun::store
