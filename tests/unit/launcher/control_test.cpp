// The control socket and what is said through it: server and client of the real thing, in two threads.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <filesystem>
#include <fstream>
#include <thread>

#include "launcher/ctl/choose_job.hpp"
#include "launcher/ctl/control_client.hpp"
#include "launcher/ctl/control_server.hpp"
#include "launcher/ctl/control_socket.hpp"
#include "launcher/ctl/job_control.hpp"
#include "launcher/ctl/job_status.hpp"
#include "launcher/ctl/running_jobs.hpp"
#include "launcher/ctl/status_text.hpp"
#include "launcher/health/node_evidence.hpp"

namespace cpprun::launcher {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr milliseconds kPatience{30'000};

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "cpprun-control-XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

awaitable<std::string> never(asio::io_context& io) {
  asio::steady_timer timer(io, async::Clock::time_point::max());
  co_await timer.async_wait(asio::use_awaitable);
  co_return "";
}
awaitable<std::string> given(std::string json) {
  co_return json;
}
awaitable<std::string> refused() {
  throw std::runtime_error("no permission");
  co_return "";
}

// An agent's end, in a thread.
class AgentEnd {
 public:
  using Stacks = std::function<awaitable<std::string>()>;

  AgentEnd(const fs::path& folder, Stacks stacks, ControlLimits limits = {})
      : server_(io_, listen_at(folder), {[] { return std::string("{\"run_id\":\"r\"}"); }, std::move(stacks)},
                limits),
        tasks_(io_.get_executor()) {
    tasks_.start(server_.run());
    thread_ = std::thread([this] { io_.run(); });
  }
  ~AgentEnd() {
    asio::post(io_, [this] { tasks_.cancel(); });
    thread_.join();
  }
  AgentEnd(const AgentEnd&) = delete;
  AgentEnd& operator=(const AgentEnd&) = delete;

  asio::io_context& io() { return io_; }

