#include "rendezvous/round_host.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "rendezvous/round_keys.hpp"

namespace cpprun::rendezvous {

using async::Clock;
using async::Deadline;
using nlohmann::json;

std::string to_json(const Place& place) {
  json object = {{"group_rank", place.group_rank}, {"nodes", place.nodes}, {"restarts", place.restarts}};
  if (!place.refusal.empty()) object["refusal"] = place.refusal;
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<Place> place_from_json(const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  if (!object.is_object()) return std::nullopt;
  Place place;
  try {
    place.refusal = object.value("refusal", "");
    place.group_rank = object.at("group_rank").get<int>();
    place.nodes = object.at("nodes").get<int>();
    place.restarts = object.at("restarts").get<int>();
  } catch (const json::exception&) {
    return std::nullopt;
  }
  return place;
}

RoundHost::RoundHost(store::Store& store, int own_slot, RoundRule rule, RendezvousLimits limits, int restarts,
                     int survivors, async::Event& changed)
    : store_(store),
      own_slot_(own_slot),
      rule_(rule),
      limits_(limits),
      restarts_(restarts),
      changed_(changed),
      liveness_(limits.keep_alive_interval, limits.keep_alive_attempts),
      survivors_(survivors),
      began_(Clock::now()) {}

awaitable<void> RoundHost::run() {
  Deadline look = Deadline::after(limits_.keep_alive_interval);
  for (;;) {
    std::vector<store::Key> next{keys::node(arrivals_ + 1)};
    const store::WaitResult arrived = co_await store_.wait(std::move(next), look);
    if (arrived == store::WaitResult::Ready) co_await take_arrival(++arrivals_);
    if (look.passed()) {
      co_await look_after();
      co_await skip_silent_arrival();
      look = Deadline::after(limits_.keep_alive_interval);
    }
    if (!complete_) {
      if (may_complete()) co_await look_after();  // nobody is seated who has left since
      if (may_complete()) co_await give_places();
    }
    if (!complete_) co_await say_who_is_missing();
    if (complete_) co_await refuse_surplus(Clock::now());
  }
}

awaitable<void> RoundHost::take_arrival(int slot) {
  const store::Bytes text = co_await store_.get(keys::node(slot));
  const std::optional<Node> node = node_from_json(text);
  if (!node) {
    co_await refuse(slot, "its record is not one of a cpprun agent of this version");
    co_return;
  }
  if (node->nodes != rule_.nodes) {
    co_await refuse(slot, "it expects " + std::to_string(node->nodes) + " nodes and this run has " +
                              std::to_string(rule_.nodes) + " (compare --nnodes)");
    co_return;
  }
  members_.push_back({slot, *node});
  arrived_[slot] = Clock::now();
  spdlog::debug("rendezvous: {} arrived", describe(*node));
}

awaitable<void> RoundHost::refuse(int slot, std::string why) {
  Place place;
  place.refusal = std::move(why);
  std::string text = to_json(place);
  co_await store_.set(keys::place(slot), std::move(text));
}

// Reads the others' heartbeats and farewells.
awaitable<void> RoundHost::look_after() {
  std::vector<store::Key> wanted;
  for (const Member& member : members_) {
    wanted.push_back(keys::alive(member.slot));
    wanted.push_back(keys::gone(member.slot));
  }
  if (wanted.empty()) co_return;
  const std::vector<store::Bytes> values = co_await store_.multi_get(std::move(wanted));
  const Clock::time_point now = Clock::now();
  for (std::size_t i = members_.size(); i-- > 0;) {
    const int slot = members_[i].slot;
    if (slot == own_slot_) continue;
    liveness_.observe(slot, std::strtoll(values[2 * i].c_str(), nullptr, 10), now);
    if (!values[2 * i + 1].empty()) {
      drop(members_[i], "has left");
    } else if (liveness_.dead(slot, now)) {
      drop(members_[i],
           "has not been heard of for " +
               std::to_string((limits_.keep_alive_interval * limits_.keep_alive_attempts).count()) + " ms");
    }
  }
}

// An agent may end between taking its number and saying who it is; those behind it are not to wait for that.
awaitable<void> RoundHost::skip_silent_arrival() {
  std::vector<store::Key> wanted{keys::kArrivals, keys::node(arrivals_ + 1)};
  const std::vector<store::Bytes> values = co_await store_.multi_get(std::move(wanted));
  const bool silent = std::strtoll(values[0].c_str(), nullptr, 10) > arrivals_ && values[1].empty();
  silent_looks_ = silent ? silent_looks_ + 1 : 0;
  if (silent_looks_ <= limits_.keep_alive_attempts) co_return;
  silent_looks_ = 0;
  co_await refuse(++arrivals_, "it did not say in time who it is");
}

// A place that two claim waits for a sign of life of the one who came first: the other may be its
// replacement. Newcomers do not take the places of nodes that are still stopping their workers.
bool RoundHost::may_complete() const {
  const Seating seating = seat(members_, rule_);
  if (static_cast<int>(seating.seated.size()) < rule_.nodes) return false;
  int back = 0;
  for (const Member& holder : seating.seated) {
    back += holder.node.previous_rank ? 1 : 0;
    if (!rule_.ranks_given) continue;
    for (const Member& claim : seating.surplus) {
      const bool contested = holder.node.wished_rank == claim.node.wished_rank;
      const bool proven =
          holder.slot == own_slot_ || liveness_.moved_after(holder.slot, arrived_.at(claim.slot));
      if (contested && !proven) return false;
    }
  }
  return rule_.ranks_given || back >= survivors_ || Clock::now() - began_ > limits_.survivor_patience;
}

void RoundHost::drop(Member member, const std::string& why) {
  const std::vector<int> seated = live_others();
  const std::string sentence = describe(member.node) + " " + why;
  forget(member.slot);
  if (complete_ && std::find(seated.begin(), seated.end(), member.slot) != seated.end()) {
    lost_.push_back(sentence);
    changed_.notify_all();
  } else {
    spdlog::info("rendezvous: {} before the round was complete", sentence);
  }
}

void RoundHost::forget(int slot) {
  std::erase_if(members_, [slot](const Member& member) { return member.slot == slot; });
}

awaitable<void> RoundHost::give_places() {
  const Seating seating = seat(members_, rule_);
  const std::vector<int> ranks = assign_group_ranks(seating.seated);
  complete_ = true;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const int slot = seating.seated[i].slot;
    for (Member& member : members_) {
      if (member.slot == slot) member.node.previous_rank = ranks[i];  // from now on it is named by its rank
    }
    std::string place = to_json(Place{ranks[i], rule_.nodes, restarts_, ""});
    co_await store_.set(keys::place(slot), std::move(place));
  }
}

// One that comes too late waits until the node whose place it would take has shown that it lives: it may be
// that node's replacement, come before the host noticed the loss.
awaitable<void> RoundHost::refuse_surplus(Clock::time_point now) {
  const Seating seating = seat(members_, rule_);
  const std::chrono::milliseconds patience = limits_.keep_alive_interval * (limits_.keep_alive_attempts + 2);
  for (const Member& late : seating.surplus) {
    if (now - arrived_.at(late.slot) < patience) continue;
    std::string holder = "all " + std::to_string(rule_.nodes) + " nodes are there";
    for (const Member& member : seating.seated) {
      if (rule_.ranks_given && member.node.wished_rank == late.node.wished_rank) {
        holder = "its --node-rank is held by " + describe(member.node);
      }
    }
    forget(late.slot);
    co_await refuse(late.slot, std::move(holder));
  }
}

awaitable<void> RoundHost::say_who_is_missing() {
  const std::string text = describe(seat(members_, rule_), rule_);
  if (text == said_) co_return;
  said_ = text;
  co_await store_.set(keys::kMissing, text);
}

std::optional<std::string> RoundHost::take_lost() {
  if (lost_.empty()) return std::nullopt;
  std::string sentence = std::move(lost_.front());
  lost_.pop_front();
  return sentence;
}

std::vector<int> RoundHost::live_others() const {
  std::vector<int> slots;
  for (const Member& member : seat(members_, rule_).seated) {
    if (member.slot != own_slot_) slots.push_back(member.slot);
  }
  return slots;
}

awaitable<int> RoundHost::survivors() {
  co_await look_after();
  co_return static_cast<int>(live_others().size()) + 1;
}

}  // namespace cpprun::rendezvous
