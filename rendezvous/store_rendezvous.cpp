#include "rendezvous/store_rendezvous.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "rendezvous/round_keys.hpp"

namespace cpprun::rendezvous {
namespace {

using async::Clock;
using async::Deadline;
using nlohmann::json;
using Kind = RendezvousError::Kind;

// How often one that waits says for what.
constexpr std::chrono::seconds kSayEvery(10);
// For the last words of an agent that ends.
constexpr std::chrono::milliseconds kFarewellLimit(2000);
constexpr std::chrono::milliseconds kPeersFarewellLimit(5000);

std::string to_text(const RoundEnd& end) {
  const json object = {
      {"charged", end.charged}, {"final", end.final}, {"sentence", end.sentence}, {"cause", end.cause}};
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

RoundEnd end_from(const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  try {
    return {object.at("charged").get<bool>(), object.at("final").get<bool>(),
            object.at("sentence").get<std::string>(), object.at("cause").get<std::string>()};
  } catch (const json::exception&) {
    return {false, true, "the rendezvous store holds something other than the end of a round", ""};
  }
}

std::string seconds_text(Clock::duration span) {
  return std::to_string(std::chrono::ceil<std::chrono::seconds>(span).count()) + " s";
}

// In a wait of the store that only cancellation or an answer ends.
Deadline never() {
  return Deadline::at(Clock::time_point::max());
}

}  // namespace

StoreRendezvous::StoreRendezvous(asio::any_io_executor executor, StoreRendezvousConfig config)
    : config_(std::move(config)), executor_(executor), changed_(executor) {}

awaitable<RendezvousInfo> StoreRendezvous::next_rendezvous() {
  const Deadline deadline = Deadline::after(config_.limits.join_timeout);
  try {
    if (!client_) {
      const Deadline limit = Deadline::after(config_.limits.connect_timeout);
      co_await connect(Deadline::earlier(deadline, limit));
    }
    for (;;) {
      co_await enter(round_ + 1);
      co_await await_place(deadline);
      if (end_ && end_->final) {
        throw RendezvousError(Kind::Closed, "the run has ended: " + end_->sentence);
      }
      if (!end_) break;  // else: come while the round was ending
    }
  } catch (const store::StoreError& error) {
    throw RendezvousError(Kind::Connection, error.what());
  }
  config_.node.previous_rank = place_->group_rank;
  co_return RendezvousInfo{place_->group_rank, place_->nodes, round_, place_->restarts, own_address()};
}

awaitable<void> StoreRendezvous::connect(Deadline deadline) {
  const std::chrono::milliseconds answer_limit =
      config_.limits.keep_alive_interval * config_.limits.keep_alive_attempts;
  const Clock::time_point began = Clock::now();
  while (!client_) {
    const Deadline slice = Deadline::earlier(deadline, Deadline::after(kSayEvery));
    std::string reason;
    try {
      client_ = co_await store::StoreClient::connect(config_.endpoint, slice, answer_limit, config_.run_id);
    } catch (const store::StoreError& error) {
      if (error.failure() == store::StoreFailure::Refused) throw;
      reason = error.what();
    }
    if (client_) break;
    // The client gives up a little before its limit, where another try would not fit.
    if (slice.time() == deadline.time()) {
      throw RendezvousError(Kind::Timeout, "timed out: no agent served the rendezvous within " +
                                               seconds_text(Clock::now() - began) + ": " + reason);
    }
    spdlog::info("rendezvous: waiting for the node that serves the store, up to {} more: {}",
                 seconds_text(deadline.remaining()), reason);
  }
  run_store_.emplace(config_.run_id, *client_);
  if (config_.hosts_store) co_return;
  std::vector<store::Key> round{keys::kRound};
  const store::WaitResult opened = co_await run_store_->wait(std::move(round), deadline);
  if (opened == store::WaitResult::TimedOut) {
    throw RendezvousError(Kind::Timeout, "timed out: the agent at " + to_string(config_.endpoint) +
                                             " opened no round within " + seconds_text(Clock::now() - began));
  }
  const store::Bytes number = co_await run_store_->get(keys::kRound);
  round_ = std::max(0, std::atoi(number.c_str())) - 1;
}

awaitable<void> StoreRendezvous::enter(int round) {
  co_await end_tasks();
  if (lost_) throw RendezvousError(Kind::Connection, *lost_);
  if (end_ && end_->charged) ++charged_;
  int survivors = 0;
  if (host_) survivors = co_await host_->survivors();
  round_ = round;
  slot_ = 0;
  place_.reset();
  end_.reset();
  counted_finished_ = all_finished_ = false;
  host_.reset();
  round_store_.emplace(std::to_string(round), *run_store_);
  const std::int64_t arrival = co_await round_store_->add(keys::kArrivals, 1);
  const int slot = static_cast<int>(arrival);
  std::string node = to_json(config_.node);
  co_await round_store_->set(keys::node(slot), std::move(node));
  slot_ = slot;
  tasks_.emplace(executor_);
  if (config_.hosts_store) {
    host_.emplace(*round_store_, slot_, config_.rule, config_.limits, charged_, survivors, changed_);
    tasks_->start(host_round());
    std::string number = std::to_string(round);
    co_await run_store_->set(keys::kRound, std::move(number));
  }
  tasks_->start(beat());
  tasks_->start(watch_end());
  tasks_->start(watch_place());
}

awaitable<void> StoreRendezvous::end_tasks() {
  if (!tasks_) co_return;
  tasks_->cancel();
  co_await tasks_->join();
  tasks_.reset();
}

// Until this agent has a place or the round has ended.
awaitable<void> StoreRendezvous::await_place(Deadline deadline) {
  Clock::time_point say = Clock::now() + kSayEvery;
  while (!place_ && !end_) {
    if (lost_) throw RendezvousError(Kind::Connection, *lost_);
    if (deadline.passed()) {
      const std::string state = co_await missing();
      throw RendezvousError(Kind::Timeout, "timed out: the rendezvous was not complete within " +
                                               seconds_text(config_.limits.join_timeout) + ": " + state);
    }
    if (Clock::now() >= say) {
      const std::string state = co_await missing();
      spdlog::info("rendezvous, round {}: {}; waiting up to {} more", round_, state,
                   seconds_text(deadline.remaining()));
      say = Clock::now() + kSayEvery;
    }
    co_await changed_.wait_until(std::min(say, deadline.time()));
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) {
      throw boost::system::system_error(asio::error::operation_aborted);
    }
  }
  if (place_ && !place_->refusal.empty()) {
    throw RendezvousError(Kind::Closed, "this node was refused: " + place_->refusal);
  }
}

awaitable<std::string> StoreRendezvous::missing() {
  const store::Bytes text = co_await round_store_->get(keys::kMissing);
  co_return text.empty() ? "the node that serves the store has not come to this round" : text;
}

std::optional<RoundEvent> StoreRendezvous::event_now() {
  if (end_) return *end_;
  if (lost_) return RendezvousLost{*lost_};
  if (!host_) return std::nullopt;
  std::optional<std::string> node = host_->take_lost();
  return node ? std::optional<RoundEvent>(NodeLost{*node}) : std::nullopt;
}

awaitable<RoundEvent> StoreRendezvous::round_ended() {
  for (;;) {
    std::optional<RoundEvent> event = event_now();
    if (event) co_return std::move(*event);
    co_await changed_.wait();
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return RendezvousLost{"the wait was ended"};
  }
}

awaitable<FinishEvent> StoreRendezvous::finish() {
  if (!std::exchange(counted_finished_, true)) tasks_->start(watch_finished());
  for (;;) {
    if (all_finished_) co_return AllFinished{};
    std::optional<RoundEvent> event = event_now();
    if (event) co_return std::visit([](auto& what) -> FinishEvent { return std::move(what); }, *event);
    co_await changed_.wait();
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return RendezvousLost{"the wait was ended"};
  }
}

awaitable<RoundEnd> StoreRendezvous::end_round(RoundEnd wanted) {
  if (!end_ && !lost_ && round_store_) co_await publish_end(wanted);
  co_return end_ ? *end_ : wanted;
}

// Notes in end_ how the round ends, if the store can say.
awaitable<void> StoreRendezvous::publish_end(RoundEnd& end) {
  try {
    std::string text = to_text(end);
    const store::CasResult result = co_await round_store_->compare_set(keys::kEnd, "", text);
    if (!end_) end_ = result.outcome == store::CasOutcome::Won ? end : end_from(result.current);
    if (end_->final) co_await acknowledge();
  } catch (const store::StoreError& error) {
    lose(error.what());
  }
}

awaitable<void> StoreRendezvous::leave(RoundEnd wanted) {
  if (!client_ || lost_ || slot_ == 0) co_return;
  const bool running = place_ && place_->refusal.empty();
  if (config_.hosts_store) wanted.final = true;  // the store goes with this agent
  try {
    co_await round_store_->set(keys::gone(slot_), "1");
    if (end_ && !end_->final && running) {
      // Between two rounds: the others are on their way to the next one, which cannot come to be.
      store::PrefixStore next(std::to_string(round_ + 1), *run_store_);
      std::string text = to_text(wanted);
      co_await next.compare_set(keys::kEnd, "", std::move(text));
    } else if (!end_ && (running || config_.hosts_store)) {
      co_await publish_end(wanted);
    }
  } catch (const store::StoreError&) {
  }
}

awaitable<void> StoreRendezvous::close() {
  co_await asio::this_coro::throw_if_cancelled(false);
  if (host_ && !lost_ && ((end_ && end_->final) || all_finished_)) {
    std::vector<store::Key> words;
    for (const int slot : host_->live_others()) words.push_back(keys::seen(slot));
    try {
      if (!words.empty()) co_await round_store_->wait(std::move(words), Deadline::after(kPeersFarewellLimit));
    } catch (const store::StoreError&) {
    }
  }
  co_await end_tasks();
}

// Tells the store's host that its last word was read. The host may not wait for that.
awaitable<void> StoreRendezvous::acknowledge() {
  try {
    co_await round_store_->set(keys::seen(slot_), "1");
  } catch (const store::StoreError&) {
  }
}

std::string StoreRendezvous::own_address() const {
  if (config_.address) return *config_.address;
  return config_.hosts_store ? config_.host_address : client_->local_address();
}

void StoreRendezvous::lose(const std::string& reason) {
  if (!lost_) lost_ = reason;
  changed_.notify_all();
}

awaitable<void> StoreRendezvous::beat() {
  asio::steady_timer timer(executor_);
  const std::string key = keys::alive(slot_);
  try {
    for (;;) {
      co_await round_store_->add(key, 1);
      timer.expires_after(config_.limits.keep_alive_interval);
      co_await timer.async_wait(asio::use_awaitable);
    }
  } catch (const store::StoreError& error) {
    lose(error.what());
  }
}

awaitable<void> StoreRendezvous::watch_end() {
  try {
    std::vector<store::Key> key{keys::kEnd};
    co_await round_store_->wait(std::move(key), never());
    const store::Bytes text = co_await round_store_->get(keys::kEnd);
    RoundEnd end = end_from(text);
    if (end.final) co_await acknowledge();
    if (!end_) end_ = std::move(end);
    changed_.notify_all();
  } catch (const store::StoreError& error) {
    lose(error.what());
  }
}

awaitable<void> StoreRendezvous::watch_place() {
  try {
    std::vector<store::Key> place{keys::place(slot_)};
    co_await round_store_->wait(std::move(place), never());
    const store::Bytes text = co_await round_store_->get(keys::place(slot_));
    place_ = place_from_json(text);
    if (!place_) lose("the rendezvous store holds something other than this node's place");
    changed_.notify_all();
  } catch (const store::StoreError& error) {
    lose(error.what());
  }
}

awaitable<void> StoreRendezvous::watch_finished() {
  try {
    const std::int64_t finished = co_await round_store_->add(keys::kFinished, 1);
    if (finished == place_->nodes) co_await round_store_->set(keys::kAllFinished, "1");
    std::vector<store::Key> all{keys::kAllFinished};
    co_await round_store_->wait(std::move(all), never());
    co_await acknowledge();
    all_finished_ = true;
    changed_.notify_all();
  } catch (const store::StoreError& error) {
    lose(error.what());
  }
}

awaitable<void> StoreRendezvous::host_round() {
  try {
    co_await host_->run();
  } catch (const store::StoreError& error) {
    lose(error.what());
  }
}

}  // namespace cpprun::rendezvous