 private:
  asio::io_context io_{1};
  ControlServer server_;
  async::TaskGroup tasks_;
  std::thread thread_;
};

std::string refusal(const fs::path& folder, const std::string& request, ControlError::Kind kind,
                    milliseconds patience = kPatience) {
  try {
    return "answered: " + ask(folder, request, patience);
  } catch (const ControlError& error) {
    EXPECT_EQ(static_cast<int>(error.kind), static_cast<int>(kind)) << error.what();
    return error.what();
  }
}

// What comes back for `bytes`, to the end of the connection.
std::string talk(const fs::path& folder, const std::string& bytes) {
  const FileDescriptor socket = connect_to(folder, kPatience);
  ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  std::string reply;
  char buffer[4096];
  for (;;) {
    const ssize_t n = ::recv(socket.get(), buffer, sizeof buffer, 0);
    if (n <= 0) return reply;
    reply.append(buffer, static_cast<std::size_t>(n));
  }
}

TEST(ControlServer, AnswersStatusAndStacks) {
  const Folder folder;
  const AgentEnd agent(folder.path(), [] { return given(R"({"text":"rank 0\nrank 1","missing":[]})"); });
  EXPECT_EQ(ask(folder.path(), "status", kPatience), R"({"run_id":"r"})");
  EXPECT_EQ(stacks_text(ask(folder.path(), "stacks", kPatience)), "rank 0\nrank 1\n");
  EXPECT_EQ(talk(folder.path(), "{\"request\":\"status\"}\nand more"),
            "{\"protocol\":1,\"status\":{\"run_id\":\"r\"}}\n");
}

TEST(ControlServer, AFolderOfAnyLengthWillDo) {
  const Folder folder;
  fs::path deep = folder.path();
  for (int i = 0; i < 5; ++i) deep /= std::string(100, 'd');
  fs::create_directories(deep);
  const AgentEnd agent(deep, [] { return given("{}"); });
  EXPECT_TRUE(fs::is_socket(deep / kControlSocket));
  EXPECT_EQ(ask(deep, "status", kPatience), R"({"run_id":"r"})");
}

TEST(ControlServer, NobodyElseCanConnectWhateverTheUmask) {
  const Folder folder;
  const mode_t before = ::umask(0);
  const AgentEnd agent(folder.path(), [] { return given("{}"); });
  ::umask(before);
  EXPECT_EQ(fs::status(folder.path() / kControlSocket).permissions(), fs::perms(0600));
}

TEST(ControlServer, WhatIsNoRequestGetsASentence) {
  const Folder folder;
  const AgentEnd agent(folder.path(), [] { return given("{}"); });
  const std::string unknown = "\"error\":\"this is no request that cpprun ";
  for (const std::string line : {"", "garbage", "[]", "{}", "{\"request\":7}", "{\"request\":\"kill\"}",
                                 "\xff\xfe", "{\"request\":\"status\""}) {
    EXPECT_THAT(talk(folder.path(), line + "\n"), HasSubstr(unknown)) << line;
  }
  EXPECT_THAT(talk(folder.path(), std::string(5000, '[')),
              HasSubstr("\"error\":\"the request is too long\""));
  EXPECT_THAT(refusal(folder.path(), "kill", ControlError::Kind::Refused),
              HasSubstr("no request that cpprun"));
  EXPECT_EQ(ask(folder.path(), "status", kPatience), R"({"run_id":"r"})");
}

TEST(ControlServer, SlowAndManyClientsHoldUpNobodyForLong) {
  const Folder folder;
  ControlLimits limits;
  limits.connections = 8;
  limits.request = milliseconds(50);
  const AgentEnd agent(
      folder.path(), [] { return given("{}"); }, limits);
  std::vector<FileDescriptor> idle;
  for (int i = 0; i < 40; ++i) idle.push_back(connect_to(folder.path(), kPatience));
  ::send(idle.front().get(), "{", 1, MSG_NOSIGNAL);
  EXPECT_EQ(ask(folder.path(), "status", kPatience), R"({"run_id":"r"})");
  char byte;
  for (const FileDescriptor& socket : idle) EXPECT_LE(::recv(socket.get(), &byte, 1, 0), 0);  // closed
}

TEST(ControlServer, ACaptureThatFailsOrHangsIsASentence) {
  const Folder folder;
  {
    const AgentEnd agent(folder.path(), [] { return refused(); });
    EXPECT_EQ(refusal(folder.path(), "stacks", ControlError::Kind::Refused),
              "the stacks cannot be had: no permission");
  }
  fs::remove(folder.path() / kControlSocket);
  ControlLimits limits;
  limits.answer = milliseconds(50);
  asio::io_context* io = nullptr;
  AgentEnd agent(
      folder.path(), [&io] { return never(*io); }, limits);
  io = &agent.io();
  EXPECT_EQ(refusal(folder.path(), "stacks", ControlError::Kind::Refused),
            "the stacks were not there in time");
}

// Two who ask for stacks, while the capture of the first waits to be let go.
struct TwoAsk {
  explicit TwoAsk(const fs::path& folder)
      : agent(folder, [this] { return captured(); }), first(connect_to(folder, kPatience)) {
    const std::string request = "{\"request\":\"stacks\"}\n";
    ::send(first.get(), request.data(), request.size(), MSG_NOSIGNAL);
    // The server serves in the order in which it was asked.
    second = connect_to(folder, kPatience);
    ::send(second.get(), request.data(), request.size(), MSG_NOSIGNAL);
    EXPECT_EQ(ask(folder, "status", kPatience), R"({"run_id":"r"})");
  }
  awaitable<std::string> captured() {
    ++captures;
    async::Event event(agent.io().get_executor());
    open = &event;
    while (!opened) co_await event.wait();
    open = nullptr;
    co_return "{\"n\":" + std::to_string(captures) + "}";
  }
  void let_go() {
    asio::post(agent.io(), [this] {
      opened = true;
      if (open) open->notify_all();
    });
  }
  static std::string reply_to(const FileDescriptor& socket) {
    std::string reply(64, '\0');
    reply.resize(static_cast<std::size_t>(
        std::max<ssize_t>(::recv(socket.get(), reply.data(), reply.size(), MSG_WAITALL), 0)));
    return reply;
  }

  // The agent's thread's.
  async::Event* open = nullptr;
  bool opened = false;
  int captures = 0;

