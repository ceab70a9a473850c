// This process's sign of life in etcd: a lease that is kept up, and at whose end etcd deletes the keys that
// hang on it.
#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "rendezvous/async/deadline.hpp"
#include "rendezvous/async/event.hpp"
#include "rendezvous/etcd/etcd_client.hpp"

namespace cpprun::rendezvous {

struct EtcdSessionLimits {
  std::chrono::milliseconds death_limit{3'000};  // of silence: the lease is to end; etcd has whole seconds
  std::chrono::milliseconds interval{1'000};     // two signs of life in each, and in each third of the lease
};

class EtcdSession {
 public:
  using TimePoint = async::Clock::time_point;
  // What etcd has answered: the lease holds for so long after the question was sent.
  struct Renewal {
    TimePoint sent;
    std::chrono::seconds time_to_live{};
    TimePoint end() const { return sent + time_to_live; }
  };

  EtcdSession(asio::any_io_executor executor, EtcdClient& client, EtcdSessionLimits limits);

  // Until cancelled, or until etcd has refused the first lease: see refusal().
  awaitable<void> run();
  // Ends the lease, and with it its keys; after run().
  awaitable<void> end(async::Deadline limit);

  // Of the last lease; kNoLease before the first, and when etcd has said that it is over.
  LeaseId lease() const { return lease_; }
  const std::optional<Renewal>& renewal() const { return renewal_; }
  // Whether the lease surely holds. Not so, it may hold again: only etcd knows when it is over.
  bool holds(TimePoint now) const { return lease_ != kNoLease && renewal_ && now < renewal_->end(); }

  // Looks at once whether the lease is over.
  void doubt();
  // Notified when any of this has changed; others may use it for what goes with it.
  async::Event& changed() { return changed_; }

  // Why etcd does not answer; empty if it does.
  const std::string& problem() const { return problem_; }
  // Why trying on is of no use.
  const std::string& refusal() const { return refusal_; }

 private:
  awaitable<std::optional<std::chrono::seconds>> renew();
  std::chrono::milliseconds patience() const;

  asio::any_io_executor executor_;
  EtcdClient& client_;
  EtcdSessionLimits limits_;
  LeaseId lease_ = kNoLease;
  std::optional<Renewal> renewal_;
  int failures_ = 0;  // since then
  std::string problem_;
  std::string refusal_;
  bool doubted_ = false;
  async::Event changed_;
  async::Event doubt_;
};

}  // namespace cpprun::rendezvous
