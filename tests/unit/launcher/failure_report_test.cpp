// The report that users and programs read: which failure is the root cause, and the exact texts.
#include "launcher/report/failure_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

namespace cpprun::launcher {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

WorkerFailure failure(int rank, ExitStatus status, std::uint64_t batch, bool stopped = false) {
  WorkerFailure f;
  f.ranks = {rank, rank + 4, rank, 8, 8};
  f.pid = 100 + rank;
  f.status = status;
  f.batch = batch;
  f.stopped_by_agent = stopped;
  f.when = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'795'973'885'042));
  return f;
}

FailureReport report(std::vector<WorkerFailure> failures) {
  return {"train.py", "/usr/bin/python3", "host1", "run1", 2, std::move(failures), std::nullopt};
}

int root_of(const std::vector<WorkerFailure>& failures) {
  return root_cause(failures).ranks.local;
}

TEST(RootCause, FirstNoticedThatTheAgentDidNotCause) {
  EXPECT_EQ(root_of({failure(0, Exited{3}, 5, true), failure(1, Exited{7}, 4)}), 1);
  EXPECT_EQ(root_of({failure(0, Signaled{SIGTERM}, 3, true), failure(1, Exited{7}, 9)}), 1);
  EXPECT_EQ(root_of({failure(0, Exited{1}, 2), failure(1, Exited{1}, 1)}), 1);
}

TEST(RootCause, AtTheSameMomentASignalDeathComesFirst) {
  EXPECT_EQ(root_of({failure(0, Exited{1}, 1), failure(1, Signaled{SIGSEGV}, 1)}), 1);
}

TEST(RootCause, AtTheSameMomentTheEarlierRecordComesFirst) {
  WorkerFailure late = failure(0, Exited{1}, 1);
  late.record = worker::ErrorRecord{"late", "", 20, std::nullopt};
  WorkerFailure early = failure(1, Exited{1}, 1);
  early.record = worker::ErrorRecord{"early", "", 10, std::nullopt};
  EXPECT_EQ(root_of({late, early}), 1);
  EXPECT_EQ(root_of({failure(0, Exited{1}, 1), early}), 1);
  EXPECT_EQ(root_of({failure(0, Exited{1}, 1), failure(1, Exited{1}, 1)}), 0);
}

WorkerFailure of_class(int rank, FailureClass cls, std::uint64_t batch, bool stopped = false) {
  WorkerFailure judged = failure(rank, Exited{1}, batch, stopped);
  judged.verdict.cls = cls;
  return judged;
}

TEST(RootCause, AConsequenceIsNeverTheCauseWhileAnotherHasItsOwn) {
  using C = FailureClass;
  EXPECT_EQ(root_of({of_class(0, C::PeerFailure, 1), of_class(1, C::Exception, 9)}), 1);
  EXPECT_EQ(root_of({of_class(0, C::StoreLost, 1), of_class(1, C::SegmentationFault, 9)}), 1);
  EXPECT_EQ(root_of({of_class(0, C::PeerFailure, 1), of_class(1, C::Timeout, 9)}), 1);
  EXPECT_EQ(root_of({of_class(0, C::PeerFailure, 2), of_class(1, C::PeerFailure, 1)}), 1);
  // What the agent stopped is no cause, whatever it said.
  EXPECT_EQ(root_of({of_class(0, C::PeerFailure, 1), of_class(1, C::Exception, 9, true)}), 0);
}

TEST(RootCause, TheEarlierOfTwoOwnCauses) {
  using C = FailureClass;
  EXPECT_EQ(root_of({of_class(0, C::ExitCode, 2), of_class(1, C::Exception, 1)}), 1);
}

TEST(FailureReport, AWorkerThatTheAgentCondemned) {
  WorkerFailure hung = failure(0, Signaled{SIGKILL}, 1);
  hung.condemned = "the timer 'x' ran out";
  hung.record = worker::ErrorRecord{"m", "stack", 0, std::nullopt};
  EXPECT_EQ(failure_message(hung), "the timer 'x' ran out");
  EXPECT_EQ(summary(hung), "rank 4 (local_rank 0, pid 100): the timer 'x' ran out");
  EXPECT_EQ(why_no_restart(hung), "");
  hung.stuck = true;
  EXPECT_EQ(why_no_restart(hung), "the kernel holds it");
  EXPECT_THAT(to_text(report({hung})), HasSubstr("traceback : the timer 'x' ran out"));
}

