// What kind of failure it was: the built-in table by what workers and kernels really say, and rules of users.
#include "launcher/report/verdict.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <set>

#include "launcher/report/failure_report.hpp"
#include "launcher/report/verdict_rules.hpp"

namespace cpprun::launcher {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Class = FailureClass;

WorkerFailure ended(ExitStatus status, const std::string& said = "") {
  WorkerFailure failure;
  failure.pid = 4711;
  failure.status = status;
  failure.stderr_tail = said;
  return failure;
}

WorkerFailure recorded(const std::string& message, const std::string& stack = "") {
  WorkerFailure failure = ended(Exited{1});
  failure.record = worker::ErrorRecord{message, stack, 5, std::nullopt};
  return failure;
}

Verdict judged(const WorkerFailure& failure, const NodeEvidence& node = {}) {
  return judge(failure, node, VerdictRules::built_in());
}

std::string class_of(const WorkerFailure& failure, const NodeEvidence& node = {}) {
  return class_name(judged(failure, node).cls);
}

// As Python prints it.
std::string traceback(const std::string& error) {
  return "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    step()\n" +
         error + "\n";
}

struct Words {
  const char* cls;
  ExitStatus status;
  std::string said;
};

// What programs, libraries and torch print when they end.
const Words kWords[] = {
    {"exception", Exited{1}, traceback("ValueError: bad shape")},
    {"exception", Exited{1},
     traceback("KeyError: 'x'\n\nDuring handling of the above exception, another exception "
               "occurred:\n\n" +
               traceback("RuntimeError: no batch"))},
    {"exception", Exited{1},
     "  File \"t.py\", line 1\n    x = (\n        ^\nSyntaxError: '(' was never closed\n"},
    {"import_error", Exited{1}, traceback("ModuleNotFoundError: No module named 'flash_attn'")},
    {"import_error", Exited{1}, traceback("ImportError: cannot import name 'x' from 'y' (y.py)")},
    {"import_error", Exited{1}, "/usr/bin/python3: No module named my.training\n"},
    {"import_error", Exited{127},
     "./w: error while loading shared libraries: libx.so.1: cannot open shared object "
     "file: No such file or directory\n"},
    {"import_error", Exited{127}, "./w: symbol lookup error: ./w: undefined symbol: f\n"},
    {"import_error", Exited{1},
     "./w: /lib/libstdc++.so.6: version `GLIBCXX_3.4.32' not found (required by ./w)\n"},
    {"exec_failure", Exited{127}, "w.sh: line 2: trainer: command not found\n"},
    {"exec_failure", Exited{126}, "w.sh: ./trainer: Permission denied\n"},
    {"exec_failure", Exited{127}, ""},
    {"exec_failure", Exited{2},
     "python3: can't open file '/x/train.py': [Errno 2] No such file or directory\n"},
    {"exit_code", Exited{7}, "something\n"},
    {"exit_code", Exited{3}, ""},
    {"segmentation_fault", Signaled{SIGSEGV}, ""},
    {"segmentation_fault", Signaled{SIGSEGV}, "retry: Connection reset by peer\n"},
    {"segmentation_fault", Exited{139}, ""},
    {"segmentation_fault", Exited{1},
     traceback("RuntimeError: DataLoader worker (pid 77) is killed by signal: Segmentation fault. ")},
    {"signal", Signaled{SIGBUS}, ""},
    {"signal", Signaled{SIGILL}, ""},
    {"signal", Signaled{SIGFPE}, ""},
    {"signal", Signaled{SIGPIPE}, ""},
    {"abort", Signaled{SIGABRT}, ""},
    {"abort", Signaled{SIGABRT}, "terminate called after throwing an instance of 'E'\n  what():  boom\n"},
    {"abort", Signaled{SIGABRT}, "double free or corruption (out)\n"},
    {"abort", Signaled{SIGABRT}, "w: w.c:3: main: Assertion `x > 0' failed.\n"},
    {"abort", Exited{134}, ""},
    {"killed_externally", Signaled{SIGKILL}, ""},
    {"killed_externally", Signaled{SIGTERM}, ""},
    {"killed_externally", Signaled{SIGXCPU}, ""},
    {"killed_externally", Exited{137}, ""},
    {"out_of_memory", Exited{1},
     traceback("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")},
    {"out_of_memory", Exited{1}, "[rank3]: " + traceback("[rank3]: MemoryError")},
    {"out_of_memory", Signaled{SIGABRT},
     "terminate called after throwing an instance of 'std::bad_alloc'\n  what():  "
     "std::bad_alloc\n"},
    {"out_of_memory", Exited{1}, "bash: fork: Cannot allocate memory\n"},
    {"out_of_memory", Exited{1},
     traceback("RuntimeError: [enforce fail at alloc_cpu.cpp:116] . DefaultCPUAllocator: "
               "can't allocate memory: you tried to allocate 8 bytes.")},
    {"out_of_memory", Exited{1},
     "ERROR: Unexpected bus error encountered in worker. This might be caused by "
     "insufficient shared memory (shm).\n"},
    {"out_of_memory", Exited{1},
     traceback("RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed. ")},
    {"disk_full", Exited{1}, traceback("OSError: [Errno 28] No space left on device")},
    {"disk_full", Exited{1}, traceback("OSError: [Errno 122] Disk quota exceeded: 'x'")},
    {"disk_full", Exited{1},
     traceback("OSError: [Errno 28] No space left on device\n\nDuring handling of the above "
               "exception, another exception occurred:\n\n" +
               traceback("RuntimeError: [enforce fail at inline_container.cc:603] . unexpected "
                         "pos 64 vs 0"))},
    {"address_in_use", Exited{1}, traceback("OSError: [Errno 98] Address already in use")},
    {"address_in_use", Exited{1}, "bind: Address already in use\n"},
    {"address_in_use", Exited{1},
     traceback(
         "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
         "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in "
         "use")},
    {"checkpoint_corrupt", Exited{1},
     traceback("RuntimeError: PytorchStreamReader failed reading zip archive: failed "
               "finding central directory")},
    {"checkpoint_corrupt", Exited{1}, traceback("_pickle.UnpicklingError: invalid load key, '\\x00'.")},
    {"checkpoint_corrupt", Exited{1},
     traceback("safetensors_rust.SafetensorError: Error while deserializing header: HeaderTooLarge")},
    {"checkpoint_corrupt", Exited{2},
     "E1130 cpprun-train: no checkpoint in /c can be used; the newest: checkpoint "
     "/c/step_3 cannot be used: the manifest is no JSON text\n"},
    {"gpu_error", Exited{1}, traceback("RuntimeError: CUDA error: device-side assert triggered")},
    {"gpu_error", Exited{1},
     traceback("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered")},
    {"gpu_error", Exited{1},
     traceback("RuntimeError: No CUDA GPUs are available\nRuntimeError: no CUDA-capable device "
               "is detected")},
    {"timeout", Exited{1},
     traceback("RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:81] Timed out "
               "waiting "
               "1800000ms for recv operation to complete")},
    {"timeout", Signaled{SIGABRT},
     "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [PG ID 0 PG GUID 0 "
     "Rank 0] "
     "Process group watchdog thread terminated with exception: [Rank 0] Watchdog caught collective operation "
     "timeout: "
     "WorkNCCL(SeqNum=12, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600012 milliseconds before timing "
     "out.\n"},
    {"timeout", Exited{1},
     traceback("torch.distributed.DistStoreError: Timed out after 301 seconds waiting for "
               "clients. 1/2 clients joined.")},
    {"timeout", Exited{1},
     traceback("torch.distributed.DistStoreError: wait timeout after 1000ms, keys: /k")},
    {"timeout", Exited{1},
     traceback("RuntimeError: [Rank 0]: Rank 1 failed to pass monitoredBarrier in 1000 ms")},
    {"peer_failure", Exited{1},
     traceback(
         "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer "
         "[127.0.0.1]:41234")},
    {"peer_failure", Exited{1},
     "[rank0]: " +
         traceback("[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:538] Read error [10.0.0.2]:5: "
                   "Connection reset by peer")},
    {"peer_failure", Exited{1},
     traceback(
         "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:94, remote process exited or "
         "there "
         "was a network error, NCCL version 2.27.5\nncclRemoteError: A call failed possibly due to a network "
         "error or a remote process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by "
         "remote peer")},
    {"store_lost", Exited{1},
     traceback(
         "torch.distributed.DistNetworkError: failed to recv, got 0 bytes. Connection was likely closed. Did "
         "the remote server shutdown or crash?")},
    {"store_lost", Exited{1}, traceback("RuntimeError: recvValue failed on SocketImpl(fd=3)")},
};

TEST(Verdict, ByWhatTheWorkerSaid) {
  for (const Words& words : kWords) {
    EXPECT_EQ(class_of(ended(words.status, words.said)), words.cls) << words.said;
  }
}

TEST(Verdict, TheErrorRecordGoesBeforeStderr) {
  WorkerFailure failure = recorded("ValueError: bad shape", "Traceback\n  line");
  failure.stderr_tail = "[W1130 12:00 socket.cpp:1] Connection reset by peer\nConnection reset by peer\n";
  const Verdict verdict = judged(failure);
  EXPECT_EQ(verdict.cls, Class::Exception);
  EXPECT_THAT(verdict.evidence, ElementsAre("ValueError: bad shape"));
  EXPECT_FALSE(verdict.advice.empty());
  EXPECT_EQ(class_of(recorded("ImportError: libx.so: cannot open shared object file")), "import_error");
}

TEST(Verdict, WarningsAroundATracebackAreNoStatement) {
  const std::string said =
      "Connection reset by peer\n" + traceback("ValueError: bad shape") +
      "[rank1]:[W1130 08:15:21.318 ProcessGroupNCCL.cpp:1553] Warning: Connection closed by "
      "peer\n[W1130 08:15:21.318 TCPStore.cpp:125] recvValue failed on SocketImpl\n";
  const Verdict verdict = judged(ended(Exited{1}, said));
  EXPECT_EQ(verdict.cls, Class::Exception);
  EXPECT_EQ(verdict.evidence.front(), "ValueError: bad shape");
}

// What the program says in its source did not happen.
TEST(Verdict, SourceLinesOfATracebackAreNoStatement) {
  const std::string frames =
      "Traceback (most recent call last):\n"
      "  File \"/a/train.py\", line 3, in <module>\n"
      "    if \"CUDA out of memory\" in msg or raise_it(\n"
      "        \"No space left on device\"):\n"
      "       ^^^^^^^^^^^^^^^^^^^^^^^^^^^\n"
      "  File \"/a/train.py\", line 1, in address_already_in_use\n"
      "    raise MemoryError if x == \"Address already in use\" else RuntimeError(msg)\n";
  const Verdict said = judged(ended(Exited{1}, frames + "RuntimeError: the config is wrong\n"));
  EXPECT_EQ(said.cls, Class::Exception);
  EXPECT_EQ(said.evidence.front(), "RuntimeError: the config is wrong");
  EXPECT_EQ(
      class_of(recorded("RuntimeError: the config is wrong", frames + "RuntimeError: the config is wrong")),
      "exception");
  const Verdict memory = judged(ended(Exited{1}, frames + "MemoryError\n"));
  EXPECT_EQ(memory.cls, Class::OutOfMemory);
  EXPECT_EQ(memory.evidence.front(), "MemoryError");
}

TEST(Verdict, SourceLinesInAnExceptionGroupAreNone) {
  const std::string said =
      "  + Exception Group Traceback (most recent call last):\n"
      "  |   File \"/a/train.py\", line 9, in <module>\n"
      "  |     raise ExceptionGroup(\"No space left on device\", errors)\n"
      "  | ExceptionGroup: two (2 sub-exceptions)\n"
      "  +-+---------------- 1 ----------------\n"
      "    | ValueError: bad shape\n"
      "    +------------------------------------\n";
  EXPECT_EQ(class_of(ended(Exited{1}, said)), "exception");
}

TEST(Verdict, ALongMessageKeepsItsBeginning) {
  const std::string keys(200'000, 'k');
  const Verdict verdict = judged(recorded("RuntimeError: Error(s) in loading state_dict\n" + keys, ""));
  EXPECT_EQ(verdict.evidence.front(), "RuntimeError: Error(s) in loading state_dict");
  const std::string line = "RuntimeError: Missing key(s): " + keys;
  EXPECT_EQ(judged(recorded(line, "")).evidence.front().substr(0, 30), line.substr(0, 30));
  EXPECT_EQ(class_of(ended(Exited{1}, traceback(line))), "exception");
}

TEST(Verdict, WhatCpprunItselfDid) {
  WorkerFailure stopped = ended(Signaled{SIGTERM});
  stopped.stopped_by_agent = true;
  EXPECT_EQ(class_of(stopped), "peer_failure");
  WorkerFailure hung = ended(Signaled{SIGKILL});
  hung.condemned = "the timer 'x' ran out";
  NodeEvidence short_of_memory;
  short_of_memory.group_oom_kills = 1;
  EXPECT_EQ(class_of(hung, short_of_memory), "hang");
  EXPECT_EQ(judged(hung).evidence.front(), "the timer 'x' ran out");
  for (const int error : {ENOEXEC, ENOENT, EACCES, E2BIG}) {
    WorkerFailure unstarted = ended(Exited{126});
    unstarted.exec_error = error;
    EXPECT_EQ(class_of(unstarted), "exec_failure");
  }
}

TEST(Verdict, WhatTheKernelDid) {
  const WorkerFailure killed = ended(Signaled{SIGKILL});
  NodeEvidence node;
  node.machine_oom_kills = 1;
  EXPECT_EQ(class_of(killed, node), "out_of_memory");
  EXPECT_LT(judged(killed, node).confidence, 0.8);
  node.group_oom_kills = 1;
  EXPECT_GT(judged(killed, node).confidence, 0.9);
  EXPECT_EQ(class_of(ended(Exited{137}), node), "out_of_memory");
  EXPECT_EQ(class_of(ended(Signaled{SIGSEGV}), node), "segmentation_fault");
  node = {};
  node.kernel_lines = {"Out of memory: Killed process 47110 (python3)", "oom_reaper: reaped process 1"};
  EXPECT_EQ(class_of(killed, node), "killed_externally");  // another one's
  node.kernel_lines = {"Memory cgroup out of memory: Killed process 4711 (python3) total-vm:1kB"};
  EXPECT_EQ(class_of(killed, node), "out_of_memory");
  EXPECT_THAT(judged(killed, node).evidence, Contains("kernel: " + node.kernel_lines[0]));
  node.kernel_lines = {"NVRM: Xid (PCI:0000:3b:00): 31, pid=4711, name=python3, Ch 8"};
  EXPECT_EQ(class_of(ended(Exited{1}, "x\n"), node), "gpu_error");
  node.kernel_lines = {"NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus."};
  EXPECT_EQ(class_of(ended(Exited{1}, traceback("RuntimeError: CUDA went away")), node), "gpu_error");
  EXPECT_EQ(class_of(ended(Exited{1}, traceback("ValueError: x")), node), "exception");
}

TEST(Verdict, FullFileSystems) {
  NodeEvidence node;
  node.file_systems = {{"/data", 0, 1 << 30}};
  const std::string said =
      traceback("RuntimeError: PytorchStreamWriter failed writing file data/0: file write failed");
  EXPECT_EQ(class_of(ended(Exited{1}, said), node), "disk_full");
  EXPECT_THAT(judged(ended(Exited{1}, said), node).evidence.front(), HasSubstr("/data"));
  EXPECT_EQ(class_of(ended(Exited{1}, traceback("ValueError: x")), node), "exception");
  EXPECT_THAT(judged(ended(Exited{7}), node).evidence, Contains("no space left at /data"));
  EXPECT_EQ(class_of(ended(Signaled{SIGBUS}), node), "signal");
  node.file_systems = {{"/dev/shm", 0, 64 << 20}};
  EXPECT_EQ(class_of(ended(Signaled{SIGBUS}), node), "out_of_memory");
}

TEST(Verdict, EvidenceBesideTheRules) {
  WorkerFailure failure = ended(Signaled{SIGSEGV, true}, "loading\nepoch 3\n");
  failure.core_dump = "/c/core.4711";
  NodeEvidence node;
  node.kernel_lines = {"python3[4711]: segfault at 0 ip 0000 sp 0000 error 4"};
  EXPECT_THAT(judged(failure, node).evidence,
              ElementsAre("ended by SIGSEGV", "its last word: epoch 3", "kernel: " + node.kernel_lines[0],
                          "core dump: /c/core.4711"));
}

TEST(Verdict, EveryClassOfTheTableIsReached) {
  std::set<Class> classes;
  for (const VerdictRule& rule : VerdictRules::built_in().all()) {
    classes.insert(rule.cls);
    EXPECT_FALSE(rule.evidence.empty()) << rule.name;
    EXPECT_FALSE(rule.advice.empty()) << rule.name;
  }
  EXPECT_EQ(classes.size(), 17u);  // all but unknown and node_lost, which are no worker's
  EXPECT_TRUE(VerdictRules::built_in().all().back().when.exit_codes.empty());
}

TEST(Verdict, LongLinesAndMuchTextCostLittle) {
  std::string text;
  for (int i = 0; i < 64 * 1024; ++i) text += "Connection*closed"[i % 17];
  EXPECT_EQ(class_of(ended(Exited{3}, text)), "exit_code");
  EXPECT_FALSE(occurs("a*a*a*a*a*a*a*a*a*a*b", std::string(60'000, 'a')));
  EXPECT_TRUE(occurs("Killed*4711", "Killed process 4711 (x)"));
  EXPECT_FALSE(occurs("4711*Killed", "Killed process 4711 (x)"));
  EXPECT_TRUE(occurs("", ""));
}

TEST(VerdictRules, OnesOwnGoFirst) {
  const VerdictRules rules = VerdictRules::parse(R"({"rules": [{"name": "licence", "class": "timeout",
      "when": {"exit_code": 3, "text": "no licence*free"}, "confidence": 0.5,
      "evidence": "${line}; code ${exit_code}", "advice": "Ask for more."}]})",
                                                 "mine.json")
                                 .before(VerdictRules::built_in());
  const Verdict verdict = judge(ended(Exited{3}, "x\n no licence is free\n"), {}, rules);
  EXPECT_EQ(verdict.cls, Class::Timeout);
  EXPECT_EQ(verdict.evidence.front(), "no licence is free; code 3");
  EXPECT_EQ(verdict.advice, "Ask for more.");
  EXPECT_EQ(verdict.confidence, 0.5);
  EXPECT_EQ(judge(ended(Exited{4}, "no licence is free\n"), {}, rules).cls, Class::ExitCode);
  EXPECT_EQ(judge(ended(Exited{4}), {}, VerdictRules()).cls, Class::Unknown);
}

TEST(VerdictRules, RefusalsNameFileRuleAndKey) {
  const std::pair<const char*, const char*> kBad[] = {
      {"{", "mine.json is no JSON"},
      {"[]", "mine.json holds no object with a list 'rules'"},
      {R"({"rules": [7]})", "mine.json, rule 1: it is no object"},
      {R"({"rules": [{}]})", "rule 1: the key 'name' is missing"},
      {R"({"rules": [{"name": "a", "class": "x", "when": {}}]})",
       "rule 1 ('a'): 'class' is 'x', which is no class"},
      {R"({"rules": [{"name": "a", "class": "hang"}]})", "the key 'when' is missing"},
      {R"({"rules": [{"name": "a", "class": "hang", "when": []}]})", "'when' is no object"},
      {R"({"rules": [{"name": "a", "class": "hang", "when": {"signals": "SIGKILL"}}]})",
       "'when.signals' is no key"},
      {R"({"rules": [{"name": "a", "class": "hang", "when": {"signal": "SIGX"}}]})", "names 'SIGX'"},
      {R"({"rules": [{"name": "a", "class": "hang", "when": {"exit_code": "7"}}]})", "'when.exit_code'"},
      {R"({"rules": [{"name": "a", "class": "hang", "when": {"text": []}}]})",
       "'when.text' is an empty list"},
      {R"({"rules": [{"name": "a", "class": "hang", "when": {"fact": "oomkill"}}]})",
       "'when.fact' names 'oomkill'"},
      {R"({"rules": [{"name": "a", "class": "hang", "when": {}, "confidence": 2}]})",
       "'confidence' is no number"},
      {R"({"rules": [{"name": "a", "class": "hang", "when": {}, "advise": ""}]})", "did you mean advice?"},
  };
  for (const auto& [text, sentence] : kBad) {
    try {
      VerdictRules::parse(text, "mine.json");
      ADD_FAILURE() << text << " was taken";
    } catch (const VerdictRuleError& error) {
      EXPECT_THAT(error.what(), HasSubstr(sentence)) << text;
      EXPECT_THAT(error.what(), HasSubstr("mine.json"));
    }
  }
}

}  // namespace
}  // namespace cpprun::launcher
