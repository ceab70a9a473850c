#include "launcher/agent/agent.hpp"

#include <spdlog/spdlog.h>

#include <boost/asio/experimental/awaitable_operators.hpp>

#include "launcher/agent/rank_assignment.hpp"
#include "rendezvous/async/deadline.hpp"
#include "worker_runtime/contract/whole_file.hpp"

namespace cpprun::launcher {

using namespace boost::asio::experimental::awaitable_operators;

namespace {

// A variant raced against others would be flattened into theirs.
struct Happened {
  GroupEvent event;
};

awaitable<Happened> group_ended(WorkerRunner& runner) {
  const std::optional<WorkerFailure> failure = co_await runner.ended();
  if (failure) co_return Happened{GroupFailed{summary(*failure), why_no_restart(*failure)}};
  co_return Happened{GroupSucceeded{}};
}

awaitable<Happened> stop_requested(StopSignal& stop_signal) {
  const int signal = co_await stop_signal.next();
  co_return Happened{StopRequested{signal}};
}

awaitable<Happened> membership_changed(rendezvous::RendezvousHandler& handler) {
  const std::variant<rendezvous::MembershipChanged, rendezvous::RendezvousLost> change =
      co_await handler.membership_changed();
  if (const auto* lost = std::get_if<rendezvous::RendezvousLost>(&change)) co_return Happened{*lost};
  co_return Happened{std::get<rendezvous::MembershipChanged>(change)};
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
  int restarts_left = spec_.max_restarts;
  for (int number = 0;; ++number) {
    const rendezvous::RendezvousInfo info = co_await handler_.next_rendezvous();
    const Attempt attempt = plan(info, number, restarts_left);
    runner_.start(attempt);
    spdlog::info("attempt {}: started {} of {} workers, store at {}:{}", number, attempt.workers.size(),
                 attempt.workers.front().world_size, attempt.workers.front().master_addr,
                 attempt.workers.front().master_port);
    const GroupEvent event = co_await next_event();
    const RestartDecision decision = decide_restart(event, restarts_left);
    if (decision.next == Next::Finish) {
      spdlog::info("{}", decision.reason);
    } else {
      spdlog::warn("{}", decision.reason);
    }
    const StopRequested* stop = std::get_if<StopRequested>(&event);
    const std::optional<int> requested = stop ? std::optional<int>(stop->signal) : std::nullopt;
    const std::optional<int> stopped_by = co_await stop_workers(requested);
    std::optional<FailureReport> failure;
    if (std::holds_alternative<GroupFailed>(event)) {
      failure = report(number);
      record_failure(*failure);
    }
    switch (decision.next) {
      case Next::Finish:
        co_return Succeeded{};
      case Next::Fail:
        co_return Failed{std::move(*failure)};  // only a failed group fails
      case Next::Stop:
        co_return StoppedBy{*stopped_by};
      case Next::Restart:
        if (stopped_by) co_return StoppedBy{*stopped_by};  // told to stop while it was about to restart
        if (decision.charge_budget) --restarts_left;
    }
  }
}

awaitable<GroupEvent> Agent::next_event() {
  awaitable<Happened> ended = group_ended(runner_);
  awaitable<Happened> stopped = stop_requested(stop_signal_);
  awaitable<Happened> changed = membership_changed(handler_);
  const std::variant<Happened, Happened, Happened> first =
      co_await (std::move(ended) || std::move(stopped) || std::move(changed));
  co_return std::visit([](const Happened& happened) { return happened.event; }, first);
}

awaitable<std::optional<int>> Agent::stop_workers(std::optional<int> requested) {
  int signal = requested.value_or(SIGTERM);
  const async::Deadline limit = async::Deadline::after(spec_.stop_grace);
  for (;;) {
    const std::chrono::milliseconds grace = std::chrono::ceil<std::chrono::milliseconds>(limit.remaining());
    awaitable<void> stopped = runner_.stop(signal, grace);
    awaitable<int> more = stop_signal_.next();
    const std::variant<std::monostate, int> first = co_await (std::move(stopped) || std::move(more));
    if (first.index() == 0) co_return requested;
    const int further = std::get<1>(first);
    signal = means_now(requested, further) ? SIGKILL : further;
    if (signal == SIGKILL) {
      spdlog::warn("received {} while stopping; killing the workers now", signal_name(further));
    }
    if (!requested) requested = further;
  }
}

Attempt Agent::plan(const rendezvous::RendezvousInfo& info, int number, int restarts_left) {
  const StoreEndpoint store = open_store_();
  const std::vector<NodeWorkers> nodes{{spec_.role, spec_.local_world_size}};
  Attempt attempt;
  attempt.number = number;
  for (const WorkerRanks& ranks : assign_ranks(nodes, info.group_rank)) {
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
    env.restart_count = spec_.max_restarts - restarts_left;
    env.max_restarts = spec_.max_restarts;
    env.run_id = config_.run_id;
    env.use_agent_store = true;
    attempt.workers.push_back(env);
  }
  return attempt;
}

FailureReport Agent::report(int attempt) const {
  return {spec_.name, config_.interpreter, spec_.hostname, config_.run_id, attempt, runner_.failures()};
}

void Agent::record_failure(const FailureReport& report) const {
  if (!folder_.exists()) return;
  const std::string path = (folder_.attempt_folder(report.attempt) / "failure.json").string();
  const std::error_code error = worker::write_whole_file(path, to_json(report));
  if (error) spdlog::error("cannot write {}: {}", path, error.message());
}

}  // namespace cpprun::launcher