TEST(FailureReport, OnlyAWorkerThatSaysSoRefusedItsConfiguration) {
  WorkerFailure refused = failure(0, Exited{2}, 1);
  EXPECT_FALSE(refused_configuration(refused));  // exit code 2 alone means nothing
  refused.record = worker::ErrorRecord{"m", "", 0, 2};
  EXPECT_TRUE(refused_configuration(refused));
  refused.status = Exited{1};
  EXPECT_FALSE(refused_configuration(refused));
}

TEST(FailureReport, Text) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  WorkerFailure root = failure(1, Exited{7}, 1);
  root.record = worker::ErrorRecord{"RuntimeError: boom", "Traceback\n  line", 5, std::nullopt};
  root.error_file = "/l/error.json";
  root.stderr_tail = "first\nlast words\n";
  root.verdict = {FailureClass::Exception, {"RuntimeError: boom", "more"}, "Read it.", 0.95};
  EXPECT_EQ(to_text(report({failure(0, Signaled{SIGTERM}, 2, true), root})),
            "============================================================\n"
            "train.py FAILED\n"
            "  interpreter: /usr/bin/python3\n"
            "------------------------------------------------------------\n"
            "Failures:\n"
            "[0]:\n"
            "  time      : 2026-11-29_17:38:05\n"
            "  host      : host1\n"
            "  rank      : 4 (local_rank: 0)\n"
            "  exitcode  : -15 (pid: 100) (SIGTERM)\n"
            "  error_file: <N/A>\n"
            "  traceback : Signal 15 (SIGTERM) received by PID 100, stopped because of the root cause\n"
            "------------------------------------------------------------\n"
            "Root Cause (first observed failure):\n"
            "[1]:\n"
            "  time      : 2026-11-29_17:38:05\n"
            "  host      : host1\n"
            "  rank      : 5 (local_rank: 1)\n"
            "  exitcode  : 7 (pid: 101) \n"
            "  error_file: /l/error.json\n"
            "  traceback : Traceback\n"
            "    line\n"
            "  cause     : exception: RuntimeError: boom\n"
            "  advice    : Read it.\n"
            "  stderr    : (last lines)\n"
            "    first\n"
            "    last words\n"
            "============================================================\n");
}

TEST(FailureReport, Json) {
  WorkerFailure root = failure(1, Signaled{SIGKILL}, 1);
  root.stderr_tail = "a\nb \xff\n";
  root.verdict = {FailureClass::OutOfMemory, {"the kernel's word", "more"}, "Use less.", 0.5};
  const json parsed = json::parse(to_json(report({root, failure(0, Exited{3}, 2, true)})));
  const json& cause = parsed.at("root_cause");
  EXPECT_EQ(cause.at("global_rank"), 5);
  EXPECT_EQ(cause.at("local_rank"), 1);
  EXPECT_EQ(cause.at("host"), "host1");
  EXPECT_EQ(cause.at("pid"), 101);
  EXPECT_TRUE(cause.at("exit_code").is_null());
  EXPECT_EQ(cause.at("signal"), "SIGKILL");
  EXPECT_EQ(cause.at("class"), "out_of_memory");
  EXPECT_EQ(cause.at("evidence"), (json{"the kernel's word", "more"}));
  EXPECT_EQ(cause.at("advice"), "Use less.");
  EXPECT_EQ(cause.at("confidence"), 0.5);
  EXPECT_EQ(cause.at("time"), "2026-11-29T17:38:05.042Z");
  EXPECT_EQ(cause.at("stderr_tail").size(), 2u);
  EXPECT_EQ(cause.at("stderr_tail")[0], "a");
  EXPECT_FALSE(cause.contains("stopped_by_agent"));
  ASSERT_EQ(parsed.at("failures").size(), 2u);
  EXPECT_EQ(parsed.at("failures")[0].at("stopped_by_agent"), false);
  EXPECT_EQ(parsed.at("failures")[1].at("stopped_by_agent"), true);
  EXPECT_EQ(parsed.at("failures")[1].at("exit_code"), 3);
  EXPECT_EQ(parsed.at("attempt"), 2);
  EXPECT_EQ(parsed.at("run_id"), "run1");
}

