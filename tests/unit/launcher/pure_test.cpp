// The launcher's small pure parts, by table.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

#include "launcher/agent/rank_assignment.hpp"
#include "launcher/agent/restart_policy.hpp"
#include "launcher/process/exit_status.hpp"
#include "launcher/process/line_cutter.hpp"
#include "launcher/process/redirect_policy.hpp"
#include "launcher/text.hpp"
#include "rendezvous/rendezvous_settings.hpp"

namespace cpprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(Text, Substitute) {
  const std::map<std::string, std::string> values{{"local_rank", "3"}};
  EXPECT_EQ(substitute("--gpu=$local_rank", values), "--gpu=3");
  EXPECT_EQ(substitute("a${local_rank}b", values), "a3b");
  EXPECT_EQ(substitute("$local_ranks ${local_rank $other ${other} $", values),
            "$local_ranks ${local_rank $other ${other} $");
  EXPECT_EQ(substitute("a$$b $$local_rank", values), "a$$b $$local_rank");
}

TEST(Text, Nearest) {
  const std::vector<std::string> names{"--nproc-per-node", "--max-restarts", "--tee"};
  EXPECT_EQ(did_you_mean("--max-restart", names), "; did you mean --max-restarts?");
  EXPECT_EQ(did_you_mean("--nproc-per-nodes", names), "; did you mean --nproc-per-node?");
  EXPECT_EQ(did_you_mean("--frobnicate-all", names), "");
}

TEST(Text, WholeNumber) {
  EXPECT_EQ(whole_number("12"), 12);
  EXPECT_EQ(whole_number("-1"), -1);
  for (const char* text : {"", "1x", " 1", "99999999999", "1.5"})
    EXPECT_EQ(whole_number(text), std::nullopt) << text;
}

TEST(ExitStatus, DecodesWaitStatus) {
  for (int code = 0; code < 256; ++code) {
    const ExitStatus status = decode_wait_status(code << 8);
    EXPECT_EQ(std::get<Exited>(status).code, code);
    EXPECT_EQ(succeeded(status), code == 0);
  }
  for (int signal = 1; signal <= 31; ++signal) {
    const ExitStatus status = decode_wait_status(signal);
    EXPECT_EQ(std::get<Signaled>(status).signal, signal);
    EXPECT_FALSE(succeeded(status));
  }
  EXPECT_EQ(describe(decode_wait_status(SIGSEGV | 0x80)), "SIGSEGV (core dumped)");
  EXPECT_EQ(describe(decode_wait_status(7 << 8)), "exit code 7");
}

TEST(ExitStatus, SignalNames) {
  EXPECT_EQ(signal_name(SIGKILL), "SIGKILL");
  EXPECT_EQ(signal_name(SIGRTMIN + 3), "SIGRTMIN+3");
  for (int signal = 1; signal < 32; ++signal) EXPECT_EQ(signal_number(signal_name(signal)), signal);
  EXPECT_EQ(signal_number("TERM"), SIGTERM);
  EXPECT_EQ(signal_number("15"), SIGTERM);
  EXPECT_EQ(signal_number("SIGRTMIN+3"), SIGRTMIN + 3);
  EXPECT_EQ(signal_number("SIGIO"), SIGPOLL);
  for (const char* name : {"", "SIGNOPE", "0", "-3", "1000", "SIGRTMIN+99"})
    EXPECT_EQ(signal_number(name), 0) << name;
}

TEST(LineCutter, PrefixesEveryPiece) {
  LineCutter cutter;
  std::string out;
  cutter.feed("one\ntwo\nthr", "P:", out);
  EXPECT_EQ(out, "P:one\nP:two\n");
  EXPECT_TRUE(cutter.has_open());
  out.clear();
  cutter.feed("ee\n", "P:", out);
  EXPECT_EQ(out, "P:three\n");
  EXPECT_FALSE(cutter.has_open());
}

TEST(LineCutter, CarriageReturnEndsAPiece) {
  LineCutter cutter;
  std::string out;
  cutter.feed("10%\r20%\rdone\n", "P:", out);
  EXPECT_EQ(out, "P:10%\rP:20%\rP:done\n");
  out.clear();
  cutter.feed("dos\r\nunix\n", "P:", out);
  EXPECT_EQ(out, "P:dos\r\nP:unix\n");
}

