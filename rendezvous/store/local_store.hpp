// A store inside this process: the same table as the server's, without a socket.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <unordered_map>
#include <vector>

#include "rendezvous/async/event.hpp"
#include "rendezvous/store/store.hpp"
#include "rendezvous/store/store_table.hpp"

namespace cpprun::store {

class LocalStore : public Store {
 public:
  explicit LocalStore(asio::any_io_executor executor);

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

 private:
  struct OpenWait;

  void wake(const Wakeups& woken);

  asio::any_io_executor executor_;
  StoreTable table_;
  std::unordered_map<ConnectionId, OpenWait*> waiting_;
  ConnectionId next_id_ = 0;
};

}  // namespace cpprun::store
