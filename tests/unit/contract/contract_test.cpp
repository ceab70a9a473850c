// What launcher and worker tell each other survives the way between them, and bad texts are refused in words.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "worker_runtime/contract/error_record.hpp"
#include "worker_runtime/contract/whole_file.hpp"
#include "worker_runtime/contract/worker_env.hpp"

namespace cpprun::worker {
namespace {

using ::testing::HasSubstr;

class Environment : public ::testing::Test {
 protected:
  void SetUp() override { ::clearenv(); }
  void set(const Variables& variables) {
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  std::string refusal() {
    try {
      from_environment();
    } catch (const EnvironmentError& error) {
      return error.what();
    }
    return "";
  }
};

TEST_F(Environment, RoundTrip) {
  WorkerEnv env;
  env.rank = 5;
  env.local_rank = 1;
  env.world_size = 8;
  env.local_world_size = 4;
  env.group_rank = 1;
  env.group_world_size = 2;
  env.role_rank = 3;
  env.role_world_size = 6;
  env.role_name = "trainer";
  env.master_addr = "10.0.0.7";
  env.master_port = 1234;
  env.restart_count = 2;
  env.max_restarts = 3;
  env.run_id = "job 7";
  env.use_agent_store = true;
  env.error_file = "/tmp/e.json";
  env.progress_page = "/dev/shm/p/0";
  set(to_variables(env));
  const WorkerEnv read = from_environment();
  EXPECT_EQ(to_variables(read), to_variables(env));
  EXPECT_EQ(read.rank, 5);
  EXPECT_EQ(read.role_world_size, 6);
  EXPECT_EQ(read.master_port, 1234);
  EXPECT_TRUE(read.use_agent_store);
  EXPECT_EQ(read.error_file, "/tmp/e.json");
  EXPECT_EQ(read.progress_page, "/dev/shm/p/0");
}

TEST_F(Environment, SpellsBooleansAsPythonDoes) {
  const Variables variables = to_variables(WorkerEnv{});
  EXPECT_THAT(variables, ::testing::Contains(std::make_pair("TORCHELASTIC_USE_AGENT_STORE", "False")));
}

TEST_F(Environment, MinimalOfPlainEnvInit) {
  set({{"RANK", "1"},
       {"WORLD_SIZE", "2"},
       {"LOCAL_RANK", "0"},
       {"MASTER_ADDR", "h"},
       {"MASTER_PORT", "29500"}});
  const WorkerEnv env = from_environment();
  EXPECT_EQ(env.local_world_size, 2);
  EXPECT_EQ(env.role_rank, 1);
  EXPECT_FALSE(env.use_agent_store);
}

TEST_F(Environment, NamesWhatIsMissingOrWrong) {
  EXPECT_FALSE(launched());
  EXPECT_THAT(refusal(), HasSubstr("WORLD_SIZE is not set"));
  set({{"RANK", "2"},
       {"WORLD_SIZE", "2"},
       {"LOCAL_RANK", "0"},
       {"MASTER_ADDR", "h"},
       {"MASTER_PORT", "29500"}});
  EXPECT_TRUE(launched());
  EXPECT_THAT(refusal(), HasSubstr("RANK='2' must be a whole number from 0 to 1"));
  set({{"RANK", "1"}, {"MASTER_PORT", "port"}});
  EXPECT_THAT(refusal(), HasSubstr("MASTER_PORT='port'"));
  set({{"MASTER_PORT", "65536"}});
  EXPECT_THAT(refusal(), HasSubstr("MASTER_PORT='65536'"));
}

TEST(ErrorRecord, RoundTrip) {
  ErrorRecord record{"RuntimeError: \"boom\"\n", "Traceback ...", 1795973885, 3};
  const std::optional<ErrorRecord> read = parse_error_record(to_json(record));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->message, record.message);
  EXPECT_EQ(read->callstack, record.callstack);
  EXPECT_EQ(read->timestamp, record.timestamp);
  EXPECT_EQ(read->error_code, 3);
}

TEST(ErrorRecord, ReadsWhatTorchelasticWrites) {
  const std::optional<ErrorRecord> structured = parse_error_record(
      R"({"message": {"message": "RuntimeError: boom", "extraInfo": {"py_callstack": "Traceback", "timestamp": "17"}}})");
  ASSERT_TRUE(structured);
  EXPECT_EQ(structured->message, "RuntimeError: boom");
  EXPECT_EQ(structured->callstack, "Traceback");
  EXPECT_EQ(structured->timestamp, 17);
  EXPECT_FALSE(structured->error_code);
  const std::optional<ErrorRecord> plain =
      parse_error_record(R"({"message": "text", "timestamp": 1795973885})");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->message, "text");
  EXPECT_EQ(plain->timestamp, 1795973885);
}

TEST(ErrorRecord, RefusesAnythingElse) {
  for (const char* text : {"", "{", "[]", "null", "{}", R"({"message": 3})", R"({"msg": "x"})", "\xff\xfe"}) {
    EXPECT_FALSE(parse_error_record(text)) << text;
  }
  EXPECT_TRUE(parse_error_record(R"({"message": {}})"));
}

TEST(ErrorRecord, KeepsMessagesThatAreNoUtf8) {
  const std::optional<ErrorRecord> read = parse_error_record(to_json({"bad \xff byte", "", 0, std::nullopt}));
  ASSERT_TRUE(read);
  EXPECT_THAT(read->message, HasSubstr("bad "));
}

class WholeFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "whole_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::filesystem::path folder_;
};

TEST_F(WholeFile, ReplacesAndLeavesNothingElse) {
  const std::string path = (folder_ / "f").string();
  EXPECT_FALSE(write_whole_file(path, "old"));
  EXPECT_FALSE(write_whole_file(path, "new"));
  EXPECT_EQ(read("f"), "new");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(WholeFile, SaysWhyItCannot) {
  EXPECT_EQ(write_whole_file((folder_ / "none" / "f").string(), "x"), std::errc::no_such_file_or_directory);
  std::filesystem::create_directory(folder_ / "taken");
  EXPECT_EQ(write_whole_file((folder_ / "taken").string(), "x"), std::errc::is_a_directory);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

}  // namespace
}  // namespace cpprun::worker
