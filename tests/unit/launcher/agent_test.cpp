// The agent's loop with invented workers: what it starts, restarts, stops and reports, with no process
// started.
#include "launcher/agent/agent.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <deque>

#include "rendezvous/async/task_group.hpp"
#include "rendezvous/solo_rendezvous.hpp"

namespace cpprun::launcher {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;

// Plays a script: each attempt ends well, fails, or goes on until it is stopped.
class FakeRunner : public WorkerRunner {
 public:
  enum class Fate { Succeed, Fail, RefuseConfiguration, RunOn };

  FakeRunner(asio::io_context& io, std::deque<Fate> fates)
      : fates_(std::move(fates)), never_(io.get_executor()) {}

  void start(const Attempt& attempt) override {
    started.push_back(attempt);
    fate_ = fates_.front();
    fates_.pop_front();
    if (on_start) on_start();
  }
  awaitable<std::optional<WorkerFailure>> ended() override {
    while (fate_ == Fate::RunOn) co_await never_.wait();
    if (fate_ == Fate::Succeed) co_return std::nullopt;
    co_return failures().front();
  }
  awaitable<void> stop(int signal, milliseconds grace) override {
    stops.push_back(signal);
    graces.push_back(grace);
    if (on_stop) on_stop();
    if (stop_hangs && signal != SIGKILL) co_await never_.wait();
  }
  std::vector<WorkerFailure> failures() override {
    if (fate_ != Fate::Fail && fate_ != Fate::RefuseConfiguration) return {};
    WorkerFailure failure;
    failure.status = Exited{7};
    if (fate_ == Fate::RefuseConfiguration) {
      failure.status = Exited{2};
      failure.record = worker::ErrorRecord{"ConfigError: no such key", "", 0, 2};
    }
    return {failure};
  }
  bool abandoned() const override { return false; }

  std::vector<Attempt> started;
  std::vector<int> stops;
  std::vector<milliseconds> graces;
  std::function<void()> on_start;
  std::function<void()> on_stop;
  bool stop_hangs = false;

 private:
  std::deque<Fate> fates_;
  Fate fate_ = Fate::RunOn;
  async::Event never_;
};

class AgentTest : public ::testing::Test {
 protected:
  AgentTest() {
    EXPECT_EQ(::pipe(pipe_), 0);
    spec_.role = "r";
    spec_.local_world_size = 2;
    spec_.stop_grace = milliseconds(5000);
  }
  ~AgentTest() override { close_guardian(); }

  void close_guardian() {
    if (pipe_[1] >= 0) ::close(pipe_[1]);
    pipe_[1] = -1;
  }

  RunResult run(FakeRunner& runner) {
    StopSignal stop_signal(io_, {SIGUSR1, SIGUSR2, SIGINT}, pipe_[0]);
    rendezvous::SoloRendezvous handler("10.1.1.1", spec_.local_world_size, spec_.max_restarts,
                                       [this](const std::string& own_address) {
                                         ++stores_;
                                         return rendezvous::StoreEndpoint{own_address, 77};
                                       });
    Agent agent(config_, spec_, handler, runner, stop_signal, folder_);
    std::optional<RunResult> result;
    async::TaskGroup tasks(io_.get_executor());
    asio::co_spawn(io_, main(agent, stop_signal, tasks, result), [](std::exception_ptr error) {
      if (error) std::rethrow_exception(error);
    });
    io_.run();
    return std::move(*result);
  }

  static awaitable<void> main(Agent& agent, StopSignal& stop_signal, async::TaskGroup& tasks,
                              std::optional<RunResult>& result) {
    tasks.start(stop_signal.watch_signals());
    tasks.start(stop_signal.watch_guardian());
    result = co_await agent.run();
    tasks.cancel();
    co_await tasks.join();
  }

  using Fate = FakeRunner::Fate;
  asio::io_context io_;
  AgentConfig config_{"run", "", std::nullopt};
  WorkerSpec spec_;
  RunFolder folder_ = RunFolder::none();
  int pipe_[2];
  int stores_ = 0;
};

TEST_F(AgentTest, SuccessStartsOnce) {
  FakeRunner runner(io_, {Fate::Succeed});
  EXPECT_TRUE(std::holds_alternative<Succeeded>(run(runner)));
  ASSERT_EQ(runner.started.size(), 1u);
  const std::vector<worker::WorkerEnv>& workers = runner.started[0].workers;
  ASSERT_EQ(workers.size(), 2u);
  EXPECT_EQ(workers[1].rank, 1);
  EXPECT_EQ(workers[1].world_size, 2);
  EXPECT_EQ(workers[1].master_addr, "10.1.1.1");
  EXPECT_EQ(workers[1].master_port, 77);
  EXPECT_EQ(workers[1].run_id, "run");
  EXPECT_TRUE(workers[1].use_agent_store);
  EXPECT_THAT(runner.stops, ElementsAre(SIGTERM));  // whatever the workers left behind
}

TEST_F(AgentTest, FailureUsesTheBudgetAndANewStoreEachTime) {
  spec_.max_restarts = 2;
  FakeRunner runner(io_, {Fate::Fail, Fate::Fail, Fate::Fail});
  const RunResult result = run(runner);
  ASSERT_TRUE(std::holds_alternative<Failed>(result));
  EXPECT_EQ(std::get<Failed>(result).report.attempt, 2);
  ASSERT_EQ(runner.started.size(), 3u);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(runner.started[static_cast<std::size_t>(i)].number, i);
    EXPECT_EQ(runner.started[static_cast<std::size_t>(i)].workers[0].restart_count, i);
    EXPECT_EQ(runner.started[static_cast<std::size_t>(i)].workers[0].max_restarts, 2);
  }
  EXPECT_EQ(stores_, 3);
}

