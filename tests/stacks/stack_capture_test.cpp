// Stacks of real processes: the right names, and nothing of the process disturbed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <thread>

#include "launcher/process/reaper.hpp"
#include "tests/stacks/victim.hpp"

namespace cpprun::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Threads whose stack names `function`.
int threads_in(const RankStacks& stacks, const std::string& function) {
  int count = 0;
  for (const ThreadStack& thread : stacks.threads) {
    count += functions_of(thread).find(function) != std::string::npos ? 1 : 0;
  }
  return count;
}

TEST(StackCapture, NamesTheFunctionsOfEveryThread) {
  const Victim child(victim("threads", 3), "victim::main_waits_here()");
  const RankStacks stacks = dump_one(child.pid());
  EXPECT_EQ(stacks.note, "");
  ASSERT_EQ(stacks.threads.size(), 4u);
  const ThreadStack& main = stacks.threads.front();
  EXPECT_EQ(main.tid, child.pid());
  EXPECT_EQ(main.name, "stack_victim");
  EXPECT_EQ(main.state, "S");
  EXPECT_THAT(functions_of(main), HasSubstr("pause\n"));
  EXPECT_THAT(
      functions_of(main),
      HasSubstr("victim::sleeps_forever()\nvictim::main_waits_here()\nvictim::run_threads(int)\nmain\n"));
  EXPECT_THAT(main.frames.front().module, HasSubstr("libc"));
  EXPECT_EQ(threads_in(stacks, "victim::thread_waits_here()"), 3);
  EXPECT_GT(stacks.stopped_ms, 0);
  EXPECT_EQ(stacks.host, "here");
}

TEST(StackCapture, NamesTheKernelsSide) {
  const Victim child(victim("threads"));
  const ThreadStack main = dump_one(child.pid()).threads.front();
  if (::geteuid() != 0) GTEST_SKIP() << "for root only";
  EXPECT_FALSE(main.kernel.empty());
}

TEST(StackCapture, TellsWhoWaitsForALockAndWhoHoldsIt) {
  const Victim child(victim("locked"), "victim::wants_the_lock()");
  const RankStacks stacks = dump_one(child.pid());
  EXPECT_THAT(functions_of(stacks.threads.at(0)), HasSubstr("victim::wants_the_lock()"));
  EXPECT_THAT(functions_of(stacks.threads.at(1)), HasSubstr("victim::holds_the_lock("));
}

TEST(StackCapture, AProcessThatComputesIsCaughtToo) {
  const Victim child(victim("spin"), "victim::spins_here()");
  const ThreadStack main = dump_one(child.pid()).threads.front();
  EXPECT_THAT(functions_of(main), HasSubstr("victim::spins_here()\nmain\n"));
  EXPECT_EQ(main.state, "R");
}

TEST(StackCapture, ManyThreads) {
  const Victim child(victim("threads", 200));
  const RankStacks stacks = dump_one(child.pid());
  EXPECT_EQ(stacks.threads.size(), 201u);
  EXPECT_EQ(threads_in(stacks, "victim::thread_waits_here()"), 200) << to_text(stacks);
}

TEST(StackCapture, MoreThreadsThanTheLimitAreLeftOut) {
  const Victim child(victim("threads", 300), "victim::main_waits_here()");
  const RankStacks stacks = dump_one(child.pid());
  EXPECT_EQ(stacks.threads.size(), 256u);
  EXPECT_THAT(functions_of(stacks.threads.front()), HasSubstr("victim::main_waits_here()"));
}

TEST(StackCapture, ADeepStackIsCut) {
  const Victim child(victim("deep", 20000), "pause\n");
  const ThreadStack main = dump_one(child.pid()).threads.front();
  EXPECT_EQ(main.frames.size(), 256u);
  EXPECT_THAT(main.note, HasSubstr("innermost"));
  EXPECT_THAT(functions_of(main), HasSubstr("victim::goes_deeper(int)\nvictim::goes_deeper(int)\n"));
}

TEST(StackCapture, AStrippedProgramIsUnwoundWithoutItsNames) {
  const Victim child({STACK_VICTIM_STRIPPED, "threads", "1"}, "pause\n");
  const ThreadStack main = dump_one(child.pid()).threads.front();
  const std::string text = functions_of(main);
  EXPECT_THAT(text, HasSubstr("pause\n"));
  EXPECT_THAT(text, Not(HasSubstr("main_waits_here")));
  int in_program = 0;
  for (const StackFrame& frame : main.frames) {
    in_program += frame.module == STACK_VICTIM_STRIPPED && frame.offset != 0 ? 1 : 0;
  }
  EXPECT_GE(in_program, 4) << text;
}

