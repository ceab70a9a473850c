// A store on another process's server, by the protocol of PROTOCOL.md.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/store/store.hpp"

namespace cpprun::store {

struct StoreEndpoint {
  std::string host;  // a numeric address, or a name to look up
  std::uint16_t port = 0;
};
std::string to_string(const StoreEndpoint& endpoint);  // host:port, an IPv6 address in brackets

class StoreConnection;

// Uses one connection for each call in flight and keeps idle ones, so that a long wait never holds up another
// call. A connection is given up when a call on it fails, is cancelled or times out; the next call makes
// another one. set and append return once the store has answered, so what they wrote is there for everybody.
class StoreClient : public Store {
 public:
  // Limit of one plain request, and of making one more connection.
  static constexpr std::chrono::milliseconds kRequestLimit = std::chrono::seconds(30);

  // Connects, repeating with growing pauses until `deadline` while there is nobody at the endpoint. Throws
  // StoreError(Unreachable) that names host, port and the last reason, or at once Refused if another service
  // answers.
  static awaitable<std::unique_ptr<StoreClient>> connect(
      StoreEndpoint endpoint, Deadline deadline, std::chrono::milliseconds request_limit = kRequestLimit);
  ~StoreClient() override;

  awaitable<Bytes> get(Key key) override;
  awaitable<std::vector<Bytes>> multi_get(std::vector<Key> keys) override;
  awaitable<void> set(Key key, Bytes value) override;
  awaitable<void> append(Key key, Bytes value) override;
  awaitable<std::int64_t> add(Key key, std::int64_t delta) override;
  awaitable<CasResult> compare_set(Key key, Bytes expected, Bytes desired) override;
  awaitable<WaitResult> wait(std::vector<Key> keys, Deadline deadline) override;
  awaitable<bool> check(std::vector<Key> keys) override;
  awaitable<bool> erase(Key key) override;
  awaitable<std::int64_t> count() override;

  const StoreEndpoint& endpoint() const { return endpoint_; }

 private:
  class Lease;

  StoreClient(StoreEndpoint endpoint, std::chrono::milliseconds request_limit);
  Deadline request_deadline() const { return Deadline::after(request_limit_); }
  awaitable<Lease> borrow(Deadline deadline);
  template <typename T>
  awaitable<T> ask_number(std::string request);
  awaitable<Bytes> ask_text(std::string request);
  awaitable<void> write(std::string request);

  StoreEndpoint endpoint_;
  std::chrono::milliseconds request_limit_;
  asio::ip::tcp::endpoint address_;  // the one of the host's addresses that answered
  std::vector<std::unique_ptr<StoreConnection>> idle_;
};

}  // namespace cpprun::store
