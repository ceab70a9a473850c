// The page of a failed attempt, and finding it again in folders that were copied from elsewhere.
#include "launcher/report/post_mortem.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "launcher/ctl/explain.hpp"
#include "launcher/report/node_facts.hpp"

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Pair;

WorkerFailure failure(int rank, ExitStatus status, FailureClass cls, const std::string& evidence,
                      const std::string& said = "", bool stopped = false) {
  WorkerFailure f;
  f.ranks = {rank, rank, rank, 8, 8};
  f.pid = 100 + rank;
  f.status = status;
  f.batch = static_cast<std::uint64_t>(rank);
  f.stopped_by_agent = stopped;
  f.when = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'795'973'885'042));
  f.stderr_tail = said;
  f.verdict = {cls, {evidence, "more of it"}, "Do this.", 0.97};
  return f;
}

FailureReport crash() {
  const auto closed = [](int rank) {
    return failure(rank, Exited{1}, FailureClass::PeerFailure, "closed by peer", "epoch 1\nclosed by peer\n");
  };
  return {"train.py",
          "/venv/bin/python",
          "host1",
          "job",
          2,
          {closed(0), closed(1),
           failure(3, Signaled{SIGSEGV}, FailureClass::SegmentationFault, "ended by SIGSEGV", "x\n"),
           closed(2), failure(4, Signaled{SIGTERM}, FailureClass::PeerFailure, "stopped", "", true)},
          std::nullopt};
}

NodeFacts facts() {
  return {{{"cpprun", "0.1"}, {"kernel", "Linux 6"}}, {{"open files", "1024"}}, {{"NCCL_DEBUG", "INFO"}}};
}

TEST(PostMortem, Page) {
  const std::string page =
      post_mortem_page(post_mortem_json(crash(), facts(), "15 ranks wait in allreduce\n"));
  EXPECT_EQ(
      page,
      "train.py failed: run job, attempt 2, as seen by host1\n" + std::string(100, '=') +
          "\n"
          "Verdict      segmentation_fault (97 % sure)\n"
          "Evidence     ended by SIGSEGV\n"
          "             more of it\n"
          "Advice       Do this.\n"
          "Root cause   rank 3 (local rank 3, pid 103 on host1): SIGSEGV, 2026-11-29T17:38:05.042Z\n"
          "Why this one it has a cause of its own, while others only say that somebody was missing, though "
          "they\n"
          "             were noticed earlier\n"
          "Message      Signal 11 (SIGSEGV) received by PID 103\n"
          "\n"
          "Ranks of this node that did not end well\n"
          "----------------------------------------\n"
          "  0-2       exit code 1   peer_failure: closed by peer\n"
          "  3         SIGSEGV       segmentation_fault: ended by SIGSEGV\n"
          "  4         SIGTERM       stopped because of the root cause\n"
          "\n"
          "Stacks\n"
          "------\n"
          "  15 ranks wait in allreduce\n"
          "\n"
          "Last lines on stderr\n"
          "--------------------\n"
          "  ranks 0-2:\n"
          "    epoch 1\n"
          "    closed by peer\n"
          "  rank 3:\n"
          "    x\n"
          "\n"
          "This node\n"
          "---------\n"
          "versions     cpprun 0.1, kernel Linux 6\n"
          "limits       open files 1024\n"
          "  NCCL_DEBUG=INFO\n");
}

TEST(PostMortem, WhatIsMissingOrOfAnotherShapeIsLeftOut) {
  EXPECT_THAT(post_mortem_page(R"({"root_cause": {}})"), HasSubstr("Root cause   no worker"));
  EXPECT_THAT(post_mortem_page(R"({"root_cause": {"class": 7, "evidence": "x", "confidence": "y"},
                                   "failures": [7, {}, {"global_rank": "a"}], "node": [], "stacks": 3})"),
              HasSubstr("Verdict      7\n"));
  for (const char* bad : {"", "{", "[]", "7", "{}", R"({"root_cause": 7})"}) {
    EXPECT_THROW(post_mortem_page(bad), std::invalid_argument) << bad;
    EXPECT_EQ(time_of_failure(bad), "");
  }
}

