#include "launcher/agent/agent.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <csignal>

#include "launcher/agent/rank_assignment.hpp"
#include "launcher/report/failure_files.hpp"
#include "rendezvous/async/deadline.hpp"

namespace cpprun::launcher {

using namespace boost::asio::experimental::awaitable_operators;

namespace {

// A variant raced against others would be flattened into theirs.
struct Happened {
  GroupEvent event;
};

awaitable<Happened> group_ended(WorkerRunner& runner) {
  const std::optional<WorkerFailure> failure = co_await runner.ended();
  if (failure) {
    const bool timed_out = failure->verdict.cls == FailureClass::Timeout;
    co_return Happened{GroupFailed{summary(*failure), why_no_restart(*failure), timed_out}};
  }
  co_return Happened{GroupSucceeded{}};
}

awaitable<Happened> round_ended(rendezvous::RendezvousHandler& handler) {
  rendezvous::RoundEvent event = co_await handler.round_ended();
  co_return std::visit([](auto& what) { return Happened{std::move(what)}; }, event);
}

awaitable<Happened> all_finished(rendezvous::RendezvousHandler& handler) {
  rendezvous::FinishEvent event = co_await handler.finish();
  if (std::holds_alternative<rendezvous::AllFinished>(event)) co_return Happened{GroupSucceeded{}};
  if (auto* end = std::get_if<rendezvous::RoundEnd>(&event)) co_return Happened{std::move(*end)};
  co_return Happened{std::get<rendezvous::RendezvousLost>(std::move(event))};
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

bool is_failure(const rendezvous::RoundEnd& end) {
  return end.final || end.charged || !end.cause.empty() || !end.lost.empty();
}

// What else ends an attempt is a signal, or a change of the number of nodes.
bool is_failure(const GroupEvent& event) {
  if (const auto* end = std::get_if<rendezvous::RoundEnd>(&event)) return is_failure(*end);
  return std::holds_alternative<GroupFailed>(event) ||
         std::holds_alternative<rendezvous::RendezvousLost>(event);
}

// Whose words are wanted. Whoever has lost the run may have lost node 0, where the workers' store is.
std::vector<int> lost_nodes(const GroupEvent& event, int group_rank) {
  if (const auto* end = std::get_if<rendezvous::RoundEnd>(&event)) return end->lost;
  const bool may_be_first = group_rank != 0 && std::holds_alternative<rendezvous::RendezvousLost>(event);
  return may_be_first ? std::vector<int>{0} : std::vector<int>();
}

// A second Ctrl-C (or SIGQUIT, or the same signal again) means now; so does the end of the guardian.
bool means_now(std::optional<int> before, int further) {
  return further == SIGKILL || (before && (further == SIGINT || further == SIGQUIT || further == *before));
}

}  // namespace

Agent::Agent(const AgentConfig& config, const WorkerSpec& spec, rendezvous::RendezvousHandler& handler,
             WorkerRunner& runner, StopSignal& stop_signal, const RunFolder& folder)
    : config_(config),
      spec_(spec),
      handler_(handler),
      runner_(runner),
      stop_signal_(stop_signal),
      folder_(folder) {}

awaitable<RunResult> Agent::run() {
  for (;;) {
    const Joined joined = co_await join();
    if (const StopRequested* stop = std::get_if<StopRequested>(&joined)) co_return stopped(stop->signal);
    if (std::holds_alternative<Succeeded>(joined)) {
      spdlog::info("the job ended well; this node was a spare");
      co_return Succeeded{};
    }
    std::optional<RunResult> result = co_await run_attempt(std::get<Attempt>(joined));
    if (result) co_return std::move(*result);
  }
}

awaitable<std::optional<RunResult>> Agent::run_attempt(const Attempt& attempt) {
  cause_elsewhere_.reset();
  own_cause_.clear();
  lost_.clear();
  words_.clear();
  lost_nodes_.clear();
  failed_ = false;
  runner_.start(attempt);
  phase_ = AgentPhase::Running;
  if (config_.started) config_.started(attempt);
  spdlog::info("attempt {}: started {} of {} workers, store at {}:{}", attempt.number, attempt.workers.size(),
               attempt.workers.front().world_size, attempt.workers.front().master_addr,
               attempt.workers.front().master_port);
  GroupEvent event = co_await next_event();
  std::optional<int> stopped_by;
  if (std::holds_alternative<GroupSucceeded>(event)) {
    // What the workers left behind is not to wait for the other nodes.
    stopped_by = co_await stop_workers(std::nullopt, spec_.stop_grace);
    if (config_.ended) config_.ended();
    event = co_await finish(stopped_by);
  }
  if (std::holds_alternative<GroupSucceeded>(event)) {
    spdlog::info("all workers ended well");
    co_return Succeeded{};
  }
  if (const auto* failed = std::get_if<GroupFailed>(&event); failed && failed->timed_out) {
    co_await take_stacks(failed->what);
  }
  failed_ = is_failure(event);
  has_failed_ = has_failed_ || failed_;
  announce(event);
  std::chrono::milliseconds grace = spec_.stop_grace;
  if (const auto* lost = std::get_if<rendezvous::RendezvousLost>(&event))
    grace = std::min(grace, lost->grace);
  const StopRequested* stop = std::get_if<StopRequested>(&event);
  if (stop) stopped_by = stop->signal;
  awaitable<std::optional<int>> stopping = stop_workers(stopped_by, grace);
  awaitable<void> hearing = hear_last_words(event);
  stopped_by = co_await (std::move(stopping) && std::move(hearing));
  if (config_.ended) config_.ended();
  if (std::holds_alternative<GroupFailed>(event)) write_failure_files(folder_, report());
  if (stop) co_return StoppedBy{*stopped_by};
  if (stopped_by) event = StopRequested{*stopped_by};
  co_return co_await conclude(std::move(event));
}

awaitable<void> Agent::take_stacks(std::string why) {
  if (!config_.take_stacks) co_return;
  awaitable<void> taken = config_.take_stacks(std::move(why));
  awaitable<void> told_to_stop = stop_signal_.wait();
  co_await (std::move(taken) || std::move(told_to_stop));
}

awaitable<void> Agent::hear_last_words(GroupEvent event) {
  if (!config_.last_words || !failed_) co_return;
  lost_nodes_ = lost_nodes(event, info_.group_rank);
  words_ = co_await config_.last_words(lost_nodes_);
}

awaitable<std::optional<RunResult>> Agent::conclude(GroupEvent event) {
  const StopRequested* stop = std::get_if<StopRequested>(&event);
  const bool failed_here = !own_cause_.empty();
  // Told to stop while it was about to restart, or while others ended the job.
  if (stop && !failed_here) co_return stopped(stop->signal);
  phase_ = AgentPhase::Deciding;
  awaitable<rendezvous::RoundEnd> settled = handler_.settled();
  awaitable<void> told_to_stop = stop_signal_.wait();
  std::variant<rendezvous::RoundEnd, std::monostate> first =
      co_await (std::move(settled) || std::move(told_to_stop));
  if (first.index() == 1) co_return stopped(stop_signal_.take());
  const rendezvous::RoundEnd& end = std::get<0>(first);
  const bool by_this_node = failed_here && end.cause == own_cause_;
  lost_nodes_.insert(lost_nodes_.end(), end.lost.begin(), end.lost.end());
  if (is_failure(end) && !by_this_node) {
    cause_elsewhere_ = JobCause::from_json(end.cause, end.sentence);
    write_failure_files(folder_, report());
  }
  if (stop && !end.final) co_return stopped(stop->signal);
  if (failed_here && (by_this_node || !end.final) && !end.sentence.empty()) spdlog::warn("{}", end.sentence);
  if (!end.final) co_return std::nullopt;
  co_return Failed{report()};
}

void Agent::announce(const GroupEvent& event) {
  if (const auto* failed = std::get_if<GroupFailed>(&event)) {
    own_cause_ = JobCause::of(report()).to_json();
    spdlog::warn("{}{}", failed->what, info_.workers.world_size > 1 ? "; stopping the other workers" : "");
    handler_.end_round(end_by_failure(own_name(), *failed, own_cause_));
  } else if (const StopRequested* stop = std::get_if<StopRequested>(&event)) {
    stopped(stop->signal);
  } else if (const auto* end = std::get_if<rendezvous::RoundEnd>(&event)) {
    spdlog::warn("{}", end->sentence);
  } else if (const auto* lost = std::get_if<rendezvous::RendezvousLost>(&event)) {
    lost_ = "the rendezvous was lost: " + lost->reason;
    spdlog::warn("the rendezvous was lost: {}; stopping the workers within {} ms", lost->reason,
                 lost->grace.count());
  }
}

// The others are told.
RunResult Agent::stopped(int signal) {
  const StopRequested stop{signal};
  spdlog::warn(
      "{}", signal == SIGKILL ? "cpprun was killed; ending its workers" : "received " + signal_name(signal));
  handler_.leave(end_by_stop(own_name(), stop));
  return StoppedBy{signal};
}

awaitable<Agent::Joined> Agent::join() {
  phase_ = AgentPhase::Rendezvous;
  awaitable<Outcome<std::optional<rendezvous::RendezvousInfo>>> joined = captured(handler_.next_rendezvous());
  awaitable<void> told_to_stop = stop_signal_.wait();
  std::variant<Outcome<std::optional<rendezvous::RendezvousInfo>>, std::monostate> first =
      co_await (std::move(joined) || std::move(told_to_stop));
  if (first.index() == 1) co_return StopRequested{stop_signal_.take()};
  if (!lost_.empty() && std::get<0>(first).failure) record_loss(std::get<0>(first).failure);
  const std::optional<rendezvous::RendezvousInfo> info = std::get<0>(first).take();
  if (!info) co_return Succeeded{};
  info_ = *info;
  co_return plan(*info);
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
  phase_ = AgentPhase::Finishing;
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

awaitable<std::optional<int>> Agent::stop_workers(std::optional<int> requested,
                                                  std::chrono::milliseconds grace) {
  phase_ = AgentPhase::Stopping;
  int signal = requested.value_or(SIGTERM);
  async::Deadline limit = async::Deadline::after(grace);
  for (;;) {
    const std::chrono::milliseconds left = std::chrono::ceil<std::chrono::milliseconds>(limit.remaining());
    awaitable<void> stopped = runner_.stop(signal, left);
    awaitable<void> more = stop_signal_.wait();
    awaitable<async::Deadline> fenced = handler_.fenced_before(limit);
    const std::variant<std::monostate, std::monostate, async::Deadline> first =
        co_await (std::move(stopped) || std::move(more) || std::move(fenced));
    if (first.index() == 0) co_return requested;
    if (first.index() == 2) {
      spdlog::warn("others may soon go on without this node; its workers have less time to stop");
      limit = std::get<2>(first);
      continue;
    }
    const int further = stop_signal_.take();
    signal = means_now(requested, further) ? SIGKILL : further;
    if (signal == SIGKILL) {
      spdlog::warn("received {} while stopping; killing the workers now", signal_name(further));
    }
    if (!requested) requested = further;
  }
}

Attempt Agent::plan(const rendezvous::RendezvousInfo& info) const {
  Attempt attempt;
  attempt.number = info.round;
  attempt.node_address = info.address;
  const std::string rank0_addr = config_.master_addr.value_or(info.store.address);
  const rendezvous::StoreEndpoint store =
      config_.reach ? config_.reach(info.store) : rendezvous::StoreEndpoint{rank0_addr, info.store.port};
  for (const WorkerRanks& ranks : assign_ranks(info.workers, spec_.local_world_size)) {
    worker::WorkerEnv env;
    env.rank = ranks.global;
    env.local_rank = ranks.local;
    env.world_size = ranks.world_size;
    env.local_world_size = spec_.local_world_size;
    env.group_rank = info.group_rank;
    env.group_world_size = info.group_world_size;
    env.role_rank = ranks.role;
    env.role_world_size = ranks.role_world_size;
    env.role_name = spec_.role;
    env.master_addr = store.address;
    env.master_port = store.port;
    if (config_.reach) env.rank0_addr = rank0_addr;
    env.restart_count = info.restarts;
    env.max_restarts = spec_.max_restarts;
    env.run_id = config_.run_id;
    env.use_agent_store = true;
    attempt.workers.push_back(env);
  }
  return attempt;
}

std::string Agent::own_name() const {
  if (info_.group_world_size <= 1) return "";
  return "node " + std::to_string(info_.group_rank) + " (" + spec_.hostname + ")";
}

FailureReport Agent::report() const {
  FailureReport report{spec_.name,  config_.interpreter, spec_.hostname,  config_.run_id,
                       info_.round, runner_.failures(),  cause_elsewhere_};
  for (const NodeWords& words : words_) {
    const bool is_lost = std::count(lost_nodes_.begin(), lost_nodes_.end(), words.node) > 0;
    if (is_lost) report.lost_nodes.push_back(words);
    if (words.node == 0 && !words.facts.versions.empty()) report.first_node = words;
  }
  return report;
}

std::optional<FailureReport> Agent::failure() const {
  if (!failed_) return std::nullopt;
  FailureReport left = report();
  if (left.failures.empty() && !left.elsewhere) return std::nullopt;
  return left;
}

void Agent::record_loss(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const rendezvous::RendezvousError& why) {
    cause_elsewhere_ = JobCause::lost_rendezvous(lost_ + "; " + why.what());
    write_failure_files(folder_, report());
  } catch (...) {  // it will be reported as what it is
  }
}

}  // namespace cpprun::launcher
