// cpprund's command line and configuration file.
#include "rendezvous/daemon/daemon_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace cpprun::rendezvous {
namespace {

using ::testing::HasSubstr;

std::optional<DaemonConfig> parse(std::vector<const char*> words, std::string& printed) {
  words.insert(words.begin(), "cpprund");
  return parse_daemon_config(static_cast<int>(words.size()), words.data(), printed);
}
DaemonConfig parsed(std::vector<const char*> words) {
  std::string printed;
  return parse(std::move(words), printed).value();
}
std::string refusal(std::vector<const char*> words) {
  try {
    parsed(std::move(words));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text)
      : path_(std::filesystem::path(::testing::TempDir()) /
              ("cpprund-" + std::to_string(::getpid()) + "-" + std::to_string(count_++) + ".json")) {
    std::ofstream(path_) << text;
    option_ = "--config=" + path_.string();
  }
  ~ConfigFile() { std::filesystem::remove(path_); }
  const char* option() const { return option_.c_str(); }

 private:
  static inline int count_ = 0;
  std::filesystem::path path_;
  std::string option_;
};

TEST(DaemonConfig, Defaults) {
  const DaemonConfig config = parsed({});
  EXPECT_FALSE(config.bind.address);
  EXPECT_EQ(config.bind.port, 29400);
  EXPECT_FALSE(config.http || config.ready_fd);
  EXPECT_EQ(config.runs.runs, 1000U);
}

TEST(DaemonConfig, BindAddresses) {
  EXPECT_EQ(parsed({"--bind", "10.1.2.3:5"}).bind.address->to_string(), "10.1.2.3");
  EXPECT_EQ(parsed({"--bind", "[::1]:0"}).bind.address->to_string(), "::1");
  EXPECT_EQ(parsed({"--bind", "[::1]:0"}).bind.port, 0);
  EXPECT_FALSE(parsed({"--bind", "*:77"}).bind.address);
  EXPECT_EQ(parsed({"--http-bind", "127.0.0.1:9"}).http->port, 9);
  EXPECT_THAT(refusal({"--bind", "localhost:1"}), HasSubstr("no numeric address"));
  EXPECT_THAT(refusal({"--bind", "10.0.0.1"}), HasSubstr("names no port"));
  EXPECT_THAT(refusal({"--bind", "10.0.0.1:99999"}), HasSubstr("--bind"));
  EXPECT_THAT(refusal({"--http-bind", "::1"}), HasSubstr("--http-bind: '::1' names no port"));
  EXPECT_NE(refusal({"--bind", ""}), "");
}

TEST(DaemonConfig, Stores) {
  const std::vector<NamedStore> stores = parsed({"--store=a=1", "--store", "b.C-_=0"}).stores;
  ASSERT_EQ(stores.size(), 2U);
  EXPECT_EQ(stores[0].name, "a");
  EXPECT_EQ(stores[0].port, 1);
  EXPECT_EQ(stores[1].name, "b.C-_");
  EXPECT_EQ(stores[1].port, 0);
  EXPECT_THAT(refusal({"--store", "a"}), HasSubstr("--store: 'a' names no port"));
  EXPECT_THAT(refusal({"--store", "=1"}), HasSubstr("has no name"));
  EXPECT_THAT(refusal({"--store", "a b=1"}), HasSubstr("has no name"));
  EXPECT_THAT(refusal({"--store", (std::string(65, 'a') + "=1").c_str()}), HasSubstr("has no name"));
  for (const char* port : {"a=", "a=x", "a=65536", "a=-1", "a=1 ", "a=0x1"})
    EXPECT_THAT(refusal({"--store", port}), HasSubstr("has no port")) << port;
  EXPECT_THAT(refusal({"--store", "a=1", "--store", "a=2"}), HasSubstr("two stores of the name 'a'"));
  EXPECT_THAT(refusal({"--store", "a=1", "--secret-file", "s"}), HasSubstr("exclude each other"));
  // Not a second value of the first.
  EXPECT_NE(refusal({"--store", "a=1", "b=2"}), "");
}

TEST(DaemonConfig, StoresInTheFileAreATextOrAList) {
  const ConfigFile list(R"({"store": ["a=1", "b=2"]})");
  EXPECT_EQ(parsed({list.option()}).stores.size(), 2U);
  EXPECT_EQ(parsed({list.option(), "--store=c=3"}).stores.at(0).name, "c");
  const ConfigFile one(R"({"store": "a=1"})");
  EXPECT_EQ(parsed({one.option()}).stores.size(), 1U);
  const ConfigFile none(R"({"store": []})");
  EXPECT_EQ(parsed({none.option()}).stores.size(), 0U);
}

TEST(DaemonConfig, BadValuesAreRefused) {
  for (const std::vector<const char*>& words : std::vector<std::vector<const char*>>{{"--drain-limit", "-1"},
                                                                                     {"--drain-limit", "nan"},
                                                                                     {"--max-runs", "many"},
                                                                                     {"--max-keys", "0"},
                                                                                     {"--ready-fd", "-1"},
                                                                                     {"--log-level", "loud"},
                                                                                     {"--unknown"},
                                                                                     {"word"}}) {
    EXPECT_NE(refusal(words), "") << words.front();
  }
}

TEST(DaemonConfig, TheFileHasTheOptionsNamesAndTheCommandLineWins) {
  const ConfigFile file(
      R"({"bind": "127.0.0.1:1", "max-keys": 5, "drain-limit": 0.5, "log-level": "debug"})");
  const DaemonConfig config = parsed({file.option(), "--bind", "127.0.0.1:2"});
  EXPECT_EQ(config.bind.port, 2);
  EXPECT_EQ(config.store.keys, 5);
  EXPECT_EQ(config.drain_limit, std::chrono::milliseconds(500));
  EXPECT_EQ(config.log_level, "debug");
}

TEST(DaemonConfig, BadFilesAreRefused) {
  EXPECT_THAT(refusal({"--config", "/nonexistent/file"}),
              HasSubstr("--config: the file '/nonexistent/file' cannot be read: No such file"));
  EXPECT_THAT(refusal({"--config", "/"}), HasSubstr("Is a directory"));
  for (const char* text : {"", "{", "[]", "{\"max-keys\": []}", "{\"no-such\": 1}", "{\"config\": \"x\"}",
                           "{\"help\": 1}", "{\"max-keys\": \"many\"}", "{\"max-keys\": 1, \"max-keys\": 2}",
                           "{\"max-keys\": [1]}", "{\"store\": [[]]}", "{\"store\": {}}"}) {
    const ConfigFile file(text);
    EXPECT_NE(refusal({file.option()}), "") << text;
  }
}

TEST(DaemonConfig, HelpAndVersionArePrinted) {
  std::string printed;
  EXPECT_FALSE(parse({"--help"}, printed));
  EXPECT_THAT(printed, HasSubstr("--http-bind"));
  EXPECT_FALSE(parse({"--version"}, printed));
  EXPECT_THAT(printed, HasSubstr("cpprund "));
}

}  // namespace
}  // namespace cpprun::rendezvous
