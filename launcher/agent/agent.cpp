#include "launcher/agent/agent.hpp"

#include <spdlog/spdlog.h>

#include <boost/asio/experimental/awaitable_operators.hpp>

#include "launcher/agent/rank_assignment.hpp"
#include "rendezvous/async/deadline.hpp"
#include "worker_runtime/contract/whole_file.hpp"

namespace cpprun::launcher {

using namespace boost::asio::experimental::awaitable_operators;
using rendezvous::RendezvousError;

namespace {

// A variant raced against others would be flattened into theirs.
struct Happened {
  GroupEvent event;
};

GroupEvent to_group_event(const rendezvous::RoundEvent& event) {
  return std::visit([](const auto& what) { return GroupEvent(what); }, event);
}

awaitable<Happened> group_ended(WorkerRunner& runner) {
  const std::optional<WorkerFailure> failure = co_await runner.ended();
  if (failure) co_return Happened{GroupFailed{summary(*failure), why_no_restart(*failure)}};
  co_return Happened{GroupSucceeded{}};
}

awaitable<Happened> round_ended(rendezvous::RendezvousHandler& handler) {
  const rendezvous::RoundEvent event = co_await handler.round_ended();
  co_return Happened{to_group_event(event)};
}

awaitable<Happened> all_finished(rendezvous::RendezvousHandler& handler) {
  const rendezvous::FinishEvent event = co_await handler.finish();
  if (std::holds_alternative<rendezvous::AllFinished>(event)) co_return Happened{GroupSucceeded{}};
  if (const auto* end = std::get_if<rendezvous::RoundEnd>(&event)) co_return Happened{*end};
  if (const auto* lost = std::get_if<rendezvous::NodeLost>(&event)) co_return Happened{*lost};
  co_return Happened{std::get<rendezvous::RendezvousLost>(event)};
}

// A result, or what was thrown instead, as a value: a race waits for the first that succeeds.
template <typename T>
struct Outcome {
  std::optional<T> result;
  std::exception_ptr failure;

