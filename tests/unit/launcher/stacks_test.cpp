// What is made of stacks once they are taken: names of waits, clusters of ranks, texts of other programs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launcher/health/known_waits.hpp"
#include "launcher/health/python_stacks.hpp"
#include "launcher/health/rank_stacks.hpp"
#include "launcher/health/stack_clusters.hpp"
#include "launcher/stacks/process_maps.hpp"

namespace cpprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

StackFrame native(const std::string& function, const std::string& module = "/usr/bin/train") {
  return {function, module, 0x10, "", 0};
}
StackFrame python(const std::string& function, int line, const std::string& file = "train.py") {
  return {function, "", 0, file, line};
}

RankStacks rank_in(int rank, std::vector<StackFrame> frames, const std::string& state = "S") {
  RankStacks stacks;
  stacks.rank = rank;
  stacks.threads.push_back({100 + rank, "train", state, "", {}, std::move(frames), ""});
  return stacks;
}
RankStacks python_rank(int rank, std::vector<StackFrame> frames, std::vector<StackFrame> below = {}) {
  RankStacks stacks = rank_in(rank, std::move(below));
  stacks.python.push_back({"MainThread", true, std::move(frames)});
  return stacks;
}

std::string summary(const std::vector<RankStacks>& ranks) {
  return summary_of(cluster_stacks(ranks));
}

TEST(BareName, WithoutArgumentsTemplatesAndResult) {
  const std::pair<const char*, const char*> cases[] = {
      {"main", "main"},
      {"victim::run(int)", "victim::run"},
      {"void at::parallel<float>(std::vector<int>&)", "at::parallel"},
      {"gloo::(anonymous namespace)::allreduce(gloo::Options const&)",
       "gloo::(anonymous namespace)::allreduce"},
      {"std::map<int, std::vector<int> >::at(int const&)", "std::map::at"},
      {"Model::operator()(int) const", "Model::operator"},
      {"", ""},
      {"(((", ""}};
  for (const auto& [function, bare] : cases) EXPECT_EQ(bare_name(function), bare) << function;
}

TEST(KnownWait, ByTheNamesInTheStack) {
  struct Case {
    std::vector<StackFrame> frames;
    std::string said;  // "" for none
    std::size_t frame;
  };
  const Case cases[] = {
      {{native("epoll_wait"), native("gloo::transport::tcp::Loop::run()"), native("gloo::allreduce(X)"),
        native("main")},
       "wait in allreduce",
       2},
      {{native("ncclGroupEnd"), native("ncclReduceScatter"), native("main")}, "wait in reduce-scatter", 1},
      {{python("all_reduce", 9, "/x/torch/distributed/distributed_c10d.py"), python("step", 3)},
       "wait in allreduce",
       0},
      {{python("barrier", 9, "/x/torch/distributed/distributed_c10d.py"), python("step", 3)},
       "wait in a barrier",
       0},
      // A function of the user's own that is only called so.
      {{python("reduce", 4), python("step", 3)}, "", 0},
      {{native("compute(gloo::allreduce)"), native("main")}, "", 0},
      {{native("poll"), native("c10d::TCPStore::doWait(X)"), native("main")}, "wait on the store", 1},
      {{native("__futex_abstimed_wait_common"), native("std::condition_variable::wait(X)"),
        native("c10d::Work::wait(X)")},
       "wait in a collective",
       2},
      {{native("cuStreamSynchronize"), native("cudaStreamSynchronize"), native("main")},
       "wait for the GPU",
       1},
      {{native("clock_nanosleep"), native("main")}, "sleep", 0},
      {{native("__clock_nanosleep"), native("__nanosleep"), native("usleep"), native("main")}, "sleep", 2},
      {{native("__lll_lock_wait"), native("pthread_mutex_lock"), native("main")}, "wait for a lock", 1},
      {{native("__GI___poll"), native("main")}, "wait for input or output", 0},
      {{native("__read"), native("main")}, "wait for input", 0},
      // Far from the end a name of the C library is somebody else's.
      {{native("a"), native("b"), native("c"), native("d"), native("e"), native("f"), native("read")}, "", 0},
      {{native("compute()"), native("main")}, "", 0},
      {{}, "", 0}};
  for (const Case& one : cases) {
    const std::optional<KnownWait> wait = known_wait(one.frames);
    EXPECT_EQ(wait ? wait->verb + wait->what : "", one.said);
    if (wait) {
      EXPECT_EQ(wait->frame, one.frame) << one.said;
    }
  }
}

