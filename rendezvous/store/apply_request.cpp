#include "rendezvous/store/apply_request.hpp"

#include <algorithm>
#include <optional>

namespace cpprun::store {
namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);

Fault put_values(const StoreTable& table, const std::vector<std::string_view>& keys, std::size_t max_bytes,
                 std::string& reply) {
  std::size_t bytes = 0;
  for (const std::string_view key : keys) bytes += kLengthBytes + table.get(key).size();
  if (bytes > max_bytes) return Fault::ReplyTooLong;
  for (const std::string_view key : keys) put_text(reply, table.get(key));
  return Fault::None;
}

Fault put_keys(const StoreTable& table, std::size_t max_bytes, std::string& reply) {
  const std::vector<std::string_view> keys = table.keys();
  std::size_t bytes = kLengthBytes;
  for (const std::string_view key : keys) bytes += kLengthBytes + key.size();
  if (bytes > max_bytes) return Fault::ReplyTooLong;
  put_number<std::uint64_t>(reply, keys.size());
  for (const std::string_view key : keys) put_text(reply, key);
  return Fault::None;
}

// A connection may have a wait open while it sends more: its own wake-up precedes the reply.
void put_own_wakeup(ConnectionId connection, std::size_t before, std::string& reply, Wakeups& woken) {
  if (woken.size() == before) return;
  const Wakeups::iterator own =
      std::find(woken.begin() + static_cast<std::ptrdiff_t>(before), woken.end(), connection);
  if (own == woken.end()) return;
  woken.erase(own);
  put_number(reply, kStopWaiting);
}

}  // namespace

Fault apply_request(StoreTable& table, ConnectionId connection, const Request& request,
                    std::size_t max_reply_bytes, std::string& reply, Wakeups& woken) {
  const std::size_t before = woken.size();
  switch (request.op) {
    case Op::Validate:  // the decoder's business
      return Fault::ValidatedTwice;
    case Op::Open:  // the session's business, as is LINK
    case Op::Link:
      return Fault::UnknownOpcode;
    case Op::Set:
    case Op::MultiSet:
      table.set(request.key, request.value, woken);
      put_own_wakeup(connection, before, reply, woken);
      return Fault::None;
    case Op::Append:
      table.append(request.key, request.value, woken);
      put_own_wakeup(connection, before, reply, woken);
      return Fault::None;
    case Op::QueuePush:
      table.queue_push(request.key, request.value, woken);
      put_own_wakeup(connection, before, reply, woken);
      return Fault::None;
    case Op::CompareSet: {
      const std::string_view current = table.compare_set(request.key, request.expected, request.value, woken);
      put_own_wakeup(connection, before, reply, woken);
      put_text(reply, current);
      return Fault::None;
    }
    case Op::Add: {
      const std::optional<std::int64_t> sum = table.add(request.key, request.number, woken);
      if (!sum) return Fault::NotANumber;
      put_own_wakeup(connection, before, reply, woken);
      put_number(reply, *sum);
      return Fault::None;
    }
    case Op::Get:
      put_text(reply, table.get(request.key));
      return Fault::None;
    case Op::MultiGet:
      return put_values(table, request.keys, max_reply_bytes, reply);
    case Op::Check:
      put_number(reply, table.check(request.keys) ? kReady : kNotReady);
      return Fault::None;
    case Op::Wait:
      switch (table.wait(connection, request.keys)) {
        case StoreTable::Parked::No:
          put_number(reply, kStopWaiting);
          return Fault::None;
        case StoreTable::Parked::Yes:
          return Fault::None;
        case StoreTable::Parked::TooMany:
          return Fault::TooManyWaits;
      }
      return Fault::None;
    case Op::CancelWait:
      table.forget(connection);
      put_number(reply, kWaitCancelled);
      return Fault::None;
    case Op::Barrier: {
      const StoreTable::Arrival arrival = table.arrive(connection, request.key, request.number, woken);
      if (!arrival.number) return Fault::NotANumber;
      if (arrival.parked == StoreTable::Parked::TooMany) return Fault::TooManyWaits;
      put_own_wakeup(connection, before, reply, woken);
      if (arrival.parked == StoreTable::Parked::No) put_number(reply, kStopWaiting);
      return Fault::None;
    }
    case Op::GetNumKeys:
      put_number(reply, table.size());
      return Fault::None;
    case Op::DeleteKey:
      put_number<std::int64_t>(reply, table.erase(request.key) ? 1 : 0);
      return Fault::None;
    case Op::ListKeys:
      return put_keys(table, max_reply_bytes, reply);
    case Op::Ping:
      put_number(reply, static_cast<std::uint32_t>(request.number));
      return Fault::None;
    case Op::QueueLen:
      put_number(reply, table.queue_length(request.key));
      return Fault::None;
    case Op::QueuePop: {
      put_number(reply, table.queue_length(request.key));
      if (const std::optional<std::string> value = table.queue_pop(request.key)) put_text(reply, *value);
      return Fault::None;
    }
  }
  return Fault::UnknownOpcode;
}

}  // namespace cpprun::store
