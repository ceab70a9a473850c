#include "rendezvous/store/store_client.hpp"

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <random>
#include <utility>

#include "rendezvous/store/address_text.hpp"
#include "rendezvous/store/cas_result.hpp"
#include "rendezvous/store/host_lookup.hpp"
#include "rendezvous/store/protocol.hpp"
#include "rendezvous/store/store_connection.hpp"

namespace cpprun::store {
namespace {

using asio::ip::tcp;

// Pauses between attempts to connect, drawn from half to one and a half times these: agents that start
// together do not knock together.
constexpr std::chrono::milliseconds kFirstPause(20);
constexpr std::chrono::milliseconds kLongestPause(1000);
// Of one attempt at one address: a host that drops packets must not use up the time of the next address.
constexpr std::chrono::milliseconds kAttemptLimit(10'000);
constexpr std::size_t kMaxIdle = 4;

// c10d's clients write every key below a slash.
void put_key(std::string& request, const Key& key) {
  put_number<std::uint64_t>(request, key.size() + 1);
  request.push_back('/');
  request.append(key);
}

std::string request_for(Op op, const Key& key) {
  std::string request;
  put_number(request, op);
  put_key(request, key);
  return request;
}

std::string request_for(Op op, const std::vector<Key>& keys) {
  std::string request;
  put_number(request, op);
  put_number<std::uint64_t>(request, keys.size());
  for (const Key& key : keys) put_key(request, key);
  return request;
}

std::chrono::milliseconds jittered(std::chrono::milliseconds pause) {
  static std::minstd_rand random{std::random_device{}()};
  return std::chrono::milliseconds(std::uniform_int_distribution<std::int64_t>(
      pause / std::chrono::milliseconds(2), pause.count() * 3 / 2)(random));
}

StoreError confused(const StoreEndpoint& endpoint) {
  return StoreError(StoreFailure::Lost, "the store at " + to_string(endpoint) + " broke the protocol");
}

}  // namespace

std::string to_string(const StoreEndpoint& endpoint) {
  return to_text(endpoint.host, endpoint.port);
}

// A connection in use by one call. Dropped, and the connection with it, unless given back.
class StoreClient::Lease {
 public:
  Lease(StoreClient& client, std::unique_ptr<StoreConnection> connection)
      : client_(&client), connection_(std::move(connection)) {}
  StoreConnection* operator->() { return connection_.get(); }
  void give_back() {
    if (client_->idle_.size() < kMaxIdle) client_->idle_.push_back(std::move(connection_));
  }