TEST(StackClusters, TheOddRankStandsOut) {
  std::vector<RankStacks> ranks;
  for (int rank = 0; rank < 16; ++rank) {
    // Each is caught in another place inside the collective.
    std::vector<StackFrame> waiting{native(rank % 2 == 0 ? "epoll_wait" : "read"),
                                    native("gloo::allreduce(X)"), native("step()"), native("main")};
    ranks.push_back(rank_in(rank, rank == 3 ? std::vector{native("loads_data()"), native("main")} : waiting));
  }
  const std::vector<StackCluster> clusters = cluster_stacks(ranks);
  ASSERT_EQ(clusters.size(), 2u);
  EXPECT_THAT(clusters.at(0).ranks, ElementsAre(3));
  EXPECT_FALSE(clusters.at(0).waits);
  EXPECT_TRUE(clusters.at(1).waits);
  EXPECT_EQ(summary_of(clusters),
            "15 ranks (0-2, 4-15) wait in allreduce: step in train; rank 3 is here: loads_data in train");
  EXPECT_EQ(to_text(clusters),
            "rank 3 is here:\n"
            "    #0  loads_data() in train\n"
            "    #1  main in train\n"
            "\n"
            "15 ranks (0-2, 4-15) wait in allreduce:\n"
            "    #0  gloo::allreduce(X) in train\n"
            "    #1  step() in train\n"
            "    #2  main in train\n");
}

TEST(StackClusters, LinesOfPythonCountForRanksThatWait) {
  const StackFrame collective = python("all_reduce", 9, "/x/torch/distributed/distributed_c10d.py");
  EXPECT_EQ(
      summary({python_rank(0, {collective, python("step", 12)}),
               python_rank(1, {collective, python("step", 12)}),
               python_rank(2, {collective, python("step", 20)})}),
      "2 ranks (0-1) wait in allreduce: step at train.py:12; rank 2 waits in allreduce: step at train.py:20");
  // Who computes is caught on one line or another.
  EXPECT_EQ(
      cluster_stacks({python_rank(0, {python("step", 12)}), python_rank(1, {python("step", 13)})}).size(),
      1u);
  EXPECT_EQ(
      cluster_stacks({python_rank(0, {python("step", 12)}), python_rank(1, {python("other", 12)})}).size(),
      2u);
}

TEST(StackClusters, ACollectiveIsNamedByTheThreadThatRunsIt) {
  RankStacks rank = rank_in(0, {native("pthread_cond_wait"), native("c10d::Work::wait(X)"), native("main")});
  rank.threads.push_back({7, "gloo", "S", "", {}, {native("poll"), native("gloo::allgather(X)")}, ""});
  EXPECT_THAT(summary({rank}), HasSubstr("rank 0 waits in allgather"));
  rank.threads.pop_back();
  EXPECT_THAT(summary({rank}), HasSubstr("rank 0 waits in a collective"));
}

TEST(StackClusters, NativeFramesSayWhatPythonsDoNot) {
  EXPECT_EQ(
      summary({python_rank(0, {python("step", 12)}, {native("clock_nanosleep"), native("time_sleep")})}),
      "rank 0 sleeps: step at train.py:12");
}

TEST(StackClusters, PythonsNamesAreShownAsTheyAre) {
  for (const char* name : {"<module>", "<lambda>", "<listcomp>", "step.<locals>.inner"}) {
    EXPECT_EQ(summary({python_rank(0, {python(name, 12)}, {native("clock_nanosleep")})}),
              std::string("rank 0 sleeps: ") + name + " at train.py:12");
  }
}

