// What etcd keeps, as its client gives it. Keys and values are arbitrary bytes; a key is never empty.
//
// etcd counts every change of the whole store: the count is the store's revision, and each key knows the
// revisions of its creation and of its last change. A key that is deleted and put again is created anew.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cpprun::rendezvous {

using Revision = std::int64_t;
using LeaseId = std::int64_t;
inline constexpr LeaseId kNoLease = 0;

struct KeyValue {
  std::string key;
  std::string value;
  Revision created = 0;
  Revision changed = 0;
  LeaseId lease = kNoLease;  // at whose end etcd deletes the key
};

// A key, or all that begin with it.
struct KeyRange {
  std::string key;
  bool is_prefix = false;
};

// What was read, and the store's revision at that moment: a watch from `revision` + 1 on misses nothing and
// repeats nothing.
struct KeyReading {
  std::optional<KeyValue> entry;
  Revision revision = 0;
};
struct PrefixReading {
  std::vector<KeyValue> entries;  // in the order of the keys
  Revision revision = 0;
};

struct CreateResult {
  bool won = false;
  KeyValue holder;  // who has the key now: the caller if it won
  Revision revision = 0;
};

// That a leader still leads: its key exists and is the one created at that revision.
struct Fence {
  std::string leader_key;
  Revision created = 0;
};

struct Lease {
  LeaseId id = kNoLease;
  std::chrono::seconds time_to_live{};  // etcd may grant more than was asked for
};

struct KeyEvent {
  bool deleted = false;
  std::string key;
  std::string value;     // empty if deleted
  Revision created = 0;  // 0 if deleted
  Revision changed = 0;  // of the put or the deletion
};

}  // namespace cpprun::rendezvous
