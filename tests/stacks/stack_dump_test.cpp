// Tools that fail, Python's own stacks, files.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "launcher/health/flight_recorder.hpp"
#include "launcher/health/python_dump.hpp"
#include "launcher/health/stack_files.hpp"
#include "tests/stacks/victim.hpp"

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

class StackDump : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "cpprun-stacks-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& text) {
    const fs::path path = folder_ / name;
    std::ofstream(path) << text;
    ::chmod(path.c_str(), 0700);
    return path.string();
  }
  std::string read(const std::string& name) {
    std::ostringstream text;
    text << std::ifstream(folder_ / name).rdbuf();
    return text.str();
  }
  std::string tool(const std::string& body) { return write("tool", "#!/bin/sh\n" + body + "\n"); }

  fs::path folder_;
};

// What does not depend on the unwinder is there in any case.
void expect_facts(const RankStacks& stacks, pid_t pid) {
  ASSERT_EQ(stacks.threads.size(), 2u);
  EXPECT_EQ(stacks.threads.front().tid, pid);
  EXPECT_EQ(stacks.threads.front().name, "stack_victim");
  EXPECT_TRUE(stacks.threads.front().frames.empty());
}

TEST_F(StackDump, AnUnwinderThatFailsCostsTheNamesOnly) {
  const Victim child(victim("threads"));
  const std::vector<StackTarget> targets{{0, 4, child.pid(), 0, ""}};
  const std::pair<std::string, const char*> cases[] = {
      {"", "cpprun-stacks is not beside cpprun"},
      {(folder_ / "none").string(), "it cannot be run"},
      {tool("echo '{\"tid\": 1}'; echo '[['; echo nonsense; exit 3"), "named none"},
      {write("killed", "#!/bin/sh\nkill -9 $$\n"), "named none"},
      {write("endless", "#!/bin/sh\nexec tr '\\0' x < /dev/zero\n"), "it printed too much"}};
  for (const auto& [unwinder, note] : cases) {
    const RankStacks stacks = dump(targets, tools_with(unwinder)).at(0);
    EXPECT_EQ(stacks.rank, 4);
    EXPECT_THAT(stacks.note, HasSubstr(note)) << unwinder;
    expect_facts(stacks, child.pid());
  }
}

TEST_F(StackDump, WhatTheUnwinderSaidBeforeTheDeadlineCounts) {
  const Victim child(victim("threads"));
  const std::string line =
      "{\"tid\": " + std::to_string(child.pid()) + ", \"frames\": [{\"function\": \"f\"}]}";
  const std::string slow =
      tool("echo '" + line + "'; touch " + (folder_ / "said").string() + "; exec sleep 1000");
  std::vector<RankStacks> stacks;
  // How long the shell takes to start is nobody's promise.
  for (std::chrono::milliseconds limit{500};; limit *= 2) {
    stacks = dump({{0, 0, child.pid(), 0, ""}}, tools_with(slow), limit);
    if (fs::exists(folder_ / "said") || limit > std::chrono::seconds(30)) break;
  }
  EXPECT_THAT(stacks.at(0).note, HasSubstr("it was not done in time"));
  EXPECT_EQ(functions_of(stacks.at(0).threads.at(0)), "f\n");
}

TEST_F(StackDump, ADeadlineThatIsOverGivesNotesOnly) {
  const Victim child(victim("threads"));
  const std::vector<RankStacks> stacks = dump({{0, 0, child.pid(), 0, ""}, {1, 1, child.pid(), 0, ""}},
                                              tools_with(CPPRUN_STACKS), std::chrono::milliseconds(0));
  ASSERT_EQ(stacks.size(), 2u);
  EXPECT_EQ(stacks.at(1).rank, 1);
}

TEST_F(StackDump, SeveralWorkersInTheirOrder) {
  const Victim first(victim("threads"), "victim::main_waits_here()");
  const Victim second(victim("spin"), "victim::spins_here()");
  const Victim third(victim("locked"), "victim::wants_the_lock()");
  const std::vector<RankStacks> stacks =
      dump({{0, 8, first.pid(), 0, ""}, {1, 9, second.pid(), 0, ""}, {2, 10, third.pid(), 0, ""}},
           tools_with(CPPRUN_STACKS));
  ASSERT_EQ(stacks.size(), 3u);
  EXPECT_THAT(functions_of(stacks.at(0).threads.at(0)), HasSubstr("victim::main_waits_here()"));
  EXPECT_THAT(functions_of(stacks.at(1).threads.at(0)), HasSubstr("victim::spins_here()"));
  EXPECT_THAT(functions_of(stacks.at(2).threads.at(0)), HasSubstr("victim::wants_the_lock()"));
  EXPECT_EQ(stacks.at(2).rank, 10);
}

constexpr const char* kScript = R"(
import faulthandler, signal, sys, threading
out = open(sys.argv[1], "a")
faulthandler.register(signal.SIGUSR2, file=out, all_threads=True)
def helper(ready):
    ready.set()
    threading.Event().wait()