TEST(StackClusters, FunctionsOfPythonItselfTellNothing) {
  const StackFrame interpreter = native("builtin_exec", "/usr/bin/python3.11");
  const StackFrame library = native("run_mod", "/usr/lib/libpython3.11.so.1.0");
  for (const char* name :
       {"_PyEval_EvalFrameDefault", "cfunction_call", "PyObject_Call", "PyEval_EvalCode"}) {
    EXPECT_EQ(summary({rank_in(0, {native("clock_nanosleep"), interpreter, library, native(name),
                                   native("at::matmul(X)")})}),
              "rank 0 sleeps: at::matmul in train");
  }
  EXPECT_EQ(summary({rank_in(0, {native("clock_nanosleep"), interpreter})}), "rank 0 sleeps");
}

TEST(StackClusters, StatesOfTheKernelGoFirst) {
  RankStacks stuck = rank_in(1, {native("read"), native("main")}, "D");
  stuck.threads.front().wchan = "rpc_wait_bit_killable";
  const std::vector<RankStacks> ranks{rank_in(0, {native("read"), native("main")}), stuck,
                                      rank_in(2, {native("read"), native("main")}, "T")};
  const std::string text = summary(ranks);
  EXPECT_THAT(text, HasSubstr("rank 0 waits for input"));
  EXPECT_THAT(text, HasSubstr("rank 1 is in uninterruptible sleep (rpc_wait_bit_killable)"));
  EXPECT_THAT(text, HasSubstr("rank 2 is stopped by a signal"));
}

TEST(StackClusters, ARankWithoutAStackIsNotForgotten) {
  RankStacks gone;
  gone.rank = 2;
  gone.note = "the process has ended";
  const std::vector<RankStacks> ranks{rank_in(0, {native("f()")}), rank_in(1, {native("f()")}), gone};
  EXPECT_EQ(
      to_text(cluster_stacks(ranks)),
      "rank 2 is without a stack (the process has ended)\n\n2 ranks (0-1) are here:\n    #0  f() in train\n");
  EXPECT_EQ(summary({}), "");
}

TEST(StackClusters, WithoutNamesModuleAndOffsetTellPlacesApart) {
  StackFrame here = native("");
  StackFrame there = native("");
  there.offset = 0x20;
  EXPECT_EQ(cluster_stacks({rank_in(0, {here}), rank_in(1, {here}), rank_in(2, {there})}).size(), 2u);
  // With a name the address plays no role.
  here.function = there.function = "f()";
  EXPECT_EQ(cluster_stacks({rank_in(0, {here}), rank_in(2, {there})}).size(), 1u);
}

TEST(RankRanges, Shortest) {
  EXPECT_EQ(rank_ranges({}), "");
  EXPECT_EQ(rank_ranges({7}), "7");
  EXPECT_EQ(rank_ranges({0, 1, 2, 4, 6, 7}), "0-2, 4, 6-7");
}

RankStacks everything() {
  RankStacks stacks;
  stacks.rank = 5;
  stacks.local_rank = 1;
  stacks.pid = 77;
  stacks.host = "node\xff";
  stacks.captured_at = "2026-11-30T14:00:00.000Z";
  stacks.stopped_ms = 0.25;
  stacks.note = "a note";
  StackFrame unnamed = native("");
  stacks.threads.push_back(
      {77, "train", "S", "futex_wait", {"futex_wait", "do_syscall"}, {native("f()"), unnamed}, "cut"});
  stacks.python.push_back({"MainThread", true, {python("step", 12)}});
  return stacks;
}

