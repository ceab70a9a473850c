// The command line's pure parts: the file's reader, the registry's little grammar, quoting, a dry run of
// several nodes. tests/scenario has the rest, with the real program.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/cli_options.hpp"
#include "launcher/dry_run.hpp"
#include "launcher/text.hpp"

namespace cpprun::launcher {
namespace {

using rendezvous::ConfigFileError;
using rendezvous::FileValue;
using rendezvous::parse_config;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(ConfigFile, KeysKindsAndLines) {
  const std::vector<FileValue> values = parse_config(
      "{\n  \"a\": \"x\", \"b\": 1.50,\n\n  \"c\":\n true,\n \"d\": [\"p\", -2],\n \"e\": {\"f\": [1]}, "
      "\"g\": null}",
      "f");
  using Kind = FileValue::Kind;
  struct Expected {
    std::string key;
    int line;
    Kind kind;
    std::vector<std::string> texts;
  };
  const std::vector<Expected> expected{{"a", 2, Kind::Text, {"x"}},   {"b", 2, Kind::Text, {"1.50"}},
                                       {"c", 4, Kind::Switch, {"1"}}, {"d", 6, Kind::List, {"p", "-2"}},
                                       {"e", 7, Kind::Other, {}},     {"g", 7, Kind::Other, {}}};
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    SCOPED_TRACE(expected[i].key);
    EXPECT_EQ(values[i].key, expected[i].key);
    EXPECT_EQ(values[i].line, expected[i].line);
    EXPECT_EQ(values[i].kind, expected[i].kind);
    EXPECT_EQ(values[i].texts, expected[i].texts);
  }
}

TEST(ConfigFile, RefusesWhatIsNoObject) {
  for (const char* text :
       {"", "{", "[", "{\"a\" 1}", "{\"a\": 1,}", "{} {}", "1", "[]", "null", "\"a\"", "{\"a\": \"\x01\"}"}) {
    EXPECT_THROW(parse_config(text, "f"), ConfigFileError) << text;
  }
}

TEST(ConfigFile, RefusesWhatNoArgumentCanHold) {
  for (const auto& [text, sentence] : std::vector<std::pair<std::string, std::string>>{
           {R"({"a": "x\u0000y"})", "f, line 1: the value of 'a' holds a NUL character"},
           {"{\n\"a\": [\"\\u0000\"]}", "f, line 2: the value of 'a' holds a NUL character"},
           {R"({"a\u0000b": 1})", "f, line 1: a key holds a NUL character"}}) {
    try {
      parse_config(text, "f");
      ADD_FAILURE() << text;
    } catch (const ConfigFileError& error) {
      EXPECT_EQ(error.what(), sentence);
    }
  }
}

// What nobody writes to is not waited for without a limit.
TEST(ConfigFile, APipeMustComeInTime) {
  const std::string path = ::testing::TempDir() + "cpprun-fifo-" + std::to_string(::getpid());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THROW(rendezvous::read_config_file(path, std::chrono::milliseconds(1)), ConfigFileError);
  const int writer = ::open(path.c_str(), O_RDWR);
  ASSERT_EQ(::write(writer, "{}", 2), 2);
  EXPECT_THROW(rendezvous::read_config_file(path, std::chrono::milliseconds(1)), ConfigFileError);
  ::close(writer);
  ::unlink(path.c_str());
}

TEST(OptionEntry, WordsAreWhatCanBeSpelledOut) {
  OptionEntry option;
  for (const auto& [takes, words] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"N|auto|cpu|gpu", {"auto", "cpu", "gpu"}},
           {"0|1|2|3|RANK:0-3,...", {"0", "1", "2", "3"}},
           {"core-complex|node", {"core-complex", "node"}},
           {"HOST[:PORT]", {}},
           {"K=V,...", {}},
           {"", {}}}) {
    option.takes = takes;
    EXPECT_EQ(option.words(), words) << takes;
    EXPECT_EQ(option.is_list(), takes.find(",...") != std::string::npos) << takes;
  }
}

TEST(Text, ShellQuoted) {
  const std::vector<std::pair<std::string, std::string>> cases{{"plain-1.0/x=y,z:@%+", "plain-1.0/x=y,z:@%+"},
                                                               {"", "''"},
                                                               {"a b", "'a b'"},
                                                               {"$x", "'$x'"},
                                                               {"it's", "'it'\\''s'"},
                                                               {"a\nb'\\", "$'a\\x0ab\\'\\\\'"},
                                                               {"~", "'~'"},
                                                               {"\xc3\xa4", "'\xc3\xa4'"}};
  for (const auto& [text, quoted] : cases) EXPECT_EQ(shell_quoted(text), quoted);
}

TEST(DryRun, WhatOtherNodesDecideIsNotMadeUp) {
  LaunchConfig config;
  config.max_nodes = 2;
  config.run_id = "job";
  config.rdzv_backend = "c10d";
  config.endpoints = {{"host", 29400}, {"other", 29401}};
  config.signals_text = "SIGTERM";
  DryRun plan;
  plan.spec.executable = "/bin/true";
  plan.spec.argv = {"true"};
  plan.spec.local_world_size = 2;
  plan.spec.role = "default";
  const std::string elastic = to_text(plan, config);
  EXPECT_THAT(elastic, HasSubstr("1 to 2 nodes"));
  EXPECT_THAT(elastic, HasSubstr("c10d at host:29400, then other:29401"));
  for (const char* name : {"RANK", "WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
                           "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    EXPECT_THAT(elastic, HasSubstr("    " + std::string(name) + "=<by rendezvous>\n"));
  }
  EXPECT_THAT(elastic, HasSubstr("    LOCAL_RANK=1\n"));

  config.rdzv_backend = "static";
  config.endpoints = {{"10.0.0.1", 29500}};
  const std::string fixed = to_text(plan, config);
  EXPECT_THAT(fixed, HasSubstr("    MASTER_ADDR=10.0.0.1\n    MASTER_PORT=29500\n"));
  EXPECT_THAT(fixed, Not(HasSubstr("free port")));
}

}  // namespace
}  // namespace cpprun::launcher