// Anything that a terminal would act on, in any text of a report.
void spoil(json& value) {
  if (value.is_string()) value = value.get<std::string>() + "\x1b[2J\x9b\r\xc2\x9b";
  if (value.is_array()) {
    for (json& element : value) spoil(element);
  }
  if (!value.is_object()) return;
  json spoilt = json::object();
  for (auto& [key, element] : value.items()) {
    spoil(element);
    spoilt[key] = element;
  }
  value = std::move(spoilt);
}

TEST(PostMortem, NothingThatATerminalActsOn) {
  json report = json::parse(post_mortem_json(crash(), facts(), "stacks\nof all"));
  report["failures"][0]["progress"] = {{"phase\x1b[1m", "train"}};
  report["differences"] = {"a"};
  report["lost_nodes"] = {{{"node", "1"}, {"host", "b"}, {"time", "c"}, {"ranks", {{{"text", "d"}}}}}};
  for (const char* number : {"attempt", "run_id"}) report[number] = "2";
  spoil(report);
  const std::string page = post_mortem_page(report.dump(-1, ' ', false, json::error_handler_t::ignore));
  for (const char* forbidden : {"\x1b", "\r", "\x9b"}) EXPECT_THAT(page, Not(HasSubstr(forbidden)));
  EXPECT_THAT(page, HasSubstr("\n  stacks\n  of all"));  // lines stay lines
}

TEST(PostMortem, ProgressIsShownWhereThereIsSome) {
  json report = json::parse(post_mortem_json(crash(), facts(), ""));
  report["failures"][0]["progress"] = {
      {"step", 12}, {"phase", "train"}, {"message", ""}, {"section", nullptr}};
  EXPECT_THAT(post_mortem_page(report.dump()), HasSubstr("Progress\n--------\n  0: phase train, step 12\n"));
  report["failures"][0]["progress_text"] = "step 12, training, message '" + std::string(80, 'x') + " y'";
  EXPECT_THAT(post_mortem_page(report.dump()),
              HasSubstr("Progress\n--------\n  0: step 12, training, message\n     '" + std::string(80, 'x') +
                        " y'\n"));
}

TEST(PostMortem, LongEvidenceOfARankIsWrapped) {
  json report = json::parse(post_mortem_json(crash(), facts(), ""));
  report["failures"][2]["evidence"] = {std::string(50, 'a') + " " + std::string(60, 'b')};
  EXPECT_THAT(post_mortem_page(report.dump()),
              HasSubstr("  3         SIGSEGV       segmentation_fault: " + std::string(50, 'a') + "\n" +
                        std::string(26, ' ') + std::string(60, 'b') + "\n"));
}

TEST(NodeWords, TheyTravelAndAreQuoted) {
  NodeWords words;
  words.node = 1;
  words.host = "b";
  words.time = "2026-11-30T14:07:21.042Z";
  words.ranks = {{4, "step 12, training", R"({"step":12})"}, {5, "step 11, \x1b[1mevaluating", "no JSON"}};
  const std::optional<NodeWords> read = node_words_from(to_json(words));
  ASSERT_TRUE(read);
  FailureReport lost{"train.py", "", "a", "run1", 0, {}, JobCause::from_json("", "node 1 (b) was lost")};
  lost.lost_nodes = {*read};
  const json object = json::parse(to_json(lost));
  EXPECT_EQ(object["lost_nodes"][0]["ranks"][0]["progress"]["step"], 12);
  EXPECT_EQ(object["lost_nodes"][0]["ranks"][1]["progress"], nullptr);
  const std::string page = post_mortem_page(post_mortem_json(lost, {}, ""));
  EXPECT_THAT(page, HasSubstr("Last words of node 1 (b), 2026-11-30T14:07:21.042Z"));
  EXPECT_THAT(page, HasSubstr("rank 4: step 12, training"));
  EXPECT_THAT(page, Not(HasSubstr("\x1b")));
  EXPECT_THAT(to_text(lost), HasSubstr("  rank 4: step 12, training\n"));
}

