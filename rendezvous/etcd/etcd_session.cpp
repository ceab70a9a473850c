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
// A member whose host is gone is silent, and so is one that has passed a renewal on to a leader whose host is
// gone, even when the cluster has its next leader, within 2 s. The lease is to hold meanwhile: so many tries
// to renew it wait for this part of it only; further ones as long as any request, since a server may be slow.
constexpr int kShortTries = 6;
constexpr int kShortPart = 12;

}  // namespace

EtcdSession::EtcdSession(asio::any_io_executor executor, EtcdClient& client, EtcdSessionLimits limits)
    : executor_(executor), client_(client), limits_(limits), changed_(executor), doubt_(executor) {}

awaitable<void> EtcdSession::run() {
  for (;;) {
    Clock::duration pause = kPause;
    doubted_ = false;
    bool failed = false;
    try {
      const TimePoint sent = Clock::now();
      const std::optional<seconds> time_to_live = co_await renew();
      problem_.clear();
      if (time_to_live) {
        renewal_ = Renewal{sent, *time_to_live};
        pause = std::min(limits_.interval, milliseconds(*time_to_live) / 3) / 2;
      } else {
        lease_ = kNoLease;
        pause = Clock::duration::zero();
      }
    } catch (const EtcdError& error) {
      failed = true;
      problem_ = error.what();
      if (error.failure() == EtcdFailure::Refused && !renewal_) refusal_ = problem_;
    }
    failures_ = failed ? failures_ + 1 : 0;
    changed_.notify_all();
    if (!refusal_.empty()) co_return;
    if (!doubted_) co_await doubt_.wait_until(Clock::now() + pause);
  }
}

// Nothing if the lease is over; the next time a new one is asked for.
awaitable<std::optional<seconds>> EtcdSession::renew() {
  if (lease_ != kNoLease) {
    const std::optional<seconds> left = co_await client_.keep_alive(lease_, patience());
    co_return left;
  }
  const Lease lease = co_await client_.grant(std::chrono::ceil<seconds>(limits_.death_limit));
  lease_ = lease.id;
  co_return lease.time_to_live;
}

milliseconds EtcdSession::patience() const {
  const bool is_short = renewal_ && failures_ < kShortTries;
  return is_short ? milliseconds(renewal_->time_to_live) / kShortPart : milliseconds::max();
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
