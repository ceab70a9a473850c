#include "trainer/metrics.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace cpprun::trainer {
namespace {

class Metrics : public testing::Test {
 protected:
  Metrics() { std::filesystem::create_directories(folder_); }
  ~Metrics() override { std::filesystem::remove_all(folder_); }

  std::string content() const {
    std::ifstream in(file_);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }

  const std::string folder_ = testing::TempDir() + "/metrics_test." + std::to_string(getpid());
  const std::string file_ = folder_ + "/runs/metrics.jsonl";
};

TEST_F(Metrics, AreOneJsonObjectALine) {
  MetricsFile metrics(file_, 0, 0);
  metrics.append(StepRecord{1, 0, 0.5, 0.001, 32, 0.25});
  metrics.append(EvalRecord{1, 0, 101, 1.5, 0.75});
  EXPECT_EQ(content(),
            R"({"kind":"step","step":1,"epoch":0,"loss":0.5,"lr":0.001,"examples":32,"seconds":0.25})"
            "\n"
            R"({"kind":"eval","step":1,"epoch":0,"val_n":101,"loss":1.5,"acc":0.75})"
            "\n");
}

TEST_F(Metrics, StayJsonWhenTheLossIsNoNumber) {
  MetricsFile metrics(file_, 0, 0);
  metrics.append(StepRecord{1, 0, std::nan(""), 0.001, 32, 0.25});
  EXPECT_NE(content().find("\"loss\":null"), std::string::npos);
}

TEST_F(Metrics, OfAResumedRunGoOnAfterItsCheckpoint) {
  {
    MetricsFile before(file_, 0, 0);
    for (int step = 1; step <= 4; ++step) before.append(StepRecord{step, 0, 1, 1, 1, 1});
    before.append(EvalRecord{4, 0, 1, 1, 1});
    before.append(StepRecord{5, 1, 1, 1, 1, 1});
  }
  const std::string whole = content();
  const std::string first_epoch = whole.substr(0, whole.rfind("{\"kind\":\"step\",\"step\":5"));
  std::ofstream(file_, std::ios::app) << R"({"kind":"step","st)";  // as a kill leaves it

  EXPECT_EQ(kept_lines(content(), 5, 1), whole);
  EXPECT_EQ(kept_lines(content(), 4, 1), first_epoch);  // saved after the epoch
  EXPECT_EQ(kept_lines(content(), 4, 0),
            first_epoch.substr(0, first_epoch.rfind("{\"kind\":\"eval\"")));  // before
  { MetricsFile resumed(file_, 4, 1); }
  EXPECT_EQ(content(), first_epoch);
  { MetricsFile anew(file_, 0, 0); }
  EXPECT_EQ(content(), "");
}

TEST_F(Metrics, WithoutAPathGoNowhere) {
  MetricsFile metrics("", 0, 0);
  metrics.append(EvalRecord{});
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(Metrics, NameAFileThatCannotBeWritten) {
  std::ofstream(folder_ + "/file") << "x";
  try {
    MetricsFile metrics(folder_ + "/file/metrics.jsonl", 0, 0);
    ADD_FAILURE();
  } catch (const std::system_error& error) {
    EXPECT_NE(std::string(error.what()).find(folder_ + "/file"), std::string::npos);
  }
}

}  // namespace
}  // namespace cpprun::trainer
