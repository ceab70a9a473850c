// LibTorch's own clients, TCPStore and PrefixStore, against our server and against LibTorch's, both kinds:
// the same calls must give the same results, errors and time-outs among them.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <future>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

namespace cpprun::worker::test {
namespace {

using c10d::PrefixStore;
using c10d::Store;
using c10d::TCPStore;
using StorePtr = c10::intrusive_ptr<Store>;
using Bytes = std::vector<std::uint8_t>;
using Results = std::vector<std::string>;

constexpr std::chrono::milliseconds kShort(50);

// serve_store, a program of its own: what it is made of does not compile beside LibTorch.
class OurServer {
 public:
  OurServer() {
    int ready[2];
    int input[2];
    TORCH_CHECK(::pipe2(ready, O_CLOEXEC) == 0 && ::pipe2(input, O_CLOEXEC) == 0);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, ready[1], 3);
    std::string arguments[] = {CPPRUN_SERVE_STORE, "--ready-fd", "3"};
    char* argv[] = {arguments[0].data(), arguments[1].data(), arguments[2].data(), nullptr};
    const int error = ::posix_spawn(&process_, CPPRUN_SERVE_STORE, &actions, nullptr, argv, environ);
    ::posix_spawn_file_actions_destroy(&actions);
    TORCH_CHECK(error == 0, "cannot start " CPPRUN_SERVE_STORE);
    ::close(ready[1]);
    ::close(input[0]);
    input_ = input[1];
    char text[16] = {};
    TORCH_CHECK(::read(ready[0], text, sizeof text - 1) > 1);
    port_ = static_cast<std::uint16_t>(std::atoi(text));
    ::close(ready[0]);
  }
  ~OurServer() { stop(); }
  OurServer(const OurServer&) = delete;
  OurServer& operator=(const OurServer&) = delete;

  void stop() {
    if (process_ < 0) return;
    ::close(input_);
    int status = -1;
    ::waitpid(process_, &status, 0);
    EXPECT_EQ(status, 0);
    process_ = -1;
  }
  std::uint16_t port() const { return port_; }

 private:
  pid_t process_ = -1;
  int input_ = -1;
  std::uint16_t port_ = 0;
};

class TorchServer {
 public:
  explicit TorchServer(bool libuv) {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    options.useLibUV = libuv;
    store_ = c10::make_intrusive<TCPStore>("127.0.0.1", options);
  }
  std::uint16_t port() const { return store_->getPort(); }

 private:
  c10::intrusive_ptr<TCPStore> store_;
};

c10::intrusive_ptr<TCPStore> connect(std::uint16_t port, std::optional<std::size_t> workers = std::nullopt) {
  c10d::TCPStoreOptions options;
  options.port = port;
  options.numWorkers = workers;
  return c10::make_intrusive<TCPStore>("127.0.0.1", options);
}

Bytes bytes(std::string_view text) {
  return Bytes(text.begin(), text.end());
}

std::string text(const Bytes& value) {
  return std::string(value.begin(), value.end());
}
std::string text(const std::string& value) {
  return value;
}
std::string text(bool value) {
  return value ? "true" : "false";
}
std::string text(std::int64_t value) {
  return std::to_string(value);
}
std::string text(const std::vector<Bytes>& values) {
  std::string all = "[";
  for (const Bytes& value : values) all += text(value) + "|";
  return all + "]";
}
std::string text(std::vector<std::string> names) {
  std::sort(names.begin(), names.end());
  std::string all = "{";
  for (const std::string& name : names) all += name + "|";
  return all + "}";
}

// A call's result as text; or the kind of its error, with the message where that names neither an address nor
// a line.
template <typename Call>
std::string outcome(Call call) {
  try {
    if constexpr (std::is_void_v<decltype(call())>) {
      call();
      return "done";
    } else {
      return text(call());
    }
  } catch (const c10::DistQueueEmptyError&) {
    return "DistQueueEmptyError";
  } catch (const c10::DistStoreError& error) {
    return "DistStoreError: " + std::string(error.what_without_backtrace()).substr(0, 40);
  } catch (const c10::DistNetworkError&) {
    return "DistNetworkError";
  } catch (const c10::NotImplementedError&) {
    return "NotImplementedError";
  } catch (const std::exception& error) {
    return std::string("another error: ") + error.what();
  }
}

// A scenario at work: two clients of one server and what their calls have given so far.
struct Play {
  Store& store;
  Store& other;
  Results results;