TEST(NodeWords, WhatAnybodyMayWriteIsNone) {
  for (const char* text :
       {"", "{", "[]", "{}", R"({"node":"1"})",
        R"({"node":1,"host":"b","time":"","ranks":[7],"versions":{},"limits":{},"environment":{}})",
        R"({"node":1,"host":"b","time":"","ranks":{},"versions":[],"limits":{"a":1},"environment":0})"}) {
    EXPECT_FALSE(node_words_from(text)) << text;
  }
}

TEST(NodeFacts, DifferencesToAnotherNode) {
  const NodeFacts own{{{"host", "a"}, {"torch", "2.15.0"}}, {{"open files", "1024"}}, {{"NCCL_DEBUG", ""}}};
  NodeWords other;
  other.host = "b";
  other.facts = {{{"host", "b"}, {"torch", "2.14.0"}}, {{"open files", "1024"}}, {{"OMP_NUM_THREADS", "4"}}};
  EXPECT_THAT(differences(own, other), ElementsAre("torch: 2.15.0 here, 2.14.0 on node 0 (b)",
                                                   "NCCL_DEBUG: '' here, not set on node 0 (b)",
                                                   "OMP_NUM_THREADS: not set here, 4 on node 0 (b)"));
  FailureReport report{"train.py", "", "a", "run1", 0, {failure(1, Exited{1}, FailureClass::ExitCode, "it")},
                       {}};
  report.first_node = other;
  EXPECT_THAT(
      post_mortem_page(post_mortem_json(report, own, "")),
      HasSubstr("Differences between nodes\n-------------------------\n  torch: 2.15.0 here, 2.14.0 on"));
}

TEST(NodeFacts, VariablesThatMatterWithoutSecrets) {
  EXPECT_THAT(
      variables_that_matter({"PATH=/bin", "HOME=/root", "NCCL_DEBUG=INFO", "HF_TOKEN=abc", "nothing",
                             "CUDA_API_KEY=x", "TORCH_HOME=http://me:word@host/x,https://a@b"}),
      ElementsAre(Pair("CUDA_API_KEY", "<hidden>"), Pair("HF_TOKEN", "<hidden>"), Pair("NCCL_DEBUG", "INFO"),
                  Pair("PATH", "/bin"), Pair("TORCH_HOME", "http://<hidden>@host/x,https://<hidden>@b")));
}