def waits_here():
    print("ready", flush=True)
    sys.stdin.read()
    print("undisturbed", flush=True)
ready = threading.Event()
threading.Thread(target=helper, args=(ready,), daemon=True).start()
ready.wait()
waits_here()
)";

TEST_F(StackDump, PythonsOwnFramesComeThroughFaulthandler) {
  const std::string script = write("script.py", kScript);
  const std::string file = write("python.txt", "written before\n");
  Victim child({PYTHON, script, file});
  // Twice: what was written by the first signal is not the answer to the second.
  for (int i = 0; i < 2; ++i) {
    RankStacks stacks;
    ASSERT_TRUE(until([&] {
      stacks = dump({{0, 0, child.pid(), SIGUSR2, file}}, tools_with(CPPRUN_STACKS)).at(0);
      return !stacks.python.empty() && stacks.python.front().frames.at(0).line == 10;
    })) << to_text(stacks);
    ASSERT_EQ(stacks.python.size(), 2u) << to_text(stacks);
    const PythonThread& main = stacks.python.front();
    EXPECT_TRUE(main.main);
    ASSERT_EQ(main.frames.size(), 2u);
    EXPECT_EQ(main.frames.at(0).function, "waits_here");
    EXPECT_EQ(main.frames.at(0).file, script);
    EXPECT_EQ(main.frames.at(0).line, 10);
    EXPECT_EQ(main.frames.at(1).function, "<module>");
    EXPECT_FALSE(stacks.threads.at(0).frames.empty());
  }
  child.close_input();
  EXPECT_EQ(child.read_line(), "undisturbed");
}

TEST_F(StackDump, OfAWrapperTheProcessThatItWaitsForIsTaken) {
  const std::string script = write("script.py", kScript);
  // A shell waits for a shell that waits for the script; `:` keeps both from becoming it.
  const std::string command = std::string(PYTHON) + " " + script + " " + write("python.txt", "") + "; :";
  const Victim shell({"/bin/bash", "-c", "/bin/bash -c '" + command + "'; :"});
  RankStacks stacks;
  ASSERT_TRUE(until([&] {
    stacks = dump({{0, 0, shell.pid(), 0, ""}}, tools_with("")).at(0);
    return stacks.threads.size() == 2;
  })) << to_text(stacks);
  EXPECT_NE(stacks.pid, shell.pid());
  EXPECT_TRUE(stacks.python_missing);
  EXPECT_THAT(stacks.note,
              HasSubstr("it runs below the worker's bash (pid " + std::to_string(shell.pid()) + ")"));
}

TEST_F(StackDump, OfAWrapperWithSeveralChildrenTheWriterOfThePageIsTaken) {
  const std::string script = write("script.py", kScript);
  const std::string file = write("python.txt", "");
  // Both have the test's end of stdin, which bash would take from them.
  const Victim shell({"/bin/bash", "-c",
                      "exec 3<&0; cat <&3 >/dev/null & " + std::string(PYTHON) + " " + script + " " + file +
                          " <&3 & echo $! > " + (folder_ / "pid").string() + "; wait"});
  ASSERT_TRUE(until([&] { return read("pid").find('\n') != std::string::npos; }));
  const pid_t writer = std::stoi(read("pid"));
  const std::vector<StackTarget> targets{{0, 0, shell.pid(), SIGUSR2, file, writer},
                                         {1, 1, shell.pid(), SIGUSR2, file, ::getpid()}};
  std::vector<RankStacks> stacks;
  ASSERT_TRUE(until([&] {
    stacks = dump(targets, tools_with(""));
    return !stacks.at(0).python.empty();
  })) << to_text(stacks.at(0));
  EXPECT_EQ(stacks.at(0).pid, writer);
  // The other writer is no process below it, so that nobody gets its signal.
  EXPECT_EQ(stacks.at(1).pid, shell.pid());
  EXPECT_THAT(stacks.at(1).note, Not(HasSubstr("signal")));
}

TEST_F(StackDump, APythonWithoutFramesOfItsOwnSaysHowToGetThem) {
  const std::string script = write("script.py", kScript);
  const Victim python({PYTHON, script, write("python.txt", "")});
  const Victim other(victim("threads"));
  StackTools tools = tools_with("");
  tools.environment = {"PATH=" + folder_.string()};
  const std::vector<RankStacks> stacks =
      dump({{0, 0, python.pid(), 0, ""}, {1, 1, other.pid(), 0, ""}}, tools);
  EXPECT_TRUE(stacks.at(0).python_missing);
  EXPECT_FALSE(stacks.at(1).python_missing);
}

