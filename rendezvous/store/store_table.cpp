#include "rendezvous/store/store_table.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>

#include "rendezvous/store/protocol.hpp"

namespace cpprun::store {
namespace {

// The number a value starts with, read as C's strtoll reads it: blanks, a sign, digits; the rest is ignored.
std::optional<std::int64_t> leading_number(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  if (!text.empty() && text.front() == '+') {
    text.remove_prefix(1);
    if (!text.empty() && text.front() == '-') return std::nullopt;
  }
  std::int64_t number = 0;
  const std::from_chars_result parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc()) return std::nullopt;
  return number;
}

std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

}  // namespace

const StoreTable::Entry* StoreTable::find(std::string_view key) const {
  const Entries::const_iterator found = entries_.find(key);
  return found == entries_.end() ? nullptr : &found->second;
}

StoreTable::Node& StoreTable::node(std::string_view key) {
  const Entries::iterator found = entries_.find(key);
  if (found != entries_.end()) return *found;
  return *entries_.emplace(std::string(key), Entry()).first;
}

// Removes an entry that neither holds nor awaits anything.
void StoreTable::tidy(Node& node) {
  Entry& entry = node.second;
  if (entry.extra && entry.extra->queue.empty() && entry.extra->waiting.empty()) entry.extra.reset();
  if (!entry.present && !entry.extra) entries_.erase(entries_.find(node.first));
}

void StoreTable::store(Node& node, std::string_view value) {
  Entry& entry = node.second;
  // A short value does not keep the room of a long one before it.
  if (entry.value.capacity() > 4096 && value.size() < entry.value.capacity() / 4) {
    std::string(value).swap(entry.value);
  } else {
    entry.value.assign(value);
  }
  if (!entry.present) ++present_;
  entry.present = true;
}

std::string_view StoreTable::get(std::string_view key) const {
  const Entry* entry = find(key);
  return entry ? std::string_view(entry->value) : std::string_view();
}

bool StoreTable::check(std::span<const std::string_view> keys) const {
  return std::all_of(keys.begin(), keys.end(), [this](std::string_view key) {
    const Entry* entry = find(key);
    return entry && (entry->present || (entry->extra && !entry->extra->queue.empty()));
  });
}

std::vector<std::string_view> StoreTable::keys() const {
  std::vector<std::string_view> names;
  names.reserve(static_cast<std::size_t>(present_));
  for (const Node& node : entries_) {
    if (node.second.present) names.push_back(node.first);
  }
  return names;
}

void StoreTable::set(std::string_view key, std::string_view value, Wakeups& woken) {
  Node& at = node(key);
  store(at, value);
  wake_all(at, woken);
}

void StoreTable::append(std::string_view key, std::string_view value, Wakeups& woken) {
  Node& at = node(key);
  if (!at.second.present) {
    store(at, value);
  } else {
    at.second.value.append(value);
  }
  wake_all(at, woken);
}

std::optional<std::int64_t> StoreTable::add(std::string_view key, std::int64_t delta, Wakeups& woken) {
  const Entry* entry = find(key);
  std::optional<std::int64_t> sum = delta;
  if (entry && entry->present) {
    const std::optional<std::int64_t> old = leading_number(entry->value);
    if (!old) return std::nullopt;
    sum = wrapping_sum(*old, delta);
  }
  set(key, std::to_string(*sum), woken);
  return sum;
}

std::string_view StoreTable::compare_set(std::string_view key, std::string_view expected,
                                         std::string_view desired, Wakeups& woken) {
  const Entries::iterator found = entries_.find(key);
  const bool present = found != entries_.end() && found->second.present;
  if (present ? found->second.value == expected : expected.empty()) {
    set(key, desired, woken);
    return desired;
  }
  if (found != entries_.end()) wake_all(*found, woken);  // which may remove the entry of an absent key
  return present ? std::string_view(found->second.value) : expected;
}

bool StoreTable::erase(std::string_view key) {
  const Entries::iterator found = entries_.find(key);
  if (found == entries_.end() || !found->second.present) return false;
  found->second.present = false;
  std::string().swap(found->second.value);  // a queue keeps the entry
  --present_;
  tidy(*found);
  return true;
}

void StoreTable::queue_push(std::string_view key, std::string_view value, Wakeups& woken) {
  Node& at = node(key);
  if (!at.second.extra) at.second.extra = std::make_unique<Extra>();
  std::list<Registration>& waiting = at.second.extra->waiting;
  at.second.extra->queue.emplace_back(value);
  while (!waiting.empty()) {
    const ConnectionId connection = waiting.front().waiter->connection;
    if (!take(at, waiting.begin())) continue;  // it waits for more keys; this push is not its wake-up
    woken.push_back(connection);
    return;
  }
}