  template <typename Call>
  void note(Call call) {
    results.push_back(outcome(call));
    // Not every request is answered: what a client says next comes after what the other has just said.
    for (Store* client : {&store, &other}) outcome([&] { return client->getNumKeys(); });
  }
  // What a call left behind: the client still works, or every call fails as the first did.
  void note_usability(Store& client) {
    note([&] { client.set("still", bytes("alive")); });
    note([&] { return client.get("still"); });
  }
};

// Scenarios: calls on one client, and on a second one where somebody else must act.

void values(Play& play) {
  Store& store = play.store;
  Store& other = play.other;
  const std::string binary("a\0\xff/\n", 5);
  play.note([&] { store.set("k", bytes("1")); });
  play.note([&] { return other.get("k"); });
  play.note([&] { store.set(binary, bytes(binary)); });
  play.note([&] { return other.get(binary); });
  play.note([&] { return other.get_to_str(binary); });
  play.note([&] { store.set("", bytes("")); });
  play.note([&] { return other.get(""); });
  play.note([&] { store.set("large", Bytes(3'000'000, 'v')); });
  play.note([&] { return other.get("large") == Bytes(3'000'000, 'v'); });
  play.note([&] { store.append("log", bytes("ab")); });
  play.note([&] { store.append("log", bytes("cd")); });
  play.note([&] { return other.get("log"); });
  play.note([&] { store.multiSet({"m1", "m2"}, {bytes("x"), bytes("yy")}); });
  play.note([&] { return other.multiGet({"m2", "m1", "m2"}); });
  play.note([&] { store.multiSet({}, {}); });
  play.note([&] { return other.multiGet({}); });
  play.note([&] { return store.hasExtendedApi(); });
  play.note([&] { return store.getNumKeys(); });
  play.note([&] { return store.listKeys(); });
  play.note([&] { return store.deleteKey("k"); });
  play.note([&] { return store.deleteKey("k"); });
  play.note([&] { return other.getNumKeys(); });
  play.note([&] { return other.listKeys(); });
  play.note([&] { store.watchKey("k", {}); });
}

void numbers(Play& play) {
  Store& store = play.store;
  Store& other = play.other;
  play.note([&] { return store.add("n", 5); });
  play.note([&] { return other.add("n", -7); });
  play.note([&] { return store.add("n", 0); });
  play.note([&] { return store.get("n"); });
  play.note([&] { return store.add("n", std::numeric_limits<std::int64_t>::max()); });
  play.note([&] { store.set("said", bytes(" 12 and more")); });
  play.note([&] { return store.add("said", 1); });
  play.note([&] { return other.get("said"); });
}

void checks(Play& play) {
  Store& store = play.store;
  Store& other = play.other;
  play.note([&] { return store.check({}); });
  play.note([&] { return store.check({"a"}); });
  play.note([&] { other.set("a", bytes("")); });
  play.note([&] { return store.check({"a", "a"}); });
  play.note([&] { return store.check({"a", "b"}); });
  play.note([&] { return other.deleteKey("a"); });
  play.note([&] { return store.check({"a"}); });
}

void compare_sets(Play& play) {
  Store& store = play.store;
  Store& other = play.other;
  const auto compare_set = [&play](Store& by, const std::string& key, const char* expected,
                                   const char* desired) {
    play.note([&] { return by.compareSet(key, bytes(expected), bytes(desired)); });
  };
  compare_set(store, "k", "", "one");
  compare_set(other, "k", "one", "two");
  compare_set(store, "k", "one", "three");
  compare_set(store, "k", "two", "");
  compare_set(store, "k", "", "four");
  compare_set(store, "absent", "expected", "desired");
  play.note([&] { return store.check({"absent"}); });
}

void waits_met(Play& play) {
  Store& store = play.store;
  Store& other = play.other;
  const std::vector<std::function<void(const std::string&)>> writes = {
      [&](const std::string& key) { other.set(key, bytes("v")); },
      [&](const std::string& key) { other.add(key, 1); },
      [&](const std::string& key) { other.append(key, bytes("v")); },
      [&](const std::string& key) {
        other.multiSet({"beside", key}, {bytes("b"), bytes("v")});
      },
  };
  for (std::size_t i = 0; i < writes.size(); ++i) {
    const std::string key = "w" + std::to_string(i);
    std::future<void> writer = std::async(std::launch::async, writes[i], key);
    play.note([&] { store.wait({key}); });
    writer.get();
    play.note([&] { return store.get(key); });
  }
  std::future<void> writer = std::async(std::launch::async, [&] {
    other.set("x", bytes("1"));
    other.set("y", bytes("2"));
  });
  play.note([&] { return store.multiGet({"x", "y", "x"}); });
  writer.get();
  play.note([&] { store.wait({}); });
}

// The older server wakes nobody for it.
void wait_met_by_compare_set(Play& play) {
  Store& store = play.store;
  Store& other = play.other;
  std::future<void> writer =
      std::async(std::launch::async, [&] { other.compareSet("k", bytes(""), bytes("v")); });
  play.note([&] { store.wait({"k"}); });
  writer.get();
  play.note([&] { return store.get("k"); });
}

void waits_in_vain(Play& play) {
  Store& store = play.store;
  Store& other = play.other;
  play.note([&] { other.set("there", bytes("1")); });
  play.note([&] { store.wait({"absent"}, kShort); });
  play.note_usability(store);
  play.note([&] { store.wait({"there", "absent", "absent too"}, kShort); });
  play.note([&] { store.wait({"absent"}, std::chrono::milliseconds(1)); });
  play.note_usability(store);
  store.setTimeout(kShort);
  play.note([&] { return static_cast<std::int64_t>(store.getTimeout().count()); });
  play.note([&] { store.wait({"absent"}); });
  play.note([&] { return store.get("absent"); });
  play.note([&] { return store.multiGet({"there", "absent"}); });
  play.note_usability(store);
  store.setTimeout(Store::kDefaultTimeout);
  play.note([&] { other.set("absent", bytes("no more")); });
  play.note([&] { return store.get("absent"); });
}

void barriers(Play& play) {
  Store& store = play.store;
  Store& other = play.other;
  play.note([&] { store.barrier("alone", 1, kShort); });
  play.note([&] { store.barrier("too few", 3, kShort); });
  play.note_usability(store);
  std::future<void> peer = std::async(std::launch::async, [&] { other.barrier("pair", 2); });
  play.note([&] { store.barrier("pair", 2); });
  peer.get();
  play.note([&] { store.barrier("pair", 2, kShort); });  // never reset
  play.note([&] { return store.getNumKeys(); });
}

// The server closes the connection, and the client never connects again.
void counting_text(Play& play) {
  Store& store = play.store;
  Store& other = play.other;
  play.note([&] { other.set("text", bytes("abc")); });
  play.note([&] { return store.add("text", 1); });
  play.note_usability(store);
  play.note_usability(other);
  play.note([&] { return other.get("text"); });
}

void queues(Play& play) {
  Store& store = play.store;
  Store& other = play.other;
  play.note([&] { return store.queueLen("q"); });
  play.note([&] { return store.queuePop("q", false); });
  play.note_usability(store);
  play.note([&] { store.queuePush("q", bytes("one")); });
  play.note([&] { store.queuePush("q", bytes("")); });
  play.note([&] { return other.queueLen("q"); });
  play.note([&] { return other.check({"q"}); });
  play.note([&] { other.wait({"q"}, kShort); });
  play.note([&] { return other.getNumKeys(); });
  play.note([&] { return other.deleteKey("q"); });
  play.note([&] { return other.queuePop("q", true); });
  play.note([&] { return other.queuePop("q", false); });
  play.note([&] { return other.queuePop("q", false); });
  std::future<void> pusher = std::async(std::launch::async, [&] { other.queuePush("q", bytes("three")); });
  play.note([&] { return store.queuePop("q", true); });
  pusher.get();
  store.setTimeout(kShort);
  play.note([&] { return store.queuePop("q", true); });
  play.note_usability(store);
}

// What only the libuv server limits.
void long_key(Play& play) {
  Store& store = play.store;
  Store& other = play.other;
  const std::string longest(8192 - sizeof("/outer/inner/"), 'k');
  play.note([&] { store.set(longest, bytes("v")); });
  play.note([&] { return other.get(longest); });
  play.note([&] { return store.get(std::string(8192, 'k')); });
  play.note([&] { return store.getNumKeys(); });
  play.note_usability(other);
}

void long_value(Play& play) {
  Store& store = play.store;
  Store& other = play.other;
  const Bytes longest(8'388'608, 'v');
  play.note([&] { store.set("longest", longest); });
  play.note([&] { return other.get("longest") == longest; });
  // Which of the two calls notices depends on how fast the server is.
  const std::string set = outcome([&] { store.set("longer", Bytes(longest.size() + 1, 'v')); });
  EXPECT_TRUE(set == "done" || set == "DistNetworkError") << set;
  play.note([&] { return store.getNumKeys(); });
  play.note([&] { return other.check({"longer"}); });
}

void many_keys(Play& play) {
  Store& store = play.store;
  play.note([&] { return store.check(std::vector<std::string>(131'073, "k")); });
  play.note_usability(store);
  play.note_usability(play.other);
}

struct Scenario {
  const char* name;
  void (*act)(Play& play);
  bool libuv_only = false;
};
constexpr Scenario kScenarios[] = {
    {"Values", values},
    {"Numbers", numbers},
    {"Checks", checks},
    {"CompareSets", compare_sets},
    {"WaitsMet", waits_met},
    {"WaitMetByCompareSet", wait_met_by_compare_set, true},
    {"WaitsInVain", waits_in_vain},
    {"Barriers", barriers},
    {"CountingText", counting_text},
    {"Queues", queues, true},
    {"LongKey", long_key, true},
    {"LongValue", long_value, true},
    {"ManyKeys", many_keys, true},
};

class StoreClients : public ::testing::TestWithParam<Scenario> {
 protected:
  template <typename Server>
  static Results results_with(Server& server, int prefixes) {
    StorePtr stores[] = {connect(server.port()), connect(server.port())};
    for (StorePtr& store : stores) {
      if (prefixes > 0) store = c10::make_intrusive<PrefixStore>("inner", store);
      if (prefixes > 1) store = c10::make_intrusive<PrefixStore>("outer", store);
    }
    Play play{*stores[0], *stores[1], {}};
    GetParam().act(play);
    return play.results;
  }
};

TEST_P(StoreClients, GetTheSameFromEveryServer) {
  for (const bool libuv : {true, false}) {
    if (GetParam().libuv_only && !libuv) continue;
    for (const int prefixes : {0, 1, 2}) {
      SCOPED_TRACE(testing::Message() << "libuv: " << libuv << ", prefixes: " << prefixes);
      OurServer our_server;
      const TorchServer torch_server(libuv);
      const Results ours = results_with(our_server, prefixes);
      const Results theirs = results_with(torch_server, prefixes);
      EXPECT_EQ(ours, theirs);
      EXPECT_FALSE(ours.empty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scenarios, StoreClients, ::testing::ValuesIn(kScenarios),
                         [](const ::testing::TestParamInfo<Scenario>& scenario) {
                           return scenario.param.name;
                         });

TEST(TcpStoreClient, SplitsASetOverPackets) {
  OurServer server;
  const c10::intrusive_ptr<TCPStore> store = connect(server.port());
  store->_splitSet("k", bytes("value"));
  EXPECT_EQ(text(store->get("k")), "value");
}

TEST(TcpStoreClient, ClonesItselfWithAConnectionOfItsOwn) {
  OurServer server;
  const c10::intrusive_ptr<TCPStore> store = connect(server.port());
  const StorePtr clone = store->clone();
  std::future<void> waiting = std::async(std::launch::async, [&] { store->wait({"k"}); });
  clone->set("k", bytes("v"));
  waiting.get();
  const StorePtr prefixed = PrefixStore("p", store).clone();
  prefixed->set("k", bytes("w"));
  EXPECT_EQ(text(store->get("p/k")), "w");
}

TEST(TcpStoreClient, ChecksIn) {
  OurServer server;
  std::vector<c10::intrusive_ptr<TCPStore>> workers;
  for (int i = 0; i < 3; ++i) workers.push_back(connect(server.port(), 3));
  EXPECT_EQ(workers[0]->getNumKeys(), 1);
  EXPECT_EQ(workers[0]->listKeys(), std::vector<std::string>());  // the check-in's key has no slash
  workers[0]->waitForWorkers();
}

TEST(TcpStoreClient, NoticesTheServersEndWhileItWaits) {
  OurServer server;
  const c10::intrusive_ptr<TCPStore> store = connect(server.port());
  std::future<std::string> waiting =
      std::async(std::launch::async, [&] { return outcome([&] { store->wait({"never"}); }); });
  server.stop();
  EXPECT_EQ(waiting.get(), "DistNetworkError");
  EXPECT_EQ(outcome([&] { return store->get("never"); }), "DistNetworkError");
}

}  // namespace
}  // namespace cpprun::worker::test