TEST(FailureReport, TheLastProgress) {
  using std::chrono::seconds;
  WorkerFailure root = failure(1, Signaled{SIGKILL}, 1);
  EXPECT_TRUE(json::parse(to_json(report({root}))).at("root_cause").at("progress").is_null());
  root.moment = std::chrono::steady_clock::time_point(seconds(1000));
  root.progress = worker::ProgressReading{};
  root.progress->step = 17;
  root.progress->phase = worker::Phase::Training;
  root.progress->last_progress = root.moment - seconds(14);
  const std::string quoted = "  progress  : step 17, training, last progress 14.0 s ago\n";
  EXPECT_THAT(to_text(report({root})), HasSubstr(quoted));
  EXPECT_THAT(JobCause::of(report({root})).text, HasSubstr(quoted));
  const json progress = json::parse(to_json(report({root}))).at("root_cause").at("progress");
  EXPECT_EQ(progress.at("step"), 17);
  EXPECT_EQ(progress.at("last_progress_seconds"), 14.0);
  EXPECT_EQ(json::parse(to_json(report({root}))).at("root_cause").at("progress_text"),
            "step 17, training, last progress 14.0 s ago");
}

// What one node tells the others comes out of their reports as it went in.
TEST(FailureReport, ARootCauseOfAnotherNode) {
  WorkerFailure root = failure(1, Exited{7}, 1);
  root.stderr_tail = "last words\n";
  const JobCause told = JobCause::of(report({root}));
  FailureReport here = report({failure(0, Signaled{SIGTERM}, 2, true)});
  here.host = "host2";
  here.elsewhere = JobCause::from_json(told.to_json(), "unused");
  const std::string text = to_text(here);
  const std::string cause = text.substr(text.find("Root Cause"));
  EXPECT_THAT(cause, HasSubstr("host      : host1\n"));
  EXPECT_THAT(cause, HasSubstr("exitcode  : 7 (pid: 101)"));
  EXPECT_THAT(cause, HasSubstr("    last words\n"));
  EXPECT_THAT(text, HasSubstr("host      : host2\n"));
  const json parsed = json::parse(to_json(here));
  EXPECT_EQ(parsed.at("root_cause").at("host"), "host1");
  EXPECT_EQ(parsed.at("root_cause").at("exit_code"), 7);
  EXPECT_EQ(parsed.at("failures").size(), 1u);
}

TEST(FailureReport, ANodeThatWasLost) {
  FailureReport here = report({});
  for (const char* told : {R"({"sentence":"","text":"","record":""})", "garbage", "{}", R"({"text":7})"}) {
    here.elsewhere = JobCause::from_json(told, "node 1 (h) has left");
    EXPECT_THAT(to_text(here), HasSubstr("Root Cause (first observed failure):\n  node 1 (h) has left\n"
                                         "  cause     : node_lost\n"))
        << told;
    const json cause = json::parse(to_json(here)).at("root_cause");
    EXPECT_EQ(cause.at("class"), "node_lost");
    EXPECT_EQ(cause.at("evidence"), json{"node 1 (h) has left"});
    EXPECT_EQ(cause.at("message"), "node 1 (h) has left");
    EXPECT_TRUE(cause.at("exit_code").is_null());
  }
}

TEST(FailureReport, AProgramThatCouldNotBeExecuted) {
  WorkerFailure unstarted = failure(0, Exited{126}, 1);
  unstarted.exec_error = ENOEXEC;
  EXPECT_THAT(failure_message(unstarted), HasSubstr("Exec format error"));
}

}  // namespace
}  // namespace cpprun::launcher