TEST(RankStacksJson, RoundTrip) {
  const std::string text = to_json(everything());
  const std::optional<RankStacks> read = rank_stacks_from_json(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(to_json(*read), text);
  EXPECT_EQ(read->threads.at(0).frames.at(1).offset, 0x10u);
  EXPECT_EQ(read->threads.at(0).kernel.size(), 2u);
  EXPECT_TRUE(read->python.at(0).main);
  EXPECT_EQ(read->stopped_ms, 0.25);
}

TEST(RankStacksJson, GarbageIsNothingOrLeftOut) {
  for (const char* text : {"", "null", "[]", "{}", "{\"rank\": 1", "\xff", "3"})
    EXPECT_FALSE(rank_stacks_from_json(text)) << text;
  EXPECT_FALSE(rank_stacks_from_json(std::string(kLongestStacks + 1, ' ')));
  EXPECT_FALSE(rank_stacks_from_json(std::string(100000, '[')));
  const std::optional<RankStacks> odd = rank_stacks_from_json(
      R"({"rank": "x", "pid": 1e300, "threads": [3, {"tid": [], "kernel": [1, "k"], "frames": {"a": 1}}],
          "python": "no", "host": {}, "stopped_ms": "1"})");
  ASSERT_TRUE(odd);
  EXPECT_EQ(odd->rank, 0);
  ASSERT_EQ(odd->threads.size(), 2u);
  EXPECT_THAT(odd->threads.at(1).kernel, ElementsAre("k"));
  const std::string text = to_json(everything());
  for (std::size_t length = 0; length < text.size(); ++length) {
    EXPECT_FALSE(rank_stacks_from_json(text.substr(0, length))) << length;
  }
}

TEST(RankStacksJson, MoreThanAnyProcessHasIsCut) {
  std::string frames = "{}";
  for (int i = 0; i < 2000; ++i) frames += ",{}";
  std::string threads = "{\"tid\": 1, \"frames\": [" + frames + "]}";
  for (int i = 0; i < 2000; ++i) threads += ",{}";
  const std::optional<RankStacks> read = rank_stacks_from_json(
      R"({"rank": 1, "note": ")" + std::string(10000, 'x') + R"(", "threads": [)" + threads + "]}");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->threads.size(), 1024u);
  EXPECT_EQ(read->threads.at(0).frames.size(), 512u);
  EXPECT_EQ(read->note.size(), 4096u);
}

TEST(Unwound, OnlyLinesOfKnownThreadsCount) {
  RankStacks stacks = everything();
  EXPECT_FALSE(add_unwound(stacks, "garbage"));
  EXPECT_FALSE(add_unwound(stacks, R"({"tid": 78, "frames": []})"));
  EXPECT_FALSE(add_unwound(stacks, R"({"frames": []})"));
  EXPECT_TRUE(
      add_unwound(stacks, R"({"tid": 77, "frames": [{"function": "g", "module": "m", "offset": 9}]})"));
  EXPECT_EQ(stacks.threads.at(0).frames.at(0).function, "g");
}

TEST(StackText, WhatAPersonReads) {
  EXPECT_EQ(to_text(everything()),
            "rank 5 (local rank 1, pid 77) on node\xff, 2026-11-30T14:00:00.000Z\n"
            "  a note\n"
            "  Python thread MainThread (main)\n"
            "    #0  step at train.py:12\n"
            "  thread 77 \"train\", state S, in the kernel's futex_wait; cut\n"
            "    [kernel]  futex_wait\n"
            "    [kernel]  do_syscall\n"
            "    #0  f() in train\n"
            "    #1  train+0x10\n");
  EXPECT_EQ(to_text(native("f\x1b[2J")), "f\\x1b[2J in train");
}

TEST(StackText, HowToGetPythonsFramesIsSaidOnceForAll) {
  std::vector<RankStacks> ranks{everything(), everything()};
  EXPECT_THAT(to_text(ranks), Not(HasSubstr("import cpprun_progress")));
  ranks.back().python_missing = true;
  EXPECT_TRUE(rank_stacks_from_json(to_json(ranks.back()))->python_missing);
  EXPECT_THAT(to_text(ranks), StartsWith(std::string(kHowToGetPython) + "\n\n2 ranks"));
  EXPECT_THAT(to_text(ranks.back()), HasSubstr(std::string("  a note\n  ") + kHowToGetPython + "\n"));
}

