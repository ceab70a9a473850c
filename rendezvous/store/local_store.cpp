#include "rendezvous/store/local_store.hpp"

#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>
#include <string_view>
#include <utility>

#include "rendezvous/store/cas_result.hpp"

namespace cpprun::store {

// One open wait, known to the table and to the store as long as its coroutine lives.
struct LocalStore::OpenWait {
  OpenWait(LocalStore& in, ConnectionId me) : store(in), id(me), ended(in.executor_) {
    store.waiting_.emplace(id, this);
  }
  ~OpenWait() {
    store.waiting_.erase(id);
    store.table_.forget(id);
  }
  OpenWait(const OpenWait&) = delete;
  OpenWait& operator=(const OpenWait&) = delete;

  LocalStore& store;
  ConnectionId id;
  async::Event ended;
  bool woken = false;
};

LocalStore::LocalStore(asio::any_io_executor executor) : executor_(std::move(executor)) {}

void LocalStore::wake(const Wakeups& woken) {
  for (const ConnectionId id : woken) {
    OpenWait& open = *waiting_.at(id);
    open.woken = true;
    open.ended.notify_all();
  }
}

awaitable<Bytes> LocalStore::get(Key key) {
  co_return Bytes(table_.get(key));
}

awaitable<std::vector<Bytes>> LocalStore::multi_get(std::vector<Key> keys) {
  std::vector<Bytes> values;
  values.reserve(keys.size());
  for (const Key& key : keys) values.emplace_back(table_.get(key));
  co_return values;
}

awaitable<void> LocalStore::set(Key key, Bytes value) {
  Wakeups woken;
  table_.set(key, value, woken);
  wake(woken);
  co_return;
}

awaitable<void> LocalStore::append(Key key, Bytes value) {
  Wakeups woken;
  table_.append(key, value, woken);
  wake(woken);
  co_return;
}

awaitable<std::int64_t> LocalStore::add(Key key, std::int64_t delta) {
  Wakeups woken;
  const std::optional<std::int64_t> sum = table_.add(key, delta, woken);
  if (!sum) throw StoreError(StoreFailure::Refused, "cannot add to " + key + ": its value is not a number");
  wake(woken);
  co_return *sum;
}

awaitable<CasResult> LocalStore::compare_set(Key key, Bytes expected, Bytes desired) {
  require_distinct(expected, desired);
  Wakeups woken;
  CasResult result = read_cas_reply(table_.compare_set(key, expected, desired, woken), expected, desired);
  wake(woken);
  co_return result;
}

awaitable<WaitResult> LocalStore::wait(std::vector<Key> keys, Deadline deadline) {
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  OpenWait open(*this, next_id_++);
  const StoreTable::Parked parked = table_.wait(open.id, views);
  if (parked == StoreTable::Parked::No) co_return WaitResult::Ready;
  if (parked == StoreTable::Parked::TooMany) {
    throw StoreError(StoreFailure::Refused,
                     "cannot wait for " + std::to_string(keys.size()) + " keys at once");
  }
  co_await open.ended.wait_until(deadline.time());
  if (open.woken) co_return WaitResult::Ready;
  if (deadline.passed()) co_return WaitResult::TimedOut;
  throw boost::system::system_error(asio::error::operation_aborted);
}

awaitable<bool> LocalStore::check(std::vector<Key> keys) {
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  co_return table_.check(views);
}

awaitable<bool> LocalStore::erase(Key key) {
  co_return table_.erase(key);
}

awaitable<std::int64_t> LocalStore::count() {
  co_return table_.size();
}

}  // namespace cpprun::store
