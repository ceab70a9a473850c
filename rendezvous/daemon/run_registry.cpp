#include "rendezvous/daemon/run_registry.hpp"

#include <spdlog/spdlog.h>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <optional>
#include <utility>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/store/protocol.hpp"
#include "rendezvous/text.hpp"

namespace cpprun::rendezvous {
namespace {

using async::Clock;
using async::Deadline;

// Between two looks for runs that are over.
constexpr std::chrono::milliseconds kLookEvery(100);

CouncilConfig council_config(const store::Opening& opening, const CoordinatorRules& rules) {
  CouncilConfig config;
  config.run_id = opening.run;
  config.rules = rules;
  return config;
}

// Names come from the network; a log line is one line.
std::string printable(const std::string& name) {
  constexpr std::size_t kMost = 64;
  const std::string text = escaped(name.substr(0, kMost));
  return name.size() > kMost ? text + "..." : text;
}

}  // namespace

struct RunRegistry::Run {
  Run(asio::any_io_executor executor, const store::Opening& opening, const CoordinatorRules& rules)
      : name(opening.run),
        desk(executor, opening.run),
        council(executor, council_config(opening, rules), desk),
        tasks(executor) {
    tasks.start(council.run());
  }

  std::string name;
  store::RunDesk desk;
  Council council;
  std::optional<Clock::time_point> alone_since;
  async::TaskGroup tasks;
};

RunRegistry::RunRegistry(asio::any_io_executor executor, RegistryLimits limits)
    : executor_(executor), limits_(limits), fewer_(executor) {}

RunRegistry::~RunRegistry() = default;

awaitable<void> RunRegistry::run() {
  co_await asio::this_coro::throw_if_cancelled(false);
  asio::steady_timer timer(executor_);
  for (bool cancelled = false; !cancelled;) {
    for (auto it = runs_.begin(); it != runs_.end();) {
      if (saying_farewell_ || !is_over(*it->second)) {
        ++it;
        continue;
      }
      // Out of the map first: who opens a run of that name meanwhile begins a new one.
      std::unique_ptr<Run> over = std::move(it->second);
      runs_.erase(it);
      const char* why = over->council.done() ? "it has ended" : "nobody has asked for it for a while";
      co_await end(std::move(over), why);
      it = runs_.begin();
    }
    fewer_.notify_all();
    timer.expires_after(kLookEvery);
    co_await timer.async_wait(async::use_error);
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    cancelled = state.cancelled() != asio::cancellation_type::none;
  }
  while (!runs_.empty()) {
    std::unique_ptr<Run> left = std::move(runs_.begin()->second);
    runs_.erase(runs_.begin());
    co_await end(std::move(left), "the daemon ends");
  }
}

bool RunRegistry::is_over(Run& run) const {
  if (run.council.done()) return true;
  if (run.council.connections() > 0) {
    run.alone_since.reset();
    return false;
  }
  const Clock::time_point now = Clock::now();
  if (!run.alone_since) run.alone_since = now;
  return now - *run.alone_since >= limits_.idle;
}

awaitable<void> RunRegistry::end(std::unique_ptr<Run> run, const char* why) {
  run->tasks.cancel();
  try {
    co_await run->tasks.join();
  } catch (const std::exception& error) {
    spdlog::warn("run {}: {}", printable(run->name), error.what());
  }
  spdlog::info("run {}: forgotten, {}", printable(run->name), why);
}

std::uint8_t RunRegistry::admit(const store::Opening& opening) {
  return runs_.count(opening.run) != 0 ? store::kOpened : begin(opening);
}

std::uint8_t RunRegistry::begin(const store::Opening& opening) {
  if (closing_) return refuse(opening, store::kClosing, "the daemon is about to end");
  if (runs_.size() >= limits_.runs)
    return refuse(opening, store::kNoRoom, "there are as many as there may be");
  std::optional<CoordinatorRules> rules = rules_from_json(opening.rules);
  if (!rules) return refuse(opening, store::kUnreadable, "its agent is of another version of cpprun");
  if (rules->endpoints != 1) return refuse(opening, store::kSoleLeader, "it has other endpoints too");
  spdlog::info("run {}: opened, for {} to {} nodes", printable(opening.run), rules->round.min_nodes,
               rules->round.max_nodes);
  runs_[opening.run] = std::make_unique<Run>(executor_, opening, *rules);
  ++opened_;
  return store::kOpened;
}

std::uint8_t RunRegistry::refuse(const store::Opening& opening, std::uint8_t answer, const char* why) {
  // Agents ask again and again: the first of them is worth a line.
  spdlog::log(refused_ == 0 ? spdlog::level::warn : spdlog::level::debug, "run {}: not opened, {}",
              printable(opening.run), why);
  ++refused_;
  return answer;
}

void RunRegistry::take(const store::Opening& opening, store::OpenedConnection&& connection) {
  runs_.at(opening.run)->desk.take(opening, std::move(connection));
}

awaitable<void> RunRegistry::drain(Deadline limit) {
  closing_ = true;
  while (!runs_.empty() && !limit.passed()) {
    co_await fewer_.wait_until(limit.time());
    const asio::cancellation_state state = co_await asio::this_coro::cancellation_state;
    if (state.cancelled() != asio::cancellation_type::none) co_return;
  }
}

awaitable<void> RunRegistry::say_farewell(std::string why) {
  co_await asio::this_coro::throw_if_cancelled(false);
  saying_farewell_ = true;
  async::TaskGroup farewells(executor_);
  for (const auto& [name, run] : runs_) farewells.start(run->council.say_farewell(why));
  co_await farewells.join();
}

std::vector<RunReading> RunRegistry::runs() const {
  std::vector<RunReading> readings;
  for (const auto& [name, run] : runs_) {
    readings.push_back({name, run->council.agents(), run->council.view()});
  }
  return readings;
}

}  // namespace cpprun::rendezvous