TEST_F(StackDump, NoSignalGoesToAProcessThatDidNotRegister) {
  const std::string file = write("python.txt", "");
  const Victim child(victim("threads"));
  const RankStacks stacks = dump({{0, 0, child.pid(), SIGUSR2, file}}, tools_with("")).at(0);
  EXPECT_THAT(stacks.note, HasSubstr("no handler for the signal"));
  EXPECT_TRUE(until([&] { return child.state() == 'S'; }));
}

TEST_F(StackDump, NoSignalGoesToAStoppedProcess) {
  const std::string script = write("script.py", kScript);
  const std::string file = write("python.txt", "");
  const Victim child({PYTHON, script, file});
  ::kill(child.pid(), SIGSTOP);
  ASSERT_TRUE(until([&] { return child.state() == 'T'; }));
  const RankStacks stacks = dump({{0, 0, child.pid(), SIGUSR2, file}}, tools_with("")).at(0);
  EXPECT_THAT(stacks.note, HasSubstr("the process is stopped"));
  EXPECT_EQ(read("python.txt"), "");
}

TEST_F(StackDump, PySpyGoesFirstWhereItIs) {
  const std::string script = write("script.py", kScript);
  const std::string file = write("python.txt", "");
  write("py-spy",
        "#!/bin/sh\n[ \"$1 $2 $3 $4\" = 'dump --json --nonblocking --pid' ] || exit 1\n"
        "echo \"[{\\\"os_thread_id\\\": $5, \\\"thread_name\\\": \\\"MainThread\\\", \\\"frames\\\": "
        "[{\\\"name\\\": \\\"spied\\\", \\\"filename\\\": \\\"x.py\\\", \\\"line\\\": 7}]}]\"\n");
  const Victim child({PYTHON, script, file});
  StackTools tools = tools_with("");
  tools.environment = {"PATH=" + folder_.string() + ":/usr/bin:/bin"};
  const RankStacks stacks = dump({{0, 0, child.pid(), SIGUSR2, file}}, tools).at(0);
  ASSERT_EQ(stacks.python.size(), 1u) << to_text(stacks);
  EXPECT_EQ(stacks.python.at(0).frames.at(0).function, "spied");
  EXPECT_EQ(read("python.txt"), "");
}

TEST_F(StackDump, PySpyIsLookedForBesideTheInterpreterToo) {
  const std::string py_spy = write("py-spy", "");
  const std::string folder = folder_.string();
  const std::string nul(1, '\0');
  EXPECT_EQ(find_py_spy(folder + "/python3" + nul + "x.py" + nul, "/bin"), py_spy);
  EXPECT_EQ(find_py_spy("python3.11" + nul, "/bin:" + folder), py_spy);
  EXPECT_EQ(find_py_spy(folder + "/train" + nul, folder), "");
  EXPECT_EQ(find_py_spy("", ""), "");
}

TEST_F(StackDump, TheFlightRecorderIsAskedThroughItsPipe) {
  const std::string front = (folder_ / "pipe_").string();
  const std::string nul(1, '\0');
  const std::string environment = "A=1" + nul + "TORCH_NCCL_DEBUG_INFO_PIPE_FILE=" + front + nul +
                                  "TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/tmp/trace_" + nul;
  EXPECT_EQ(ask_flight_recorder("A=1", 1, 3), "");
  EXPECT_THAT(ask_flight_recorder(environment, 1, 3), HasSubstr("does not listen"));
  ASSERT_EQ(::mkfifo((front + "3.pipe").c_str(), 0600), 0);
  EXPECT_THAT(ask_flight_recorder(environment, 1, 3), HasSubstr("does not listen"));
  const int reader = ::open((front + "3.pipe").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  EXPECT_EQ(ask_flight_recorder(environment, 1, 3), "NCCL's flight recorder was asked to write /tmp/trace_3");
  char byte = 0;
  EXPECT_EQ(::read(reader, &byte, 1), 1);
  ::close(reader);
}

TEST_F(StackDump, FilesOfAnAttempt) {
  RankStacks rank;
  rank.rank = 5;
  rank.local_rank = 1;
  rank.threads = {{7, "main", "S", "", {}, {{"compute()", "", 0, "", 0}}, ""}};
  fs::create_directory(folder_ / "1");
  EXPECT_EQ(write_stacks_of_ranks(folder_, {rank}), "");
  EXPECT_EQ(write_stacks_of_all(folder_, {rank}), "");
  EXPECT_EQ(rank_stacks_from_json(read("1/stacks.json"))->rank, 5);
  EXPECT_THAT(read("1/stacks.txt"), HasSubstr("#0  compute()"));
  EXPECT_THAT(read("stacks.txt"), HasSubstr("rank 5 is here:\n    #0  compute()\n"));
  struct stat about {};
  ASSERT_EQ(::stat((folder_ / "stacks.txt").c_str(), &about), 0);
  EXPECT_EQ(about.st_mode & 0777, 0600u);
  EXPECT_THAT(write_stacks_of_all(folder_ / "none", {rank}), HasSubstr("cannot write"));
}

}  // namespace
}  // namespace cpprun::launcher