  AgentEnd agent;
  FileDescriptor first;
  FileDescriptor second;
};

TEST(ControlServer, WhoAsksDuringACaptureSharesIt) {
  const std::string shared = "{\"protocol\":1,\"stacks\":{\"n\":1}}\n";
  for (const bool impatient : {false, true}) {
    const Folder folder;
    TwoAsk asked(folder.path());
    if (impatient) asked.first = FileDescriptor();
    asked.let_go();
    if (!impatient) {
      EXPECT_EQ(TwoAsk::reply_to(asked.first), shared);
    }
    EXPECT_EQ(TwoAsk::reply_to(asked.second), shared);
    EXPECT_EQ(ask(folder.path(), "stacks", kPatience), "{\"n\":2}");  // one of its own
  }
}

TEST(ControlServer, AnEndDuringACapture) {
  const Folder folder;
  const TwoAsk asked(folder.path());
}

TEST(ControlClient, SaysWhoIsNotThere) {
  const Folder folder;
  EXPECT_THAT(refusal(folder.path(), "status", ControlError::Kind::Nobody), EndsWith("control.sock"));
  { const FileDescriptor listener = listen_at(folder.path()); }
  EXPECT_THAT(refusal(folder.path(), "status", ControlError::Kind::Nobody),
              HasSubstr("no cpprun of this host"));
  fs::remove(folder.path() / kControlSocket);
  const FileDescriptor listener = listen_at(folder.path());  // which answers nothing
  EXPECT_THAT(refusal(folder.path(), "status", ControlError::Kind::Silent, milliseconds(50)),
              HasSubstr("did not answer"));
}

class Jobs : public ::testing::Test {
 protected:
  ControlPlace plan(pid_t pid, const std::string& run = "") const {
    RunFolder none = RunFolder::none();
    ControlPlace place = plan_control(list_, none, pid);
    if (!run.empty()) place.folder = folder_.path() / run;
    return place;
  }
  Folder folder_;
  fs::path list_ = folder_.path() / "jobs";
};

TEST_F(Jobs, AreListedWhileTheyRun) {
  const ControlPlace own = plan(30);
  const ControlPlace linked = plan(4, "run");
  fs::create_directory(linked.folder);
  EXPECT_THAT(listed_jobs(list_), IsEmpty());
  const FileDescriptor first = enter(own);
  const FileDescriptor second = enter(linked);
  EXPECT_EQ(fs::status(list_).permissions(), fs::perms(0700));
  const std::vector<ControlPlace> jobs = listed_jobs(list_);
  ASSERT_EQ(jobs.size(), 2u);
  EXPECT_EQ(jobs[0].launcher, 4);
  EXPECT_EQ(jobs[0].folder, linked.folder);
  EXPECT_EQ(jobs[1].launcher, 30);
  EXPECT_TRUE(jobs[1].own_folder());
  { const FileDescriptor socket = listen_at(own.folder); }
  { const FileDescriptor socket = listen_at(linked.folder); }
  leave(own);
  EXPECT_EQ(listed_jobs(list_).size(), 1u);
  leave(jobs[0]);
  EXPECT_FALSE(fs::exists(list_));
  EXPECT_TRUE(fs::is_empty(linked.folder));
  leave(own);  // again
}

TEST_F(Jobs, TakeThePlaceOfWhatADeadOneLeft) {
  const FileDescriptor before = enter(plan(4));
  { const FileDescriptor socket = listen_at(plan(4).folder); }
  const FileDescriptor after = enter(plan(4, "run"));
  EXPECT_EQ(listed_jobs(list_).at(0).folder, folder_.path() / "run");
}

// As a run makes it whose umask takes the owner's bits.
TEST_F(Jobs, AListOfTooNarrowAModeIsRepaired) {
  for (const int mode : {0000, 0500}) {
    fs::create_directory(list_);
    fs::permissions(list_, fs::perms(mode));
    const FileDescriptor entry = enter(plan(4));
    EXPECT_EQ(fs::status(list_).permissions(), fs::perms(0700));
    leave(plan(4));
  }
}

TEST_F(Jobs, OfAListThatOthersCanWriteToAreNone) {
  const FileDescriptor entry = enter(plan(4));
  fs::permissions(list_, fs::perms(0777));
  EXPECT_THAT(listed_jobs(list_), IsEmpty());
  EXPECT_THROW(enter(plan(5)), std::system_error);
  leave(plan(4));
  EXPECT_TRUE(fs::exists(plan(4).entry));
}

TEST_F(Jobs, OfALinkInPlaceOfTheListAreNone) {
  const fs::path elsewhere = folder_.path() / "elsewhere";
  fs::create_directories(elsewhere / "4");
  fs::create_directory_symlink(elsewhere, list_);
  EXPECT_THAT(listed_jobs(list_), IsEmpty());
  EXPECT_THROW(enter(plan(5)), std::system_error);
  leave(plan(4));
  EXPECT_TRUE(fs::exists(elsewhere / "4"));
}

TEST(FoldersMeant, TheRunsOwnThoseBelowOrTheOneAbove) {
  const Folder logs;
  const fs::path first = logs.path() / "a_1";
  const fs::path second = logs.path() / "b_2";
  fs::create_directories(first / "attempt_0");
  fs::create_directories(second);
  EXPECT_THAT(folders_meant(logs.path()), ElementsAre(logs.path()));  // none is there
  const FileDescriptor one = listen_at(first);
  EXPECT_THAT(folders_meant(first), ElementsAre(first));
  EXPECT_THAT(folders_meant(logs.path()), ElementsAre(first));
  EXPECT_THAT(folders_meant(second), ElementsAre(second));
  ASSERT_EQ(folders_meant(first / "attempt_0").size(), 1u);
  EXPECT_TRUE(fs::equivalent(folders_meant(first / "attempt_0").front(), first));
  const FileDescriptor two = listen_at(second);
  EXPECT_THAT(folders_meant(logs.path()), ElementsAre(first, second));
  EXPECT_THAT(folders_meant("no/such/folder"), ElementsAre("no/such/folder"));
}

std::string no_job(const std::vector<KnownJob>& jobs, const std::string& wanted) {
  try {
    return "found " + std::to_string(only_job(jobs, wanted));
  } catch (const NoSuchJob& error) {
    return error.what();
  }
}

TEST(ChooseJob, ByPidOrRunOrBecauseItIsTheOnlyOne) {
  const std::vector<KnownJob> jobs{{10, "none"}, {11, "12"}, {12, "train"}, {13, "none"}};
  EXPECT_EQ(only_job(jobs, "train"), 2u);
  EXPECT_EQ(only_job(jobs, "12"), 2u);  // the pid, not the run
  EXPECT_EQ(only_job(jobs, "13"), 3u);
  EXPECT_EQ(only_job({{7, ""}}, ""), 0u);
  EXPECT_THAT(matching_jobs(jobs, "none"), ElementsAre(0u, 3u));
  EXPECT_EQ(no_job(jobs, "none"), "several jobs have the run id 'none'; name one by its pid: 10, 13");
  EXPECT_EQ(no_job(jobs, ""), "4 jobs run here; name one by its pid: 10, 11, 12, 13");
  EXPECT_THAT(no_job(jobs, "trian"), HasSubstr("'trian'; did you mean train?"));
  EXPECT_EQ(no_job({}, ""), "no job of yours runs on this host");
  EXPECT_EQ(no_job({}, "train"),
            "no job of yours on this host has the pid or run id 'train'; cpprunctl status lists them");
  const std::vector<KnownJob> silent{{10, "other"}, {11, "", false}, {12, "", false}};
  EXPECT_EQ(
      no_job(silent, "train"),
      "no job of yours on this host that answers has the pid or run id 'train'; it may be one that does "
      "not answer: 11, 12");
  EXPECT_EQ(only_job(silent, "12"), 2u);
  EXPECT_EQ(only_job(silent, "other"), 0u);
}

JobStatus some_status() {
  const std::chrono::system_clock::time_point start{};
  JobStatus status;
  status.version = "0.1.0";
  status.run_id = "train";
  status.program = "train.py";
  status.host = "hostA";
  status.launcher = 10;
  status.agent = 11;
  status.max_restarts = 3;
  status.started = start;
  status.phase = AgentPhase::Running;
  status.round = RoundStatus{2, 1, 0, 2, "10.0.0.1"};
  WorkerStatus runs;
  runs.ranks = {0, 4, 4, 8, 8};
  runs.pid = 20;
  runs.started = start + std::chrono::seconds(10);
  runs.process_state = 'S';
  runs.progress = R"({"step":7,"phase":"train"})";
  WorkerStatus ended = runs;
  ended.ranks = {1, 5, 5, 8, 8};
  ended.pid = 21;
  ended.process_state = 0;
  ended.progress = "no object";
  ended.end = WorkerStatus::End{Signaled{9, false}, start + std::chrono::seconds(11)};
  status.workers = {runs, ended};
  return status;
}

TEST(JobStatus, AsJson) {
  const auto now = std::chrono::system_clock::time_point{} + std::chrono::seconds(75);
  EXPECT_EQ(
      to_json(some_status(), now),
      R"({"version":"0.1.0","run_id":"train","program":"train.py","host":"hostA","pid":10,"agent_pid":11,)"
      R"("state":"running","uptime_s":75.0,"folder":null,"rendezvous":null,"max_restarts":3,"attempt":2,)"
      R"("restarts":1,"group_rank":0,"group_world_size":2,"address":"10.0.0.1","workers":[)"
      R"({"global_rank":4,"local_rank":0,"role_rank":4,"pid":20,"state":"running","process_state":"S",)"
      R"("uptime_s":65.0,"exit_code":null,"signal":null,"condemned":null,)"
      R"("progress":{"step":7,"phase":"train"}},)"
      R"({"global_rank":5,"local_rank":1,"role_rank":5,"pid":21,"state":"ended","process_state":null,)"
      R"("uptime_s":1.0,"exit_code":null,"signal":"SIGKILL","condemned":null,"progress":null}]})");
}

TEST(JobStatus, BeforeTheFirstRoundAndWithOddText) {
  JobStatus status;
  status.run_id = "\xff";
  status.started = std::chrono::system_clock::time_point{} + std::chrono::hours(1);  // the clock was set back
  const std::string json = to_json(status, {});
  EXPECT_THAT(json, HasSubstr(R"("state":"rendezvous","uptime_s":0.0)"));
  EXPECT_THAT(json, HasSubstr(R"("attempt":null)"));
  EXPECT_THAT(json, HasSubstr("\"run_id\":\"\xEF\xBF\xBD\""));
}

TEST(StatusText, OfAJob) {
  const auto now = std::chrono::system_clock::time_point{} + std::chrono::seconds(75);
  EXPECT_EQ(job_text(to_json(some_status(), now)),
            "run:         train\n"
            "program:     train.py\n"
            "state:       running, for 1 min 15 s\n"
            "pid:         10 (agent 11)\n"
            "node:        0 of 2, hostA\n"
            "rendezvous:  -\n"
            "attempt:     2\n"
            "restarts:    1 of 3\n"
            "logs:        -\n"
            "\n"
            "RANK  LOCAL  PID  UP         STATE             PROGRESS\n"
            "4     0      20   1 min 5 s  running (S)       step=7 phase=train\n"
            "5     1      21   1 s        ended by SIGKILL  -\n");
}

TEST(StatusText, OfAllJobs) {
  const auto now = std::chrono::system_clock::time_point{} + std::chrono::hours(50);
  const std::vector<StatusAnswer> answers{{10, to_json(some_status(), now), ""}, {12, "", "it is\nsilent"}};
  EXPECT_EQ(job_table(answers),
            "PID  RUN    STATE    NODE    ATTEMPT  WORKERS UP  SINCE    PROGRAM\n"
            "10   train  running  0 of 2  2        1 of 2      2 d 2 h  train.py\n"
            "12   -      it is\\x0asilent\n");
  EXPECT_THAT(jobs_json(answers), HasSubstr("\"error\": \"it is\\nsilent\""));
  EXPECT_EQ(jobs_json({}), "[]\n");
}

TEST(StatusText, OfWhatIsNoStatus) {
  for (const char* json :
       {"", "[]", "{}", R"({"workers":7,"uptime_s":"x","run_id":[]})", R"({"workers":[7,null,{}]})"}) {
    EXPECT_THAT(job_text(json), HasSubstr("run:")) << json;
    job_table({{1, json, ""}});
  }
  EXPECT_EQ(stacks_text("[]"), "");
  EXPECT_EQ(stacks_text(R"({"text":7})"), "");
  EXPECT_EQ(stacks_text(R"({"text":"a\u001b[0m\tb","missing":[3]})"),
            "a\\x1b[0m\tb\nnode 3 did not answer\n");
}

TEST(StacksJson, HoldsWhatEachNodeToldAndTheRanksTogether) {
  RankStacks here;
  RankStacks there;
  there.rank = 1;
  const std::string both = stacks_json(
      {{{0, evidence_to_json({here}, 1 << 20)}, {1, evidence_to_json({there}, 1 << 20)}, {2, "garbage"}},
       {3}});
  EXPECT_THAT(both, HasSubstr(R"({"text":"2 ranks (0-1) are without a stack)"));
  EXPECT_THAT(both, HasSubstr(R"({"group_rank":1,"evidence":{"stacks":[{)"));
  EXPECT_THAT(both, HasSubstr(R"({"group_rank":2,"evidence":null})"));
  EXPECT_THAT(both, HasSubstr(R"("missing":[3])"));
}

}  // namespace
}  // namespace cpprun::launcher