class Explain : public ::testing::Test {
 protected:
  Explain() {
    std::string pattern = (fs::temp_directory_path() / "cpprun-explain-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Explain() override { fs::remove_all(folder_); }

  void write(const fs::path& file, const std::string& text) {
    fs::create_directories((folder_ / file).parent_path());
    std::ofstream(folder_ / file) << text;
  }
  void write_report(const fs::path& file, const std::string& run, const std::string& time) {
    json report = json::parse(post_mortem_json(crash(), facts(), ""));
    report["run_id"] = run;
    report["root_cause"]["time"] = time;
    write(file, report.dump());
  }
  int explained(const fs::path& place) {
    std::ostringstream out;
    std::ostringstream trouble;
    const int code = explain(folder_ / place, out, trouble);
    out_ = out.str();
    trouble_ = trouble.str();
    return code;
  }

  fs::path folder_;
  std::string out_;
  std::string trouble_;
};

TEST_F(Explain, EveryLevel) {
  write_report("job_1/attempt_0/post_mortem/post_mortem.json", "job", "2026-11-29T17:38:05.042Z");
  write("job_1/attempt_0/post_mortem/page.txt", "old");
  for (const char* place :
       {"job_1/attempt_0/post_mortem/post_mortem.json", "job_1/attempt_0/post_mortem/page.txt",
        "job_1/attempt_0/post_mortem", "job_1/attempt_0", "job_1", ""}) {
    EXPECT_EQ(explained(place), 0) << place << trouble_;
    EXPECT_THAT(out_, HasSubstr("Verdict      segmentation_fault")) << place;
    EXPECT_THAT(out_, Not(HasSubstr("Other failures")));
  }
}

TEST_F(Explain, TheLatestOfSeveralAndTheOthersListed) {
  write_report("a_1/attempt_0/failure.json", "first", "2026-11-29T17:00:00.000Z");
  write_report("b_1/attempt_0/post_mortem/post_mortem.json", "second", "2026-11-29T18:00:00.000Z");
  write_report("b_1/attempt_10/post_mortem/post_mortem.json", "third", "2026-11-29T19:00:00.000Z");
  write("c_1/attempt_0/0/stderr.log", "no failure here");
  EXPECT_EQ(explained(""), 0);
  EXPECT_THAT(out_, HasSubstr("run third"));
  const std::size_t second = out_.find("18:00:00.000Z  " + (folder_ / "b_1/attempt_0/post_mortem").string());
  const std::size_t first = out_.find("17:00:00.000Z  " + (folder_ / "a_1/attempt_0").string());
  ASSERT_NE(second, std::string::npos) << out_;
  EXPECT_LT(second, first);
}

TEST_F(Explain, TheFirstWholeFileCounts) {
  write("attempt_0/post_mortem/post_mortem.json", "{\"root_cause\": {");
  write_report("attempt_0/failure.json", "whole", "2026-11-29T17:00:00.000Z");
  for (const char* place : {"", "attempt_0"}) {
    EXPECT_EQ(explained(place), 0) << place << trouble_;
    EXPECT_THAT(out_, HasSubstr("run whole")) << place;
  }
  EXPECT_EQ(explained("attempt_0/post_mortem"), 1);  // where there is no other
  EXPECT_THAT(trouble_, HasSubstr("post_mortem.json cannot be explained: it is no JSON"));
}

TEST_F(Explain, SaysWhyAFileIsNotRead) {
  fs::create_directories(folder_ / "attempt_0/failure.json");
  EXPECT_EQ(explained(""), 1);
  EXPECT_THAT(trouble_, HasSubstr("failure.json cannot be explained: it is no regular file"));
  EXPECT_EQ(explained("attempt_0"), 1);
  EXPECT_THAT(trouble_, HasSubstr("it is no regular file"));
  fs::remove(folder_ / "attempt_0/failure.json");
  write("attempt_0/failure.json", "{");
  fs::resize_file(folder_ / "attempt_0/failure.json", std::uintmax_t{65} << 20);
  EXPECT_EQ(explained("attempt_0"), 1);
  EXPECT_THAT(trouble_, HasSubstr("it is larger than 64 MiB"));
  fs::create_symlink("/dev/null", folder_ / "null");
  EXPECT_EQ(explained("null"), 1);
  EXPECT_THAT(trouble_, HasSubstr("null cannot be explained: it is no regular file"));
}

TEST_F(Explain, NamesOfFoldersAreAnybodysToo) {
  write_report("a\x1b[2J_1/attempt_0/failure.json", "first", "2026\x1b[2J");
  write_report("b_1/attempt_0/failure.json", "second", "2027");
  EXPECT_EQ(explained(""), 0);
  EXPECT_THAT(out_, HasSubstr("Other failures"));
  EXPECT_THAT(out_, Not(HasSubstr("\x1b")));
}

TEST_F(Explain, TroubleIsASentence) {
  EXPECT_EQ(explained("missing"), 1);
  EXPECT_THAT(trouble_, HasSubstr("there is no " + (folder_ / "missing").string()));
  EXPECT_EQ(explained(""), 1);
  EXPECT_THAT(trouble_, HasSubstr("holds no report of a failure"));
  write("attempt_0/failure.json",
        "\x7f"
        "ELF");
  EXPECT_EQ(explained(""), 1);
  EXPECT_THAT(trouble_, HasSubstr("failure.json cannot be explained: it is no JSON"));
  write("attempt_0/failure.json", "{\"a\": 1}");
  EXPECT_EQ(explained("attempt_0"), 1);
  EXPECT_THAT(trouble_, HasSubstr("it has no 'root_cause'"));
}

}  // namespace
}  // namespace cpprun::launcher
