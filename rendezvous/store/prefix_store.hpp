// A view of another store in which every key is below `prefix/`. Nested prefixes read outermost last, as with
// c10d: PrefixStore("outer", PrefixStore("inner", s)) writes inner/outer/key.
#pragma once

#include <string>
#include <vector>

#include "rendezvous/store/store.hpp"

namespace cpprun::store {

class PrefixStore : public Store {
 public:
  // `store` must outlive this view.
  PrefixStore(const std::string& prefix, Store& store) : prefix_(prefix + '/'), store_(store) {}

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
  std::vector<Key> below(std::vector<Key> keys) const;

  std::string prefix_;
  Store& store_;
};

}  // namespace cpprun::store
