#include "rendezvous/dynamic_rendezvous.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <ctime>
#include <random>
#include <utility>

#include "rendezvous/duration_text.hpp"
#include "rendezvous/endpoint_troubles.hpp"

namespace cpprun::rendezvous {
namespace {

using async::Clock;
using async::Deadline;
using Kind = RendezvousError::Kind;

// How often one that waits says for what.
constexpr std::chrono::seconds kSayEvery(10);
// For a lost leader to come back, at most.
constexpr std::chrono::seconds kComebackLimit(60);
// For the last words of an agent that ends.
constexpr std::chrono::milliseconds kFarewellLimit(2000);

// Of this agent, whatever else has its host's name and its process number.
std::string new_id(const Node& node) {
  std::random_device random;
  const std::uint64_t unique = static_cast<std::uint64_t>(random()) << 32 | random();
  return node.host + "_" + std::to_string(node.pid) + "_" + std::to_string(unique);
}

OwnPauses::Moment since_boot() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

awaitable<bool> is_cancelled() {
  const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
  co_return state.cancelled() != asio::cancellation_type::none;
}

}  // namespace

DynamicRendezvous::DynamicRendezvous(asio::any_io_executor executor, DynamicRendezvousConfig config,
                                     const MakeLink& make_link)
    : executor_(executor),
      config_(std::move(config)),
      changed_(executor),
      membership_(new_id(config_.node), config_.node, config_.limits.death_limit(),
                  config_.limits.stop_margin() / 2),
      link_(make_link(membership_, changed_)),
      pauses_(config_.limits.death_limit()),
      tasks_(executor) {}

void DynamicRendezvous::report_changed() {
  link_->report_changed();
}

awaitable<std::optional<RendezvousInfo>> DynamicRendezvous::next_rendezvous() {
  Deadline join = Deadline::after(config_.limits.join_timeout);
  Deadline connect = Deadline::earlier(join, Deadline::after(config_.limits.connect_timeout));
  if (tasks_.empty()) {
    tasks_.start(link_->run());
    tasks_.start(note_pauses());
  }
  membership_.want_place();
  report_changed();
  const std::chrono::milliseconds comeback =
      std::min<std::chrono::milliseconds>(config_.limits.connect_timeout, kComebackLimit);
  Clock::time_point say = Clock::now() + kSayEvery;
  bool was_parked = false;
  trouble_.clear();
  if (was_led_) connect = Deadline::earlier(join, Deadline::after(comeback));
  for (;;) {
    if (membership_.knows_leader()) {
      was_led_ = true;
      connect = Deadline::earlier(join, Deadline::after(comeback));
    }
    pass_on_notice();
    if (!link_->problem().empty()) trouble_ = link_->problem();
    if (membership_.all_finished()) co_return std::nullopt;
    if (const std::optional<Ticket> ticket = membership_.offered()) {
      std::optional<StoreEndpoint> store;
      if (ticket->rank == 0) store = config_.open_store(membership_.report().node.address);
      membership_.accept(store);
      report_changed();
    }
    if (membership_.placed(Clock::now())) co_return begin_round();
    const bool parked = membership_.order().kind == Order::Kind::Park;
    if (parked) join = Deadline::after(config_.limits.join_timeout);
    if (parked && !was_parked) say = Clock::now();
    was_parked = parked;
    fail_if_hopeless(connect, join);
    if (Clock::now() >= say) {
      say_what_is_waited_for(connect, join);
      say = Clock::now() + kSayEvery;
    }
    const bool needs_leader = !membership_.knows_leader() && !(was_led_ && config_.replaceable_leader);
    const Clock::time_point limit = needs_leader ? connect.time() : join.time();
    co_await changed_.wait_until(std::min(say, limit));
    const bool cancelled = co_await is_cancelled();
    if (cancelled) throw boost::system::system_error(asio::error::operation_aborted);
  }
}

// Why there is no leader, as far as is known.
std::string DynamicRendezvous::trouble() const {
  if (const std::optional<std::string> pause = pauses_.recent(since_boot())) return *pause;
  return trouble_.empty() ? "no answer has come from " + config_.where : trouble_;
}

void DynamicRendezvous::pass_on_notice() {
  const std::string& notice = membership_.order().notice;
  if (notice.empty() || notice == noticed_) return;
  noticed_ = notice;
  spdlog::warn("rendezvous at {}: {}", config_.where, notice);
}

// Throws RendezvousError when waiting on is of no use.
void DynamicRendezvous::fail_if_hopeless(Deadline connect, Deadline join) const {
  const Order& order = membership_.order();
  if (order.kind == Order::Kind::Refused) {
    throw RendezvousError(Kind::Closed, "this node was refused: " + order.text);
  }
  if (order.kind == Order::Kind::End && order.end.final) {
    throw RendezvousError(Kind::Closed, "the run has ended: " + order.end.sentence);
  }
  if (!link_->refusal().empty()) throw RendezvousError(Kind::Connection, link_->refusal());
  const bool lost = was_led_ && !membership_.knows_leader() && !config_.replaceable_leader;
  if (lost && (!config_.may_rejoin || connect.passed())) {
    const char* what = pauses_.recent(since_boot()) ? "this node has lost touch with the run: "
                                                    : "the agent that led the run was lost: ";
    throw RendezvousError(Kind::Connection, what + trouble());
  }
  if (!was_led_ && connect.passed()) {
    throw RendezvousError(Kind::Timeout, "timed out: " + config_.nobody + " within " +
                                             seconds_text(std::min(config_.limits.connect_timeout,
                                                                   config_.limits.join_timeout)) +
                                             ": " + trouble());
  }
  if (!join.passed()) return;
  std::string why = order.text;
  if (!membership_.knows_leader() && (why.empty() || !trouble_.empty())) why = joined(why, trouble());
  throw RendezvousError(Kind::Timeout, "timed out: the rendezvous at " + config_.where +
                                           " was not complete within " +
                                           seconds_text(config_.limits.join_timeout) + ": " + why);
}

void DynamicRendezvous::say_what_is_waited_for(Deadline connect, Deadline join) const {
  const Order& order = membership_.order();
  if (order.kind == Order::Kind::Park) {
    spdlog::info("rendezvous at {}: the round has all its nodes; waiting as a spare", config_.where);
  } else if (membership_.knows_leader()) {
    spdlog::info("rendezvous at {}, round {}: {}; waiting up to {} more", config_.where,
                 membership_.report().run.round + 1,
                 order.kind == Order::Kind::Offer ? "waiting for all nodes to take their places" : order.text,
                 seconds_text(join.remaining()));
  } else {
    spdlog::info(
        "rendezvous at {}: waiting for {}, up to {} more: {}", config_.where, config_.leader,
        seconds_text(was_led_ && config_.replaceable_leader ? join.remaining() : connect.remaining()),
        order.text.empty() || !link_->problem().empty() ? trouble() : order.text);
  }
}

RendezvousInfo DynamicRendezvous::begin_round() {
  membership_.start();
  report_changed();
  const Ticket& run = membership_.report().run;
  const Order& order = membership_.order();
  return {run.rank,      run.nodes,  run.round, run.restarts, membership_.report().node.address,
          order.workers, order.store};
}

// What the link knows of the loss is said too.
RoundEvent DynamicRendezvous::explained(RoundEvent event) const {
  RendezvousLost* lost = std::get_if<RendezvousLost>(&event);
  const std::optional<std::string> pause = pauses_.recent(since_boot());
  const std::string why = pause ? *pause : link_->problem();
  if (lost && !why.empty()) lost->reason += ": " + why;
  return event;
}

awaitable<void> DynamicRendezvous::note_pauses() {
  asio::steady_timer timer(executor_);
  for (;;) {
    pauses_.beat(since_boot());
    timer.expires_after(config_.limits.keep_alive_interval);
    co_await timer.async_wait(asio::use_awaitable);
  }
}

awaitable<RoundEvent> DynamicRendezvous::round_ended() {
  for (;;) {
    std::optional<RoundEvent> event = membership_.round_event(Clock::now());
    if (event) {
      if (std::holds_alternative<RendezvousLost>(*event)) membership_.forget_leader();
      co_return explained(std::move(*event));
    }
    co_await changed_.wait_until(membership_.lease_end().value_or(Clock::time_point::max()));
    const bool cancelled = co_await is_cancelled();
    if (cancelled) co_return RoundEvent(RoundEnd{});  // nobody takes it
  }
}

awaitable<FinishEvent> DynamicRendezvous::finish() {
  if (membership_.report().state == AgentState::Running) {
    membership_.finish();
    report_changed();
  }
  for (;;) {
    if (membership_.all_finished()) co_return AllFinished{};
    std::optional<RoundEvent> event = membership_.round_event(Clock::now());
    if (event) {
      RoundEvent why = explained(std::move(*event));
      co_return std::visit([](auto& what) -> FinishEvent { return std::move(what); }, why);
    }
    co_await changed_.wait_until(membership_.lease_end().value_or(Clock::time_point::max()));
    const bool cancelled = co_await is_cancelled();
    if (cancelled) co_return AllFinished{};  // nobody takes it
  }
}

awaitable<Deadline> DynamicRendezvous::fenced_before(Deadline limit) {
  for (;;) {
    const Clock::time_point lease_end = membership_.lease_end().value_or(Clock::time_point::max());
    const Clock::time_point fence = membership_.fence().value_or(Clock::time_point::max());
    if (Clock::now() >= lease_end && fence < limit.time()) co_return Deadline::at(fence);
    const Clock::time_point look = fence < limit.time() ? lease_end : Clock::time_point::max();
    co_await changed_.wait_until(look);
    const bool cancelled = co_await is_cancelled();
    if (cancelled) co_return limit;  // nobody takes it
  }
}

void DynamicRendezvous::end_round(RoundEnd wanted) {
  membership_.want_end(std::move(wanted));
  report_changed();
}

awaitable<RoundEnd> DynamicRendezvous::settled() {
  membership_.want_place();
  report_changed();
  for (;;) {
    std::optional<RoundEnd> verdict = membership_.verdict();
    if (verdict) co_return std::move(*verdict);
    co_await changed_.wait();
    const bool cancelled = co_await is_cancelled();
    if (cancelled) co_return RoundEnd{};  // nobody takes it
  }
}

void DynamicRendezvous::leave(RoundEnd wanted) {
  // Where no other can lead, the run ends with this agent.
  if (config_.farewell && !config_.replaceable_leader) wanted.final = true;
  membership_.leave(std::move(wanted));
  report_changed();
}

awaitable<void> DynamicRendezvous::close(std::string why) {
  co_await asio::this_coro::throw_if_cancelled(false);
  membership_.go();
  report_changed();
  co_await link_->flush(Deadline::after(kFarewellLimit));
  tasks_.cancel();
  co_await tasks_.join();
  if (config_.farewell) co_await config_.farewell->say_farewell(std::move(why));
}

}  // namespace cpprun::rendezvous