// Has one round; then it is out of reach.
class OneRound : public rendezvous::SoloRendezvous {
 public:
  using SoloRendezvous::SoloRendezvous;
  awaitable<std::optional<rendezvous::RendezvousInfo>> next_rendezvous() override {
    if (had_one_) throw rendezvous::RendezvousError(rendezvous::RendezvousError::Kind::Connection, "gone");
    had_one_ = true;
    co_return co_await SoloRendezvous::next_rendezvous();
  }

 private:
  bool had_one_ = false;
};

TEST_F(AgentTest, AFailureIsStillKnownWhenTheRendezvousIsLost) {
  spec_.max_restarts = 5;
  for (const Fate fate : {Fate::Fail, Fate::Succeed}) {
    FakeRunner runner(io_, {fate});
    StopSignal stop_signal(io_, {SIGUSR1}, ::dup(pipe_[0]));
    OneRound handler("10.1.1.1", 2, 5, [](const std::string& own_address) {
      return rendezvous::StoreEndpoint{own_address, 77};
    });
    Agent agent(config_, spec_, handler, runner, stop_signal, folder_);
    std::exception_ptr error;
    asio::co_spawn(io_, agent.run(), [&](std::exception_ptr thrown, const RunResult&) { error = thrown; });
    io_.run();
    io_.restart();
    EXPECT_EQ(error != nullptr, fate == Fate::Fail);
    EXPECT_EQ(agent.has_failed(), fate == Fate::Fail);
    ASSERT_EQ(agent.failure().has_value(), fate == Fate::Fail);
    if (agent.failure()) {
      EXPECT_EQ(agent.failure()->failures.size(), 1U);
    }
  }
}

TEST_F(AgentTest, WrongConfigurationIsNotTriedAgain) {
  spec_.max_restarts = 5;
  FakeRunner runner(io_, {Fate::RefuseConfiguration});
  EXPECT_TRUE(std::holds_alternative<Failed>(run(runner)));
  EXPECT_EQ(runner.started.size(), 1u);
}

TEST_F(AgentTest, RestartThatHelpsEndsWell) {
  spec_.max_restarts = 5;
  FakeRunner runner(io_, {Fate::Fail, Fate::Succeed});
  EXPECT_TRUE(std::holds_alternative<Succeeded>(run(runner)));
  EXPECT_EQ(runner.started.size(), 2u);
}

TEST_F(AgentTest, SignalStopsWithThatSignalAndTheGrace) {
  spec_.max_restarts = 5;
  FakeRunner runner(io_, {Fate::RunOn});
  runner.on_start = [] { ::raise(SIGUSR1); };
  const RunResult result = run(runner);
  ASSERT_TRUE(std::holds_alternative<StoppedBy>(result));
  EXPECT_EQ(std::get<StoppedBy>(result).signal, SIGUSR1);
  EXPECT_THAT(runner.stops, ElementsAre(SIGUSR1));
  EXPECT_EQ(runner.graces[0], milliseconds(5000));
}

TEST_F(AgentTest, FurtherSignalIsPassedOnAndAnInterruptMeansNow) {
  FakeRunner runner(io_, {Fate::RunOn});
  runner.on_start = [] { ::raise(SIGUSR1); };
  runner.stop_hangs = true;
  runner.on_stop = [&] {
    if (runner.stops.size() == 1) ::raise(SIGUSR2);
    if (runner.stops.size() == 2) ::raise(SIGINT);
  };
  const RunResult result = run(runner);
  EXPECT_EQ(std::get<StoppedBy>(result).signal, SIGUSR1);
  EXPECT_THAT(runner.stops, ElementsAre(SIGUSR1, SIGUSR2, SIGKILL));
  EXPECT_LE(runner.graces[1], runner.graces[0]);  // the grace runs on, it does not begin anew
}

TEST_F(AgentTest, EndOfTheGuardianKillsAtOnce) {
  FakeRunner runner(io_, {Fate::RunOn});
  runner.on_start = [this] { close_guardian(); };
  const RunResult result = run(runner);
  EXPECT_EQ(std::get<StoppedBy>(result).signal, SIGKILL);
  EXPECT_THAT(runner.stops, ElementsAre(SIGKILL));
}

// Two waits that are raced may end at once; what the loser has found out is not to be forgotten.
TEST_F(AgentTest, EndOfTheGuardianIsNotLostInAFailingJob) {
  spec_.max_restarts = 1000;
  FakeRunner runner(io_, std::deque<Fate>(1000, Fate::Fail));
  runner.on_start = [&] {
    if (runner.started.size() == 3) close_guardian();
  };
  EXPECT_TRUE(std::holds_alternative<StoppedBy>(run(runner)));
  EXPECT_LT(runner.started.size(), 10u);
}

TEST_F(AgentTest, SignalWhileStoppingForARestartPreventsTheRestart) {
  spec_.max_restarts = 5;
  FakeRunner runner(io_, {Fate::Fail, Fate::Succeed});
  runner.on_stop = [&] {
    runner.stop_hangs = runner.stops.size() == 1;
    if (runner.stop_hangs) ::raise(SIGINT);
  };
  runner.on_start = [&] {
    if (runner.started.size() == 2) ADD_FAILURE() << "restarted although the user had interrupted";
  };
  const RunResult result = run(runner);
  ASSERT_TRUE(std::holds_alternative<StoppedBy>(result));
  EXPECT_EQ(std::get<StoppedBy>(result).signal, SIGINT);
}

}  // namespace
}  // namespace cpprun::launcher
