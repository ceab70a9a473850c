#include "rendezvous/store/prefix_store.hpp"

#include <utility>

namespace cpprun::store {

std::vector<Key> PrefixStore::below(std::vector<Key> keys) const {
  for (Key& key : keys) key.insert(0, prefix_);
  return keys;
}

awaitable<Bytes> PrefixStore::get(Key key) {
  return store_.get(prefix_ + key);
}

awaitable<std::vector<Bytes>> PrefixStore::multi_get(std::vector<Key> keys) {
  return store_.multi_get(below(std::move(keys)));
}

awaitable<void> PrefixStore::set(Key key, Bytes value) {
  return store_.set(prefix_ + key, std::move(value));
}

awaitable<void> PrefixStore::append(Key key, Bytes value) {
  return store_.append(prefix_ + key, std::move(value));
}

awaitable<std::int64_t> PrefixStore::add(Key key, std::int64_t delta) {
  return store_.add(prefix_ + key, delta);
}

awaitable<CasResult> PrefixStore::compare_set(Key key, Bytes expected, Bytes desired) {
  return store_.compare_set(prefix_ + key, std::move(expected), std::move(desired));
}

awaitable<WaitResult> PrefixStore::wait(std::vector<Key> keys, Deadline deadline) {
  return store_.wait(below(std::move(keys)), deadline);
}

awaitable<bool> PrefixStore::check(std::vector<Key> keys) {
  return store_.check(below(std::move(keys)));
}

awaitable<bool> PrefixStore::erase(Key key) {
  return store_.erase(prefix_ + key);
}

awaitable<std::int64_t> PrefixStore::count() {
  return store_.count();
}

}  // namespace cpprun::store
