#include "rendezvous/etcd/etcd_session.hpp"

#include <algorithm>
#include <utility>

namespace cpprun::rendezvous {
namespace {

using async::Clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// After a failure, before the next try.
constexpr milliseconds kPause(100);

}  // namespace

EtcdSession::EtcdSession(asio::any_io_executor executor, EtcdClient& client, EtcdSessionLimits limits)
    : executor_(executor), client_(client), limits_(limits), changed_(executor), doubt_(executor) {}

awaitable<void> EtcdSession::run() {
  for (;;) {
    Clock::duration pause = kPause;
    doubted_ = false;
    try {
      const TimePoint sent = Clock::now();
      const std::optional<seconds> time_to_live = co_await renew();
      problem_.clear();
      if (time_to_live) {
        renewal_ = Renewal{sent, *time_to_live};
        pause = std::min(limits_.interval, milliseconds(*time_to_live) / 3);
      } else {
        lease_ = kNoLease;
        pause = Clock::duration::zero();
      }
    } catch (const EtcdError& error) {
      problem_ = error.what();
      if (error.failure() == EtcdFailure::Refused && !renewal_) refusal_ = problem_;
    }
    changed_.notify_all();
    if (!refusal_.empty()) co_return;
    if (!doubted_) co_await doubt_.wait_until(Clock::now() + pause);
  }
}

// Nothing if the lease is over; the next time a new one is asked for.
awaitable<std::optional<seconds>> EtcdSession::renew() {
  if (lease_ != kNoLease) {
    const std::optional<seconds> left = co_await client_.keep_alive(lease_);
    co_return left;
  }
  const Lease lease = co_await client_.grant(std::chrono::ceil<seconds>(limits_.death_limit));
  lease_ = lease.id;
  co_return lease.time_to_live;
}

awaitable<void> EtcdSession::end(async::Deadline limit) {
  if (lease_ == kNoLease) co_return;
  try {
    awaitable<bool> ended = client_.revoke(std::exchange(lease_, kNoLease));
    co_await async::before(limit, std::move(ended));
  } catch (const EtcdError&) {
    // Then it ends by itself.
  }
}

void EtcdSession::doubt() {
  doubted_ = true;
  doubt_.notify_all();
}

}  // namespace cpprun::rendezvous