TEST(LineCutter, EndlessLineIsCutNotKept) {
  LineCutter cutter;
  std::string out;
  const std::string text(LineCutter::kLongestPiece, 'x');
  cutter.feed(text, "P:", out);
  EXPECT_EQ(out, "P:" + text);
  cutter.feed("rest\nnext\n", "P:", out);
  EXPECT_EQ(out, "P:" + text + "rest\nP:next\n");
  EXPECT_FALSE(cutter.has_open());
}

TEST(LineCutter, LosesNoByteWhereverTheInputIsSplit) {
  const std::string text = "a\r\nb\n\n\rccc\xff\n no end";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    LineCutter cutter;
    std::string out;
    cutter.feed(text.substr(0, cut), "", out);
    cutter.feed(text.substr(cut), "", out);
    EXPECT_EQ(out + cutter.take_open(), text) << cut;
  }
}

TEST(StreamSelection, OneForAll) {
  const StreamSelection selection = StreamSelection::parse("2");
  EXPECT_FALSE(selection.of(5).out);
  EXPECT_TRUE(selection.of(5).err);
}

TEST(StreamSelection, MapWithRanksOfAnyLength) {
  const StreamSelection selection = StreamSelection::parse("0:3,12:1,12:2");
  EXPECT_TRUE(selection.of(0).out && selection.of(0).err);
  EXPECT_FALSE(selection.of(1).out || selection.of(1).err);
  EXPECT_TRUE(!selection.of(12).out && selection.of(12).err);  // the last one wins
}

TEST(StreamSelection, Refuses) {
  for (const char* text : {"", "4", "33", "a", "0:", ":1", "0:4", "0:1,", "-1:1", "0:1;1:2"}) {
    EXPECT_THROW(StreamSelection::parse(text), std::invalid_argument) << text;
  }
}

struct RouteCase {
  const char* redirects;
  const char* tee;
  bool shown;
  bool files;
  bool file, console, prefixed;
};

TEST(RedirectPolicy, Routes) {
  for (const RouteCase& c : {
           RouteCase{"0", "0", true, true, false, true, false},
           RouteCase{"1", "0", true, true, true, false, false},
           RouteCase{"0", "1", true, true, true, true, true},
           RouteCase{"1", "1", true, true, true, true, true},
           RouteCase{"0", "0", false, true, false, false, false},
           RouteCase{"0", "1", false, true, true, false, true},
           RouteCase{"1", "0", false, true, true, false, false},
           RouteCase{"3", "3", true, false, false, true, false},
       }) {
    RedirectPolicy policy;
    policy.redirects = StreamSelection::parse(c.redirects);
    policy.tee = StreamSelection::parse(c.tee);
    policy.files = c.files;
    if (!c.shown) policy.shown_ranks = {7};
    const StreamRoute route = routes_of(policy, 0).out;
    const std::string where = std::string(c.redirects) + c.tee + (c.shown ? " shown" : " hidden");
    EXPECT_EQ(route.file, c.file) << where;
    EXPECT_EQ(route.console, c.console) << where;
    EXPECT_EQ(route.prefixed, c.prefixed) << where;
  }
}

TEST(LinePrefix, DefaultAndTemplate) {
  const PrefixValues values{"trainer", 9, 1, "host"};
  EXPECT_EQ(line_prefix("", values), "[trainer1]:");
  EXPECT_EQ(line_prefix("${hostname}/$rank/${local_rank} $x: ", values), "host/9/1 $x: ");
}

TEST(RankAssignment, LocalRanksRunOnFromTheNodes) {
  const std::vector<WorkerRanks> ranks = assign_ranks({3, 6, 2, 5}, 3);
  ASSERT_EQ(ranks.size(), 3u);
  for (int local = 0; local < 3; ++local) {
    const WorkerRanks& r = ranks[static_cast<std::size_t>(local)];
    EXPECT_EQ(r.local, local);
    EXPECT_EQ(r.global, 3 + local);
    EXPECT_EQ(r.role, 2 + local);
    EXPECT_EQ(r.world_size, 6);
    EXPECT_EQ(r.role_world_size, 5);
  }
}

