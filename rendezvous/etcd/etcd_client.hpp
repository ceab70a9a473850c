// A client of etcd (3.4 or newer), by the JSON gateway of its v3 interface, on one thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/async/tokens.hpp"
#include "rendezvous/etcd/etcd_data.hpp"
#include "rendezvous/etcd/etcd_error.hpp"
#include "rendezvous/etcd/etcd_options.hpp"

namespace cpprun::rendezvous {

struct EtcdEndpoint {
  std::string host;  // a numeric address, which is never looked up, or a name
  std::uint16_t port = 2379;
};

// What a watch has to tell.
struct WatchNews {
  enum class Kind {
    Events,     // in the order they happened; resume from the last one's `changed` + 1
    Compacted,  // etcd has forgotten the revision asked for: read anew and watch from there
    Broken,  // no longer connected, or etcd ended the watch; `reason` says why. Watch again, from after the
             // last event
  };
  Kind kind = Kind::Broken;
  std::vector<KeyEvent> events;
  std::string reason;  // a sentence, unless Events
};

// The changes of a key or a prefix, on a connection of its own. It ends with the news Compacted or Broken,
// which next() repeats from then on.
class EtcdWatch {
 public:
  struct Impl;
  explicit EtcdWatch(std::unique_ptr<Impl> impl);
  // Ends the watch; no next() may be pending.
  ~EtcdWatch();

  // Waits without a limit; cancelled, it ends with operation_aborted and the watch can't be used any more.
  awaitable<WatchNews> next();

 private:
  std::unique_ptr<Impl> impl_;
};

// Calls may overlap, each on a connection of its own, of which idle ones are kept; two calls that overlap
// have no order between them. The endpoints are members of one etcd cluster, tried in order: a call goes to
// the one that answered last, and to the next when it cannot be connected to. A request that got no answer is
// not repeated (it may have taken effect), but the next call goes to the next endpoint.
//
// Each call throws EtcdError, within twice the request limit; cancelled, it ends with operation_aborted and
// may or may not have taken effect. A watch waits without a limit, but ends soon when its server is gone:
// closed, its host vanished (the silence limit), without its cluster, or no longer answering requests of this
// client while there is another endpoint.
//
// The client must outlive its calls and watches.
class EtcdClient {
 public:
  // Reads the files of TLS and connects to nobody. At least one endpoint. Throws SettingsError.
  EtcdClient(std::vector<EtcdEndpoint> endpoints, const EtcdOptions& options);
  ~EtcdClient();
  EtcdClient(const EtcdClient&) = delete;
  EtcdClient& operator=(const EtcdClient&) = delete;

  awaitable<KeyReading> get(std::string key);
  // In pages, each with its own limit, all as of one revision. NoAnswer also if etcd forgot that revision
  // meanwhile.
  awaitable<PrefixReading> list(std::string prefix);

  // With a lease, the key is deleted when the lease ends. Refused if the lease has ended. Returns the
  // revision of the change.
  awaitable<Revision> put(std::string key, std::string value, LeaseId lease = kNoLease);
  // Puts only while the fence holds; false, and nothing put, if it doesn't.
  awaitable<bool> put_fenced(std::string key, std::string value, Fence fence, LeaseId lease = kNoLease);
  // Puts only if the key is absent: who wins a leader key is the leader until its lease ends. After NoAnswer
  // ask again: who won unawares finds itself the holder, so the value should tell who put it.
  awaitable<CreateResult> create(std::string key, std::string value, LeaseId lease = kNoLease);

  awaitable<bool> erase(std::string key);                    // true if it was there
  awaitable<std::int64_t> erase_prefix(std::string prefix);  // number of keys deleted
  // Erases only while the fence holds; false if it doesn't.
  awaitable<bool> erase_fenced(std::string key, Fence fence);

  // A lease that ends by itself unless it is kept alive. etcd has a lower bound, about 2 s at its defaults.
  awaitable<Lease> grant(std::chrono::seconds time_to_live);
  // Begins the lease's time anew: the time it has now; nothing if it has ended. Waits for an answer no longer
  // than `patience`, nor than any request does.
  awaitable<std::optional<std::chrono::seconds>> keep_alive(
      LeaseId lease, std::chrono::milliseconds patience = std::chrono::milliseconds::max());
  // Ends the lease and deletes its keys; false if it had ended already.
  awaitable<bool> revoke(LeaseId lease);

  // All changes from revision `from` on, past ones included; 0: from now on. Returns once etcd has begun the
  // watch, within twice the request limit.
  awaitable<std::unique_ptr<EtcdWatch>> watch(KeyRange range, Revision from);

  // This machine's address on the way to etcd; empty before the first connection.
  const std::string& local_address() const;

 private:
  struct Impl;
  friend struct EtcdWatch::Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cpprun::rendezvous