 private:
  StoreClient* client_;
  std::unique_ptr<StoreConnection> connection_;
};

StoreClient::StoreClient(StoreEndpoint endpoint, std::chrono::milliseconds request_limit)
    : endpoint_(std::move(endpoint)), request_limit_(request_limit) {}
StoreClient::~StoreClient() = default;

awaitable<std::unique_ptr<StoreClient>> StoreClient::connect(StoreEndpoint endpoint, Deadline deadline,
                                                             std::chrono::milliseconds request_limit) {
  std::unique_ptr<StoreClient> client(new StoreClient(std::move(endpoint), request_limit));
  const std::string name = to_string(client->endpoint_);
  std::string reason = "the time limit is over";
  std::chrono::milliseconds pause = kFirstPause;
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  asio::steady_timer timer(executor);
  for (;;) {
    HostAddresses host = co_await look_up(client->endpoint_.host, client->endpoint_.port, deadline);
    if (!host.error.empty()) reason = "cannot connect to the store at " + name + ": " + host.error;
    for (const tcp::endpoint& address : host.endpoints) {
      const Deadline attempt = Deadline::earlier(deadline, Deadline::after(kAttemptLimit));
      try {
        std::unique_ptr<StoreConnection> connection =
            co_await StoreConnection::open(address, name, ConnectionPurpose(), attempt);
        client->address_ = address;
        client->idle_.push_back(std::move(connection));
        co_return client;
      } catch (const StoreError& error) {
        if (error.failure() == StoreFailure::Refused) throw;
        reason = error.what();
      }
    }
    const std::chrono::milliseconds next = jittered(pause);
    if (deadline.remaining() <= next) break;
    timer.expires_after(next);
    co_await timer.async_wait(async::use_error);
    pause = std::min(pause * 3 / 2, kLongestPause);
  }
  throw StoreError(StoreFailure::Unreachable, reason);
}

awaitable<StoreClient::Lease> StoreClient::borrow(Deadline deadline) {
  while (!idle_.empty()) {
    std::unique_ptr<StoreConnection> connection = std::move(idle_.back());
    idle_.pop_back();
    if (connection->usable()) co_return Lease(*this, std::move(connection));
  }
  std::unique_ptr<StoreConnection> connection =
      co_await StoreConnection::open(address_, to_string(endpoint_), ConnectionPurpose(), deadline);
  co_return Lease(*this, std::move(connection));
}

template <typename T>
awaitable<T> StoreClient::ask_number(std::string request) {
  const Deadline deadline = request_deadline();
  Lease connection = co_await borrow(deadline);
  co_await connection->send(request, deadline);
  const T reply = co_await connection->receive_number<T>(deadline);
  connection.give_back();
  co_return reply;
}

awaitable<Bytes> StoreClient::ask_text(std::string request) {
  const Deadline deadline = request_deadline();
  Lease connection = co_await borrow(deadline);
  co_await connection->send(request, deadline);
  Bytes reply = co_await connection->receive_text(deadline);
  connection.give_back();
  co_return reply;
}

// SET and APPEND have no reply; a PING behind them has, and says that they were served.
awaitable<void> StoreClient::write(std::string request) {
  constexpr std::uint32_t kNonce = 0x52554E43;
  put_number(request, Op::Ping);
  put_number(request, kNonce);
  const std::uint32_t answer = co_await ask_number<std::uint32_t>(std::move(request));
  if (answer != kNonce) throw confused(endpoint_);
}

awaitable<void> StoreClient::set(Key key, Bytes value) {
  std::string request = request_for(Op::Set, key);
  put_text(request, value);
  return write(std::move(request));
}

awaitable<void> StoreClient::append(Key key, Bytes value) {
  std::string request = request_for(Op::Append, key);
  put_text(request, value);
  return write(std::move(request));
}

awaitable<Bytes> StoreClient::get(Key key) {
  return ask_text(request_for(Op::Get, key));
}

awaitable<std::vector<Bytes>> StoreClient::multi_get(std::vector<Key> keys) {
  const Deadline deadline = request_deadline();
  const std::string request = request_for(Op::MultiGet, keys);
  Lease connection = co_await borrow(deadline);
  co_await connection->send(request, deadline);
  std::vector<Bytes> values;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    Bytes value = co_await connection->receive_text(deadline);
    values.push_back(std::move(value));
  }
  connection.give_back();
  co_return values;
}

awaitable<std::int64_t> StoreClient::add(Key key, std::int64_t delta) {
  std::string request = request_for(Op::Add, key);
  put_number(request, delta);
  return ask_number<std::int64_t>(std::move(request));
}

awaitable<CasResult> StoreClient::compare_set(Key key, Bytes expected, Bytes desired) {
  require_distinct(expected, desired);
  std::string request = request_for(Op::CompareSet, key);
  put_text(request, expected);
  put_text(request, desired);
  const Bytes reply = co_await ask_text(std::move(request));
  co_return read_cas_reply(reply, expected, desired);
}

awaitable<WaitResult> StoreClient::wait(std::vector<Key> keys, Deadline deadline) {
  const std::string request = request_for(Op::Wait, keys);
  Lease connection = co_await borrow(request_deadline());
  co_await connection->send(request, request_deadline());
  const bool answered = co_await connection->wait_readable(deadline);
  const Deadline limit = request_deadline();
  if (!answered) {
    std::string cancel;
    put_number(cancel, Op::CancelWait);
    co_await connection->send(cancel, limit);
  }
  std::uint8_t reply = co_await connection->receive_number<std::uint8_t>(limit);
  WaitResult result = reply == kStopWaiting ? WaitResult::Ready : WaitResult::TimedOut;
  // A wake-up that crossed our cancel on the way comes before the cancel's own answer.
  if (!answered && reply == kStopWaiting) reply = co_await connection->receive_number<std::uint8_t>(limit);
  if (reply != (answered ? kStopWaiting : kWaitCancelled)) throw confused(endpoint_);
  connection.give_back();
  co_return result;
}

awaitable<bool> StoreClient::check(std::vector<Key> keys) {
  std::string request = request_for(Op::Check, keys);
  const std::uint8_t reply = co_await ask_number<std::uint8_t>(std::move(request));
  co_return reply == kReady;
}

awaitable<bool> StoreClient::erase(Key key) {
  std::string request = request_for(Op::DeleteKey, key);
  const std::int64_t erased = co_await ask_number<std::int64_t>(std::move(request));
  co_return erased > 0;
}

awaitable<std::int64_t> StoreClient::count() {
  std::string request;
  put_number(request, Op::GetNumKeys);
  return ask_number<std::int64_t>(std::move(request));
}

}  // namespace cpprun::store
