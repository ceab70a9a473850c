// The store's contents and who waits for what. Pure: results and wake-ups are values; sockets, replies' bytes
// and time are others' business. Semantics are those of LibTorch's libuv server; PROTOCOL.md lists the
// differences.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace cpprun::store {

using ConnectionId = std::uint32_t;
// Connections whose wait has just ended, oldest registration first. Calls append.
using Wakeups = std::vector<ConnectionId>;

class StoreTable {
 public:
  StoreTable() = default;
  StoreTable(StoreTable&&) = default;
  StoreTable& operator=(StoreTable&&) = default;

  // Views stay valid until the next change of the table. An absent key reads as empty.
  std::string_view get(std::string_view key) const;
  bool check(std::span<const std::string_view> keys) const;  // each a key, or a queue that is not empty
  bool holds(std::string_view key) const;                    // a value
  std::int64_t size() const { return present_; }             // of keys; queues do not count
  std::size_t bytes() const { return bytes_; }               // of keys and values, queues' included
  std::vector<std::string_view> keys() const;                // in no order

  void set(std::string_view key, std::string_view value, Wakeups& woken);
  void append(std::string_view key, std::string_view value, Wakeups& woken);
  // The sum, wrapped around at 64 bits; nothing if the value does not start with a number.
  std::optional<std::int64_t> add(std::string_view key, std::int64_t delta, Wakeups& woken);
  // The protocol's reply: the value now stored, or `expected` if it is not empty and the key is absent. Wakes
  // waiters even where nothing is stored.
  std::string_view compare_set(std::string_view key, std::string_view expected, std::string_view desired,
                               Wakeups& woken);
  bool erase(std::string_view key);

  // Wakes one waiter, the oldest whose wait this ends.
  void queue_push(std::string_view key, std::string_view value, Wakeups& woken);
  std::optional<std::string> queue_pop(std::string_view key);
  std::int64_t queue_length(std::string_view key) const;

  enum class Parked { No, Yes, TooMany };
  // No: every key is there (see check). Yes: the caller appears in a later call's wake-ups, once. A new wait
  // takes the place of an open one, but keys of the open one still count towards it. TooMany: nothing has
  // changed.
  Parked wait(ConnectionId connection, std::span<const std::string_view> keys);

  struct Arrival {
    bool number = true;  // false: the key's value is not a number; nothing has changed
    Parked parked = Parked::No;
  };
  // Counts one more arrival at the key; the one that makes `world_size` or more wakes all who wait there.
  Arrival arrive(ConnectionId connection, std::string_view key, std::int64_t world_size, Wakeups& woken);

  // Forgets what the connection waits for: it cancels, or it is gone.
  void forget(ConnectionId connection);
  std::size_t waiting() const { return waiters_.size(); }  // connections with an open wait

 private:
  struct Waiter;
  struct Registration {
    Waiter* waiter;
    std::size_t place;  // in waiter->registrations
  };
  // What few keys have.
  struct Extra {
    std::deque<std::string> queue;
    std::list<Registration> waiting;  // oldest first
  };
  struct Entry {
    std::string value;
    bool present = false;
    std::unique_ptr<Extra> extra;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Entries = std::unordered_map<std::string, Entry, Hash, std::equal_to<>>;
  using Node = Entries::value_type;
  struct Place {
    Node* node;
    std::list<Registration>::iterator registration;
  };
  struct Waiter {
    ConnectionId connection;
    std::int64_t outstanding = 0;  // keys still to be written
    std::vector<Place> registrations;
  };

  Node& node(std::string_view key);
  const Entry* find(std::string_view key) const;
  void store(Node& node, std::string_view value);
  void wake_all(Node& node, Wakeups& woken);
  bool take(Node& node, std::list<Registration>::iterator registration);
  Parked park(ConnectionId connection, std::span<Node* const> nodes);
  void tidy(Node& node);

  Entries entries_;
  std::int64_t present_ = 0;
  std::size_t bytes_ = 0;
  std::unordered_map<ConnectionId, Waiter> waiters_;
};

}  // namespace cpprun::store