TEST(StackCapture, AStoppedProcessStaysStopped) {
  const Victim child(victim("threads"), "victim::main_waits_here()");
  ::kill(child.pid(), SIGSTOP);
  ASSERT_TRUE(until([&] { return child.state() == 'T'; }));
  for (int i = 0; i < 3; ++i) {
    const RankStacks stacks = dump_one(child.pid());
    EXPECT_EQ(stacks.threads.front().state, "T");
    EXPECT_THAT(functions_of(stacks.threads.front()), HasSubstr("victim::main_waits_here()"));
    EXPECT_TRUE(until([&] { return child.state() == 'T'; }));
  }
  ::kill(child.pid(), SIGCONT);
  EXPECT_TRUE(until([&] { return child.state() == 'S'; }));
}

TEST(StackCapture, SystemCallsGoOnAsIfNothingHadBeen) {
  Victim child(victim("calls"));
  for (int i = 0; i < 20; ++i) dump_one(child.pid());
  child.write("r");
  for (int i = 0; i < 10; ++i) dump_one(child.pid());
  child.close_input();
  EXPECT_EQ(child.read_line(), "undisturbed");
}

TEST(StackCapture, NoSignalIsLost) {
  constexpr int kSignals = 2000;
  Victim child(victim("signals", kSignals));
  std::atomic<bool> sent = false;
  // Beside the captures, so that some arrive between an interrupt and its stop.
  std::thread sender([&] {
    for (int i = 0; i < kSignals; ++i) {
      until([&] { return ::sigqueue(child.pid(), SIGRTMIN, {}) == 0; });
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    sent = true;
  });
  while (!sent) dump({{0, 0, child.pid(), 0, ""}}, tools_with(""));
  sender.join();
  EXPECT_EQ(child.read_line(), "all arrived");
}

TEST(StackCapture, AThreadThatTheKernelHoldsHasAtLeastItsEnd) {
  const Victim child(victim("vfork"));
  ASSERT_TRUE(until([&] { return child.state() == 'D'; }));
  const RankStacks stacks = dump_one(child.pid());
  const ThreadStack& main = stacks.threads.at(0);
  EXPECT_EQ(main.state, "D");
  EXPECT_THAT(main.note, HasSubstr("uninterruptible sleep"));
  EXPECT_THAT(functions_of(main), HasSubstr("vfork\n"));
  // Nobody holds it any more: its child ends, and so does it.
  EXPECT_EQ(child.state(), 'D');
}

TEST(StackCapture, OneThatTheKernelHeldIsFreeAfterwards) {
  Victim child(victim("vfork"));
  ASSERT_TRUE(until([&] { return child.state() == 'D'; }));
  dump_one(child.pid());
  child.close_input();
  // An interrupt that was left behind would stop it for good here.
  EXPECT_TRUE(until([&] { return child.state() == 'Z'; }));
}

TEST(StackCapture, AProcessThatADebuggerTracesIsLeftToIt) {
  const Victim child(victim("threads"));
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, child.pid(), nullptr, nullptr), 0);
  const RankStacks stacks = dump_one(child.pid());
  EXPECT_THAT(stacks.note, HasSubstr("a debugger traces it already: process " + std::to_string(::getpid())));
  EXPECT_TRUE(stacks.threads.at(0).frames.empty());
  ASSERT_EQ(::ptrace(PTRACE_INTERRUPT, child.pid(), nullptr, nullptr), 0);
  ASSERT_EQ(::waitpid(child.pid(), nullptr, __WALL), child.pid());
  EXPECT_EQ(::ptrace(PTRACE_DETACH, child.pid(), nullptr, nullptr), 0);
}

TEST(StackCapture, AProcessThatHasEndedIsSaidToHaveEnded) {
  pid_t gone = 0;
  {
    const Victim child(victim("threads"));
    gone = child.pid();
  }
  const RankStacks stacks = dump_one(gone);
  EXPECT_EQ(stacks.note, "the process has ended");
  EXPECT_EQ(stacks.pid, gone);
  EXPECT_TRUE(stacks.threads.empty());
}

TEST(StackCapture, TheReaperTakesNoStopForAnEnd) {
  asio::io_context io;
  Reaper reaper(io);
  asio::co_spawn(io, reaper.run(), [](const std::exception_ptr&) {});
  const Victim child(victim("threads", 20));
  reaper.watch(child.pid());
  const StackTools tools = tools_with(CPPRUN_STACKS);
  int dumps = 0;
  const auto count = [&](const std::exception_ptr& error, const std::vector<RankStacks>& stacks) {
    EXPECT_FALSE(error);
    EXPECT_EQ(threads_in(stacks.at(0), "victim::thread_waits_here()"), 20);
    ++dumps;
  };
  for (int i = 0; i < 10; ++i) {
    asio::co_spawn(io,
                   dump_stacks(io, {{0, 0, child.pid(), 0, ""}}, tools,
                               async::Deadline::after(std::chrono::seconds(60))),
                   count);
    while (dumps == i) io.run_one();
    EXPECT_FALSE(reaper.end_of(child.pid()));
  }
  ::kill(child.pid(), SIGKILL);
  while (!reaper.end_of(child.pid())) io.run_one();
  EXPECT_EQ(std::get<Signaled>(reaper.end_of(child.pid())->status).signal, SIGKILL);
  io.stop();
}

}  // namespace
}  // namespace cpprun::launcher
