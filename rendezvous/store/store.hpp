// A key-value store that several processes share, as the agents and the rendezvous use it. Keys and values
// are arbitrary bytes. Every call ends: plain calls within the store's own time limit, waits at their
// deadline.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "rendezvous/async/deadline.hpp"
#include "rendezvous/async/tokens.hpp"

namespace cpprun::store {

using async::Deadline;
using Key = std::string;
using Bytes = std::string;

enum class CasOutcome {
  Won,     // the key holds `desired` now
  Lost,    // the key holds another value, given in `current`
  Absent,  // a value was expected and there is none; nothing was stored
};
struct CasResult {
  CasOutcome outcome;
  Bytes current;  // the key's value after the call; empty if Absent
};

enum class WaitResult { Ready, TimedOut };

enum class StoreFailure {
  Unreachable,    // no connection could be made in time
  NobodyListens,  // likewise: the host is there, and says that no process serves the port
  Lost,           // the connection broke; whether the request took effect is unknown
  NoAnswer,       // the store did not answer a request in time; as Lost
  Refused,        // trying again is of no use: ADD on a value that is not a number, no store at the endpoint
};

// Why a store could not do its work, in one sentence that names the store.
class StoreError : public std::runtime_error {
 public:
  StoreError(StoreFailure failure, const std::string& sentence)
      : std::runtime_error(sentence), failure_(failure) {}
  StoreFailure failure() const { return failure_; }

 private:
  StoreFailure failure_;
};

// Calls may overlap; two calls that overlap have no order between them. Each throws StoreError. The store
// must outlive its calls; a cancelled call ends with operation_aborted and may or may not have taken effect.
class Store {
 public:
  virtual ~Store() = default;

  // The value; empty if the key is absent (`check` and `wait` tell the difference).
  virtual awaitable<Bytes> get(Key key) = 0;
  // The values in the order of the keys.
  virtual awaitable<std::vector<Bytes>> multi_get(std::vector<Key> keys) = 0;
  virtual awaitable<void> set(Key key, Bytes value) = 0;
  // Appends to the value, creating it if absent.
  virtual awaitable<void> append(Key key, Bytes value) = 0;
  // Adds to the decimal number at the key (absent: 0) and returns the sum.
  virtual awaitable<std::int64_t> add(Key key, std::int64_t delta) = 0;
  // Stores `desired` if the value is `expected`; an empty `expected` also matches an absent key. The two must
  // differ (std::invalid_argument): the protocol's reply could not tell success from absence.
  virtual awaitable<CasResult> compare_set(Key key, Bytes expected, Bytes desired) = 0;
  // Waits until each key has been written. Since others may delete, a key can be absent again on return.
  virtual awaitable<WaitResult> wait(std::vector<Key> keys, Deadline deadline) = 0;
  // True if every key is present.
  virtual awaitable<bool> check(std::vector<Key> keys) = 0;
  // True if the key was there.
  virtual awaitable<bool> erase(Key key) = 0;
  // Number of keys in the whole store, whatever the prefix.
  virtual awaitable<std::int64_t> count() = 0;
};

}  // namespace cpprun::store
