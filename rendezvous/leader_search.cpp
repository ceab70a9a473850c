#include "rendezvous/leader_search.hpp"

#include <algorithm>

namespace cpprun::rendezvous {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLeastBeatInterval(100);

}  // namespace

void LeaderSearch::begin_turn(const Membership& membership, Membership::TimePoint now) {
  const bool loyal = membership.knows_leader();
  const bool member = membership.report().run.serial != 0 || membership.report().offered.serial != 0;
  first_ = loyal ? leader_ : member ? (leader_ + 1) % endpoints_ : 0;
  const bool just_lost = followed_ && !loyal && member && endpoints_ > 1;
  followed_ = loyal;
  all_ = loyal ? 1 : just_lost ? endpoints_ - 1 : endpoints_;
  left_ = all_;
  may_be_counted_ = member && !loyal && now >= membership.loyal_until();
  standby_.reset();
}

std::optional<LeaderSearch::Step> LeaderSearch::next_step() {
  if (left_ > 0) return Step{(first_ + all_ - left_--) % endpoints_, false};
  if (!may_be_counted_ || !standby_) return std::nullopt;
  may_be_counted_ = false;
  return Step{*standby_, true};
}

void LeaderSearch::answered(int endpoint) {
  standby_ = std::min(standby_.value_or(endpoint), endpoint);
}

milliseconds next_beat_interval(milliseconds own, std::chrono::nanoseconds lease) {
  return std::min(own, std::max(std::chrono::duration_cast<milliseconds>(lease / 3), kLeastBeatInterval));
}

}  // namespace cpprun::rendezvous