std::optional<std::string> StoreTable::queue_pop(std::string_view key) {
  const Entries::iterator found = entries_.find(key);
  if (found == entries_.end() || !found->second.extra || found->second.extra->queue.empty())
    return std::nullopt;
  std::deque<std::string>& queue = found->second.extra->queue;
  std::optional<std::string> value = std::move(queue.front());
  queue.pop_front();
  if (queue.empty()) tidy(*found);
  return value;
}

std::int64_t StoreTable::queue_length(std::string_view key) const {
  const Entry* entry = find(key);
  return entry && entry->extra ? static_cast<std::int64_t>(entry->extra->queue.size()) : 0;
}

StoreTable::Parked StoreTable::wait(ConnectionId connection, std::span<const std::string_view> keys) {
  if (check(keys)) return Parked::No;
  const auto open = waiters_.find(connection);
  const std::size_t before = open == waiters_.end() ? 0 : open->second.registrations.size();
  if (before + keys.size() > kMaxKeysPerRequest) return Parked::TooMany;
  std::vector<Node*> absent;
  for (const std::string_view key : keys) {
    const Entry* entry = find(key);
    if (!entry || !entry->present) absent.push_back(&node(key));
  }
  return park(connection, absent);
}

StoreTable::Parked StoreTable::park(ConnectionId connection, std::span<Node* const> nodes) {
  Waiter& waiter = waiters_[connection];
  waiter.connection = connection;
  waiter.outstanding = static_cast<std::int64_t>(nodes.size());
  waiter.registrations.reserve(waiter.registrations.size() + nodes.size());
  for (Node* at : nodes) {
    if (!at->second.extra) at->second.extra = std::make_unique<Extra>();
    std::list<Registration>& waiting = at->second.extra->waiting;
    waiting.push_back({&waiter, waiter.registrations.size()});
    waiter.registrations.push_back({at, std::prev(waiting.end())});
  }
  return Parked::Yes;
}

StoreTable::Arrival StoreTable::arrive(ConnectionId connection, std::string_view key, std::int64_t world_size,
                                       Wakeups& woken) {
  Node& at = node(key);
  std::int64_t arrived = 0;
  if (at.second.present) {
    const std::optional<std::int64_t> old = leading_number(at.second.value);
    if (!old) return {.number = false};
    arrived = *old;
  }
  arrived = wrapping_sum(arrived, 1);
  const bool last = arrived >= world_size;
  const auto open = waiters_.find(connection);
  if (!last && open != waiters_.end() && open->second.registrations.size() >= kMaxKeysPerRequest) {
    return {.parked = Parked::TooMany};
  }
  store(at, std::to_string(arrived));
  if (last) {
    wake_all(at, woken);
    return {};
  }
  Node* const here = &at;
  return {.parked = park(connection, std::span<Node* const>(&here, 1))};
}

// One registration is met and forgotten. True if that ended its connection's wait, which is then forgotten
// whole.
bool StoreTable::take(Node& node, std::list<Registration>::iterator registration) {
  Waiter& waiter = *registration->waiter;
  if (--waiter.outstanding > 0) {
    const Place last = waiter.registrations.back();
    last.registration->place = registration->place;
    waiter.registrations[registration->place] = last;
    waiter.registrations.pop_back();
    node.second.extra->waiting.erase(registration);
    return false;
  }
  // The entry at hand stays while its caller still looks at it.
  for (const Place& place : waiter.registrations) {
    place.node->second.extra->waiting.erase(place.registration);
    if (place.node != &node) tidy(*place.node);
  }
  waiters_.erase(waiter.connection);
  return true;
}

void StoreTable::wake_all(Node& node, Wakeups& woken) {
  if (!node.second.extra) return;
  std::list<Registration>& waiting = node.second.extra->waiting;
  while (!waiting.empty()) {
    const ConnectionId connection = waiting.front().waiter->connection;
    if (take(node, waiting.begin())) woken.push_back(connection);
  }
  tidy(node);
}

void StoreTable::forget(ConnectionId connection) {
  const auto open = waiters_.find(connection);
  if (open == waiters_.end()) return;
  const std::vector<Place> registrations = std::move(open->second.registrations);
  waiters_.erase(open);
  for (const Place& place : registrations) {
    place.node->second.extra->waiting.erase(place.registration);
    tidy(*place.node);  // an entry listed twice goes with its last registration
  }
}

}  // namespace cpprun::store