  T take() {
    if (failure) std::rethrow_exception(failure);
    return std::move(*result);
  }
};

template <typename T>
awaitable<Outcome<T>> captured(awaitable<T> operation) {
  Outcome<T> outcome;
  try {
    outcome.result = co_await std::move(operation);
  } catch (...) {
    outcome.failure = std::current_exception();
  }
  co_return outcome;
}

// A second Ctrl-C (or SIGQUIT, or the same signal again) means now; so does the end of the guardian.
bool means_now(std::optional<int> before, int further) {
  return further == SIGKILL || (before && (further == SIGINT || further == SIGQUIT || further == *before));
}

}  // namespace

Agent::Agent(const AgentConfig& config, const WorkerSpec& spec, rendezvous::RendezvousHandler& handler,
             WorkerRunner& runner, StopSignal& stop_signal, const RunFolder& folder,
             OpenWorkerStore open_store)
    : config_(config),
      spec_(spec),
      handler_(handler),
      runner_(runner),
      stop_signal_(stop_signal),
      folder_(folder),
      open_store_(std::move(open_store)) {}

awaitable<RunResult> Agent::run() {
  for (;;) {
    cause_elsewhere_.reset();
    const Joined joined = co_await join();
    if (const StopRequested* stop = std::get_if<StopRequested>(&joined)) {
      const RestartDecision decision = co_await settle(*stop);
      spdlog::warn("{}", decision.reason);
      co_return StoppedBy{stop->signal};
    }
    const Attempt& attempt = std::get<Attempt>(joined);
    runner_.start(attempt);
    spdlog::info("attempt {}: started {} of {} workers, store at {}:{}", attempt.number,
                 attempt.workers.size(), attempt.workers.front().world_size,
                 attempt.workers.front().master_addr, attempt.workers.front().master_port);
    GroupEvent event = co_await next_event();
    std::optional<int> stopped_by;
    if (std::holds_alternative<GroupSucceeded>(event)) {
      // What the workers left behind is not to wait for the other nodes.
      stopped_by = co_await stop_workers(std::nullopt);
      event = co_await finish(stopped_by);
    }
    const RestartDecision decision = co_await settle(event);
    if (decision.next == Next::Finish) {
      spdlog::info("{}", decision.reason);
      co_return Succeeded{};
    }
    spdlog::warn("{}", decision.reason);
    const StopRequested* stop = std::get_if<StopRequested>(&event);
    if (stop) stopped_by = stop->signal;
    stopped_by = co_await stop_workers(stopped_by);
    const bool failed_here = std::holds_alternative<GroupFailed>(event);
    if (failed_here) record_failure(report());
    if (decision.next == Next::Stop) co_return StoppedBy{*stopped_by};
    // Told to stop while it was about to restart, or while others ended the job.
    if (stopped_by && !(failed_here && decision.next == Next::Fail)) {
      const StopRequested stopped{*stopped_by};
      co_await settle(stopped);
      co_return StoppedBy{*stopped_by};
    }
    if (decision.next == Next::Fail) {
      if (!failed_here) record_failure(report());
      co_return Failed{report()};
    }
    if (decision.next == Next::GiveUp)
      throw RendezvousError(RendezvousError::Kind::Connection, decision.reason);
  }
}

awaitable<Agent::Joined> Agent::join() {
  for (;;) {
    awaitable<Outcome<std::optional<Attempt>>> joined = captured(join_round());
    awaitable<void> stopped = stop_signal_.wait();
    std::variant<Outcome<std::optional<Attempt>>, std::monostate> first =
        co_await (std::move(joined) || std::move(stopped));
    if (first.index() == 1) co_return StopRequested{stop_signal_.take()};
    std::optional<Attempt> attempt = std::get<0>(first).take();
    if (attempt) co_return std::move(*attempt);
  }
}

// Nothing when the round ended before its workers could start.
awaitable<std::optional<Attempt>> Agent::join_round() {
  info_ = co_await handler_.next_rendezvous();
  NodeWorkers mine{spec_.role, spec_.local_world_size};
  awaitable<Outcome<RankExchange>> exchanged =
      captured(exchange_ranks(handler_.round_store(), info_, std::move(mine), open_store_));
  awaitable<Happened> ended = round_ended(handler_);
  std::variant<Outcome<RankExchange>, Happened> first = co_await (std::move(exchanged) || std::move(ended));
  if (const Happened* happened = std::get_if<Happened>(&first)) {
    const RestartDecision decision = co_await settle(happened->event);
    spdlog::warn("{}", decision.reason);
    if (decision.next == Next::Restart) co_return std::nullopt;
    throw RendezvousError(RendezvousError::Kind::Closed, decision.reason);
  }
  try {
    co_return plan(std::get<0>(first).take());
  } catch (const store::StoreError& error) {
    throw RendezvousError(RendezvousError::Kind::Connection, error.what());
  }
}

awaitable<GroupEvent> Agent::next_event() {
  awaitable<Happened> ended = group_ended(runner_);
  awaitable<Happened> changed = round_ended(handler_);
  awaitable<void> stopped = stop_signal_.wait();
  std::variant<Happened, Happened, std::monostate> first =
      co_await (std::move(ended) || std::move(changed) || std::move(stopped));
  if (first.index() == 2) co_return StopRequested{stop_signal_.take()};
  co_return std::move(first.index() == 0 ? std::get<0>(first) : std::get<1>(first)).event;
}

awaitable<GroupEvent> Agent::finish(std::optional<int> told_to_stop) {
  if (told_to_stop) {
    const std::optional<Happened> at_once =
        co_await async::before(async::Deadline::at({}), all_finished(handler_));
    co_return at_once ? at_once->event : GroupEvent(StopRequested{*told_to_stop});
  }
  awaitable<Happened> finished = all_finished(handler_);
  awaitable<void> stopped = stop_signal_.wait();
  std::variant<Happened, std::monostate> first = co_await (std::move(finished) || std::move(stopped));
  if (first.index() == 1) co_return StopRequested{stop_signal_.take()};
  co_return std::move(std::get<0>(first)).event;
}

awaitable<RestartDecision> Agent::settle(GroupEvent event) {
  const RestartDecision mine = decide_restart(event, spec_.max_restarts - info_.restarts);
  if (const auto* end = std::get_if<rendezvous::RoundEnd>(&event)) {
    cause_elsewhere_ = JobCause::from_json(end->cause, end->sentence);
    co_return mine;
  }
  rendezvous::RoundEnd wanted = round_end(event, mine);
  if (std::holds_alternative<StopRequested>(event)) {
    co_await handler_.leave(std::move(wanted));
    co_return mine;
  }
  if (mine.next == Next::Finish || mine.next == Next::GiveUp) co_return mine;
  const rendezvous::RoundEnd agreed = co_await handler_.end_round(wanted);
  const bool as_wanted = agreed.cause == wanted.cause;  // which names this node and its worker
  if (as_wanted && std::holds_alternative<GroupFailed>(event)) co_return mine;
  cause_elsewhere_ = JobCause::from_json(agreed.cause, agreed.sentence);
  co_return as_wanted ? mine : decide_restart(agreed, 0);
}

// What the other agents are told.
rendezvous::RoundEnd Agent::round_end(const GroupEvent& event, const RestartDecision& decision) const {
  rendezvous::RoundEnd end;
  end.charged = true;
  end.final = decision.next == Next::Fail;
  end.sentence = own_name() + ": " + decision.reason;
  if (std::holds_alternative<GroupFailed>(event)) {
    end.cause = JobCause::of(report()).to_json();
    return end;
  }
  if (const auto* lost = std::get_if<rendezvous::NodeLost>(&event)) end.sentence = lost->what;
  if (const StopRequested* stop = std::get_if<StopRequested>(&event)) {
    // SIGKILL stands for the end of the guardian.
    end.sentence = own_name() + (stop->signal == SIGKILL ? ": its cpprun was killed"
                                                         : " was stopped by " + signal_name(stop->signal));
    end.final = spec_.max_restarts <= info_.restarts;
  }
  end.cause = JobCause{end.sentence, "", ""}.to_json();
  return end;
}

awaitable<std::optional<int>> Agent::stop_workers(std::optional<int> requested) {
  int signal = requested.value_or(SIGTERM);
  const async::Deadline limit = async::Deadline::after(spec_.stop_grace);
  for (;;) {
    const std::chrono::milliseconds grace = std::chrono::ceil<std::chrono::milliseconds>(limit.remaining());
    awaitable<void> stopped = runner_.stop(signal, grace);
    awaitable<void> more = stop_signal_.wait();
    const std::variant<std::monostate, std::monostate> first =
        co_await (std::move(stopped) || std::move(more));
    if (first.index() == 0) co_return requested;
    const int further = stop_signal_.take();
    signal = means_now(requested, further) ? SIGKILL : further;
    if (signal == SIGKILL) {
      spdlog::warn("received {} while stopping; killing the workers now", signal_name(further));
    }
    if (!requested) requested = further;
  }
}

Attempt Agent::plan(const RankExchange& exchange) const {
  Attempt attempt;
  attempt.number = info_.round;
  attempt.node_address = info_.address;
  for (const WorkerRanks& ranks : exchange.workers) {
    worker::WorkerEnv env;
    env.rank = ranks.global;
    env.local_rank = ranks.local;
    env.world_size = ranks.world_size;
    env.local_world_size = spec_.local_world_size;
    env.group_rank = info_.group_rank;
    env.group_world_size = info_.group_world_size;
    env.role_rank = ranks.role;
    env.role_world_size = ranks.role_world_size;
    env.role_name = spec_.role;
    env.master_addr = config_.master_addr.value_or(exchange.store.address);
    env.master_port = exchange.store.port;
    env.restart_count = info_.restarts;
    env.max_restarts = spec_.max_restarts;
    env.run_id = config_.run_id;
    env.use_agent_store = true;
    attempt.workers.push_back(env);
  }
  return attempt;
}

std::string Agent::own_name() const {
  return "node " + std::to_string(info_.group_rank) + " (" + spec_.hostname + ")";
}

FailureReport Agent::report() const {
  return {spec_.name,  config_.interpreter, spec_.hostname,  config_.run_id,
          info_.round, runner_.failures(),  cause_elsewhere_};
}

void Agent::record_failure(const FailureReport& report) const {
  if (!folder_.exists()) return;
  const std::string path = (folder_.attempt_folder(report.attempt) / "failure.json").string();
  const std::error_code error = worker::write_whole_file(path, to_json(report));
  if (error) spdlog::error("cannot write {}: {}", path, error.message());
}

}  // namespace cpprun::launcher
