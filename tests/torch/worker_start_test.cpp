// How a worker starts and ends: device choice, log levels, exit codes and error records.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/torch/worker_processes.hpp"
#include "worker_runtime/contract/error_record.hpp"
#include "worker_runtime/device.hpp"
#include "worker_runtime/log.hpp"
#include "worker_runtime/recorded_main.hpp"

namespace cpprun::worker::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TEST(DeviceChoice, IsTheCpuWhereThereIsNoGpuOrTheUserSaysSo) {
  EXPECT_EQ(decide_cuda_index({false, std::nullopt, 0}, 0), std::nullopt);
  EXPECT_EQ(decide_cuda_index({true, std::nullopt, 8}, 0), std::nullopt);
  for (const char* none : {"", "-1", "NoDevFiles", "8", "x,0"}) {
    EXPECT_EQ(decide_cuda_index({false, none, 8}, 0), std::nullopt) << none;
  }
}

TEST(DeviceChoice, IsTheLocalRanksGpu) {
  EXPECT_EQ(decide_cuda_index({false, std::nullopt, 8}, 7), 7);
  EXPECT_EQ(decide_cuda_index({false, "3,5", 8}, 1), 1) << "an index among the visible ones";
  EXPECT_EQ(decide_cuda_index({false, "GPU-ab,MIG-cd", 8}, 1), 1);
}

TEST(DeviceChoice, RefusesALocalRankWithoutAGpu) {
  EXPECT_THROW(decide_cuda_index({false, std::nullopt, 2}, 2), ConfigError);
  try {
    decide_cuda_index({false, "0,1,-1,2", 8}, 2);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(
        error.what(),
        "local rank 2 has no GPU of its own, as this machine shows 2 (CUDA_VISIBLE_DEVICES=0,1,-1,2): "
        "start at most that many workers a machine, or set USE_CPU=1");
  }
}

TEST(Log, KnowsTorchrunsLevels) {
  EXPECT_EQ(parse_log_level("debug"), LogLevel::Debug);
  EXPECT_EQ(parse_log_level("INFO"), LogLevel::Info);
  EXPECT_EQ(parse_log_level("Warn"), LogLevel::Warning);
  EXPECT_EQ(parse_log_level("WARNING"), LogLevel::Warning);
  EXPECT_EQ(parse_log_level("CRITICAL"), LogLevel::Error);
  EXPECT_EQ(parse_log_level("loud"), std::nullopt);
}

const WorkerRegistration kTalk("talk", [](const WorkerEnv&, const std::vector<std::string>&) {
  log_debug("d");
  log_info("i");
  log_warning("w");
  log_error("e");
  return 7;
});

TEST(Log, WritesTheLinesOfItsLevelWithTheRank) {
  Job job;
  job.worker = "talk";
  job.world_size = 2;
  job.variables = {{"LOGLEVEL", "WARNING"}};
  const RankResult result = run_job(job)[1];
  EXPECT_EQ(result.exit_code, 7) << "the body's own exit code";
  EXPECT_THAT(result.standard_error,
              testing::MatchesRegex("\\[.* WARNING rank 1\\] w\n\\[.* ERROR rank 1\\] e\n"));
}

const WorkerRegistration kThrow("throw",
                                [](const WorkerEnv&, const std::vector<std::string>& arguments) -> int {
                                  if (arguments.at(0) == "config") {
                                    throw ConfigError("learning_rate must be a number");
                                  }
                                  if (arguments.at(0) == "int") {
                                    throw 3;
                                  }
                                  throw std::runtime_error("boom\nsecond line");
                                });

struct Failed {
  RankResult result;
  std::optional<ErrorRecord> record;
};

Failed fail_with(const std::string& kind) {
  const TemporaryFolder folder;
  const std::filesystem::path file = folder.path() / "error.json";
  Job job;
  job.worker = "throw";
  job.arguments = {kind};
  job.variables = {{"TORCHELASTIC_ERROR_FILE", file.string()}};
  Failed failed{run_job(job)[0], std::nullopt};
  std::ifstream stream(file);
  std::stringstream text;
  text << stream.rdbuf();
  failed.record = parse_error_record(text.str());
  return failed;
}

TEST(RecordedMain, RecordsAnException) {
  const Failed failed = fail_with("runtime");
  EXPECT_EQ(failed.result.exit_code, 1);
  EXPECT_EQ(failed.result.standard_error, "worker_runtime_test (rank 0): std::runtime_error: boom\nsecond line\n");
  ASSERT_TRUE(failed.record);
  EXPECT_THAT(failed.record->message, StartsWith("std::runtime_error: boom"));
  EXPECT_GT(failed.record->timestamp, 1'700'000'000);
}

TEST(RecordedMain, EndsWith2WhereARestartCannotHelp) {
  const Failed failed = fail_with("config");
  EXPECT_EQ(failed.result.exit_code, 2);
  ASSERT_TRUE(failed.record);
  EXPECT_EQ(failed.record->message, "learning_rate must be a number");
}

TEST(RecordedMain, RecordsWhatIsNoException) {
  const Failed failed = fail_with("int");
  EXPECT_EQ(failed.result.exit_code, 1);
  ASSERT_TRUE(failed.record);
  EXPECT_THAT(failed.record->message, HasSubstr("no std::exception"));
}

TEST(RecordedMain, EndsWith2InAMalformedEnvironment) {
  Job job;
  job.worker = "talk";
  job.variables = {{"WORLD_SIZE", "many"}};
  const RankResult result = run_job(job)[0];
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.standard_error, HasSubstr("WORLD_SIZE"));
}

}  // namespace
}  // namespace cpprun::worker::test