TEST(Faulthandler, ThreadsAndFrames) {
  const std::vector<PythonThread> threads = parse_faulthandler(
      "noise\n"
      "Thread 0x00007f01 [loader] (most recent call first):\n"
      "  File \"/usr/lib/python3.11/threading.py\", line 331 in wait\n"
      "  File \"a, line 2 in \", line 7 in run\n"
      "\n"
      "Current thread 0x00007f02 (most recent call first):\n"
      "  File \"train.py\", line 12 in <module>\n"
      "  ...\n");
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_EQ(threads.at(0).name, "0x00007f02");
  EXPECT_TRUE(threads.at(0).main);
  EXPECT_EQ(to_text(threads.at(0).frames.at(0)), "<module> at train.py:12");
  EXPECT_EQ(threads.at(1).name, "0x00007f01 [loader]");
  EXPECT_FALSE(threads.at(1).main);
  EXPECT_EQ(to_text(threads.at(1).frames.at(0)), "wait at /usr/lib/python3.11/threading.py:331");
  EXPECT_EQ(to_text(threads.at(1).frames.at(1)), "run at a, line 2 in :7");
  for (const char* text : {"", "\n\n", "Thread 0x", "  File \"x\", line 1 in f", "Current thread 0x1 (most"})
    EXPECT_TRUE(parse_faulthandler(text).empty()) << text;
}

TEST(PySpy, ThreadsAndFrames) {
  const std::vector<PythonThread> threads = parse_py_spy(
      R"([{"pid": 9, "thread_name": "loader", "os_thread_id": 10, "frames": []}, 3,
          {"pid": 9, "thread_name": null, "os_thread_id": 9,
           "frames": [{"name": "step", "filename": "/x/train.py", "line": 12}, {}]}])",
      9);
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_TRUE(threads.at(0).main);
  EXPECT_EQ(to_text(threads.at(0).frames.at(0)), "step at /x/train.py:12");
  EXPECT_FALSE(threads.at(1).main);
  for (const char* text : {"", "{}", "[", "Error: not found", "[[]]"})
    EXPECT_TRUE(parse_py_spy(text, 9).empty()) << text;
}

TEST(ProcessMaps, ModulesAreFilesThatCodeRunsFrom) {
  const std::vector<stacks::Mapping> maps = stacks::parse_maps(
      "00400000-00401000 r--p 00000000 fe:00 5    /bin/a b (deleted)\n"
      "00401000-00402000 r-xp 00001000 fe:00 5    /bin/a b (deleted)\n"
      "00402000-00403000 rw-p 00000000 00:00 0 \n"
      "no mapping\n"
      "00500000-00400000 r-xp 00000000 fe:00 5    /bin/backwards\n"
      "00700000-00701000 r--p 00000000 fe:00 6    /data/weights\n"
      "00800000-00801000 r-xp 00000000 00:00 0    [vdso]\n"
      "00900000-00901000 r-xp 00000000 fe:00 7    /lib/x.so\n"
      "00901000-00902000 rw-p 00001000 fe:00 7    /lib/x.so\n"
      "00a00000-00a01000 r-xp 00000000 fe:00 7    /lib/x.so");
  EXPECT_EQ(maps.size(), 8u);
  const std::vector<stacks::Module> modules = stacks::code_modules(maps);
  ASSERT_EQ(modules.size(), 4u);
  EXPECT_EQ(modules.at(0).path, "/bin/a b");
  EXPECT_TRUE(modules.at(0).deleted);
  EXPECT_EQ(modules.at(0).start, 0x400000u);
  EXPECT_EQ(modules.at(0).end, 0x402000u);
  EXPECT_EQ(modules.at(0).first_end, 0x401000u);
  EXPECT_EQ(modules.at(1).path, "[vdso]");
  EXPECT_EQ(modules.at(2).end, 0x902000u);
  EXPECT_EQ(modules.at(3).start, 0xa00000u);
  EXPECT_EQ(stacks::find_mapping(maps, 0x401fff)->start, 0x401000u);
  EXPECT_EQ(stacks::find_mapping(maps, 0x404000), nullptr);
  EXPECT_EQ(stacks::find_mapping(maps, 0), nullptr);
  EXPECT_EQ(stacks::find_mapping({}, 1), nullptr);
}

}  // namespace
}  // namespace cpprun::launcher
