// Requests and replies of etcd's JSON gateway: keys and values in base64, 64-bit numbers as strings, and
// whatever is zero or empty left out. Pure.
#pragma once

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "rendezvous/etcd/etcd_data.hpp"

namespace cpprun::rendezvous::messages {

// The reply is none of etcd's.
struct BadReply : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The bodies of requests.
// A part of the keys in `range` from `first` on, at most `limit` of them, as they were at `at` (0: now).
std::string list_request(const KeyRange& range, const std::string& first, int limit, Revision at);
std::string put_request(const std::string& key, const std::string& value, LeaseId lease);
std::string fenced_put_request(const std::string& key, const std::string& value, LeaseId lease,
                               const Fence& fence);
std::string create_request(const std::string& key, const std::string& value, LeaseId lease);
std::string delete_request(const KeyRange& range);
std::string fenced_delete_request(const std::string& key, const Fence& fence);
std::string grant_request(std::chrono::seconds time_to_live);
std::string lease_request(LeaseId lease);  // to keep it alive, to revoke it
std::string watch_request(const KeyRange& range, Revision from);

// The bodies of replies. Each throws BadReply.
struct ListReply {
  std::vector<KeyValue> entries;
  bool more = false;
  Revision revision = 0;
};
struct TxnReply {
  bool succeeded = false;
  std::optional<KeyValue> found;  // by the read that is made where the comparison fails
  Revision revision = 0;
};
struct WatchReply {
  std::vector<KeyEvent> events;
  bool created = false;
  bool canceled = false;
  Revision compacted = 0;  // where canceled for it: the oldest revision that is still there
  std::string reason;      // where canceled for another cause
  Revision revision = 0;
};
Revision read_revision(const std::string& body);
ListReply read_list(const std::string& body);
TxnReply read_txn(const std::string& body);
std::int64_t read_deleted(const std::string& body);
Lease read_grant(const std::string& body);
std::optional<std::chrono::seconds> read_keep_alive(const std::string& body);  // nothing: expired
WatchReply read_watch(const std::string& line);

// etcd's own word for a failure.
struct Fault {
  int code = 0;  // of gRPC
  std::string message;
};
inline constexpr int kCanceled = 1;
inline constexpr int kDeadlineExceeded = 4;
inline constexpr int kNotFound = 5;
inline constexpr int kOutOfRange = 11;
inline constexpr int kUnavailable = 14;
// Nothing if `body` tells of no failure of etcd's.
std::optional<Fault> read_fault(const std::string& body);

}  // namespace cpprun::rendezvous::messages