TEST(RestartPolicy, WhatAnAgentWants) {
  const rendezvous::RoundEnd failed = end_by_failure("node 1 (h)", {"rank 1 failed", ""}, "cause");
  EXPECT_EQ(failed, (rendezvous::RoundEnd{true, false, "node 1 (h): rank 1 failed", "cause"}));
  const rendezvous::RoundEnd never = end_by_failure("", {"rank 1 failed", "the kernel holds it"}, "");
  EXPECT_FALSE(never.charged);
  EXPECT_TRUE(never.final);
  EXPECT_EQ(never.sentence, "rank 1 failed; the kernel holds it, so it is not restarted");
  EXPECT_EQ(end_by_stop("node 1 (h)", {SIGTERM}).sentence, "node 1 (h) was stopped by SIGTERM");
  EXPECT_EQ(end_by_stop("node 1 (h)", {SIGKILL}).sentence, "node 1 (h): its cpprun was killed");
  EXPECT_FALSE(end_by_stop("", {SIGTERM}).final);
}

TEST(RendezvousLimits, FromTheSettingsOfEachBackend) {
  const rendezvous::RendezvousLimits c10d = rendezvous::limits_of(
      {{"join_timeout", "4"}, {"read_timeout", "2.5"}, {"keep_alive_max_attempt", "7"}, {"is_host", "No"}},
      "c10d");
  EXPECT_EQ(c10d.join_timeout, std::chrono::seconds(4));
  EXPECT_EQ(c10d.connect_timeout, std::chrono::milliseconds(2500));
  EXPECT_EQ(c10d.keep_alive_attempts, 7);
  EXPECT_EQ(c10d.is_host, false);
  EXPECT_EQ(rendezvous::limits_of({}, "static").join_timeout, std::chrono::seconds(900));
  EXPECT_EQ(rendezvous::limits_of({{"timeout", "5"}}, "static").connect_timeout, std::chrono::seconds(5));
  EXPECT_EQ(rendezvous::limits_of({{"timeout", "5"}}, "etcd").join_timeout, std::chrono::seconds(5));
  EXPECT_EQ(rendezvous::limits_of({{"timeout", "5"}, {"join_timeout", "6"}}, "etcd").join_timeout,
            std::chrono::seconds(6));
  EXPECT_EQ(rendezvous::limits_of({{"timeout", "5"}}, "c10d").join_timeout, std::chrono::seconds(600));
  for (const char* key :
       {"join_timeout", "read_timeout", "keep_alive_interval", "keep_alive_max_attempt", "is_host"}) {
    for (const char* value : {"-1", "x", "1x"}) {
      EXPECT_THROW(rendezvous::limits_of({{key, value}}, "c10d"), rendezvous::SettingsError)
          << key << "=" << value;
    }
  }
}

struct EndpointCase {
  const char* text;
  const char* host;
  int port;  // -1: none
};

TEST(Endpoint, Accepts) {
  for (const EndpointCase& c : {EndpointCase{"", "localhost", -1}, EndpointCase{" h1 ", "h1", -1},
                                EndpointCase{"h1:29400", "h1", 29400}, EndpointCase{"[::1]:5", "::1", 5},
                                EndpointCase{"[fe80::1%eth0]", "fe80::1%eth0", -1},
                                EndpointCase{"::1", "::1", -1}, EndpointCase{"10.0.0.1:0", "10.0.0.1", 0}}) {
    const rendezvous::Endpoint endpoint = rendezvous::parse_endpoint(c.text);
    EXPECT_EQ(endpoint.host, c.host) << c.text;
    EXPECT_EQ(endpoint.port ? *endpoint.port : -1, c.port) << c.text;
  }
}

TEST(Endpoint, Refuses) {
  for (const char* text : {"h:", "h:x", "h:65536", "h:-1", ":5", "[::1", "[::1]x", "a b", "a/b:1"}) {
    EXPECT_THROW(rendezvous::parse_endpoint(text), rendezvous::SettingsError) << text;
  }
}

TEST(Settings, KeysAndValues) {
  EXPECT_THAT(rendezvous::parse_settings(" join_timeout = 4 ,is_host=0,"),
              ElementsAre(std::make_pair("is_host", "0"), std::make_pair("join_timeout", "4")));
  for (const char* text : {"a", "=1", "a=", "a=1,,b=2"}) {
    EXPECT_THROW(rendezvous::parse_settings(text), rendezvous::SettingsError) << text;
  }
}

}  // namespace
}  // namespace cpprun::launcher
