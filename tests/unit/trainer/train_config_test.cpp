#include "trainer/train_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "worker_runtime/recorded_main.hpp"

namespace cpprun::trainer {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

TrainConfig parsed(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_config(text, "/configs", overrides);
}

std::string refusal(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    parsed(text, overrides);
  } catch (const worker::ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(TrainConfig, HasDefaultsForAllThatIsNotGiven) {
  const TrainConfig config = parsed("{}");
  EXPECT_EQ(config.epochs, 1);
  EXPECT_EQ(std::get<MlpConfig>(config.model).hidden, std::vector<int>{128});
  EXPECT_EQ(std::get<AdamWConfig>(config.optimizer).weight_decay, 1e-2);
  EXPECT_TRUE(std::holds_alternative<ConstantSchedule>(config.schedule));
}

TEST(TrainConfig, ReadsSectionsByTheirType) {
  const TrainConfig config = parsed(R"({
    "seed": 3, "batch_size": 16,
    "model": {"type": "cnn", "channels": [8, 16, 32], "dropout": 0.5},
    "data": {"type": "idx", "dir": "../data/digits", "shift": 1},
    "optimizer": {"type": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": true},
    "schedule": {"type": "one_cycle", "pct_start": 0.2},
    "checkpoint": {"dir": "out", "every_steps": 10, "resume": "never"}})");
  EXPECT_EQ(std::get<CnnConfig>(config.model).channels, (std::vector<int>{8, 16, 32}));
  EXPECT_EQ(std::get<IdxConfig>(config.data).dir, "/data/digits");  // relative to the config's folder
  EXPECT_TRUE(std::get<SgdConfig>(config.optimizer).nesterov);
  EXPECT_EQ(std::get<OneCycleSchedule>(config.schedule).pct_start, 0.2);
  EXPECT_EQ(config.checkpoint.dir, "out");
  EXPECT_EQ(config.checkpoint.resume, Resume::Never);
}

TEST(TrainConfig, TheOrderOfExamplesFollowsTheSeedUnlessItHasItsOwn) {
  EXPECT_EQ(parsed(R"({"seed": 5})").shuffle_seed, 5);
  EXPECT_EQ(parsed(R"({"seed": 5, "shuffle_seed": 9})").shuffle_seed, 9);
  EXPECT_EQ(parsed(R"({"seed": 5, "shuffle_seed": 0})").shuffle_seed, 0);
}

TEST(TrainConfig, OverridesComeLast) {
  const TrainConfig config = parsed(R"({"optimizer": {"lr": 0.5}})",
                                    {"optimizer.lr=0.25", "optimizer.lr=0.125", "metrics_file=a=b.jsonl",
                                     R"(model={"type":"mlp","hidden":[4]})", "checkpoint.dir=runs/7"});
  EXPECT_EQ(std::get<AdamWConfig>(config.optimizer).lr, 0.125);
  EXPECT_EQ(config.metrics_file, "a=b.jsonl");  // no JSON: a text as it stands
  EXPECT_EQ(std::get<MlpConfig>(config.model).hidden, std::vector<int>{4});
  EXPECT_EQ(config.checkpoint.dir, "runs/7");
}

TEST(TrainConfig, ASectionOfAnotherTypeBeginsAnew) {
  const std::string digits = R"({
    "model": {"type": "cnn", "channels": [8], "hidden": 64},
    "data": {"type": "idx", "dir": "d", "shift": 1},
    "optimizer": {"lr": 0.5, "beta1": 0.5}})";
  const TrainConfig config =
      parsed(digits, {"model.hidden=[4]", "model.type=mlp", "data.type=synthetic", "optimizer.type=sgd"});
  EXPECT_EQ(std::get<MlpConfig>(config.model).hidden, std::vector<int>{4});  // an override stays
  EXPECT_TRUE(std::holds_alternative<SyntheticConfig>(config.data));
  EXPECT_EQ(std::get<SgdConfig>(config.optimizer).lr, SgdConfig{}.lr);
}

TEST(TrainConfig, ASectionOfTheSameTypeKeepsItsKeys) {
  const TrainConfig config = parsed(R"({
    "model": {"type": "mlp", "hidden": [4]},
    "optimizer": {"lr": 0.5}})",
                                    {"model.type=mlp", "optimizer.type=adamw", "schedule.type=constant"});
  EXPECT_EQ(std::get<MlpConfig>(config.model).hidden, std::vector<int>{4});
  EXPECT_EQ(std::get<AdamWConfig>(config.optimizer).lr, 0.5);  // adamw is the type where none is named
}

TEST(TrainConfig, PrintsWhatItReadsBack) {
  const std::string text = to_json(parsed(
      R"({"seed": 1, "model": {"type": "cnn"}, "data": {"type": "idx", "dir": "d"},
          "optimizer": {"type": "adam", "lr": 0.1}, "schedule": {"type": "cosine", "warmup_steps": 3},
          "checkpoint": {"resume": "never"}})"));
  EXPECT_EQ(to_json(parsed(text)), text);
  EXPECT_THAT(text, HasSubstr("\"lr\": 0.1"));
  EXPECT_THAT(text, HasSubstr("\"dir\": \"/configs/d\""));
}

struct Refused {
  std::string text;
  std::vector<std::string> overrides;
  std::string sentence;
};

TEST(TrainConfig, RefusesWithOneSentenceThatNamesTheKey) {
  const std::vector<Refused> cases = {
      {R"({"batchsize": 1})", {}, R"(unknown key "batchsize"; the nearest known key is "batch_size")"},
      {R"({"optimizer": {"lrr": 1}})",
       {},
       R"(unknown key "optimizer.lrr"; the nearest known key is "optimizer.lr")"},
      {R"({"model": {"type": "mlp", "channels": [1]}})", {}, R"(unknown key "model.channels")"},
      {"{}", {"epoch=3"}, R"(--set epoch=3: unknown key "epoch"; the nearest known key is "epochs")"},
      {R"({"epochs": "3"})", {}, R"("epochs" must be a whole number of at least 1, not "3")"},
      {R"({"epochs": 1.5})", {}, R"("epochs" must be a whole number of at least 1, not 1.5)"},
      {R"({"epochs": 0})", {}, R"("epochs" must be a whole number of at least 1)"},
      {R"({"epochs": 3000000000})",
       {},
       R"("epochs" must be a whole number of at least 1 and at most 2147483647)"},
      {R"({"seed": -1})", {}, R"("seed" must be a whole number of at least 0)"},
      {R"({"optimizer": {"lr": "fast"}})",
       {},
       R"("optimizer.lr" must be a number of at least 0, not "fast")"},
      {R"({"optimizer": {"beta1": 1}})",
       {},
       R"("optimizer.beta1" must be a number of at least 0 and below 1, not 1)"},
      {R"({"optimizer": {"type": "lion"}})",
       {},
       R"("optimizer.type" must be one of "adamw", "adam", "sgd", not "lion")"},
      {R"({"optimizer": {"type": 3}})", {}, R"("optimizer.type" must be one of)"},
      {R"({"optimizer": []})", {}, R"("optimizer" must be a JSON object, not [])"},
      {R"({"model": {"hidden": [4, "x"]}})", {}, R"("model.hidden" must be a whole number of at least 1)"},
      {R"({"model": {"hidden": 4}})", {}, R"("model.hidden" must be a list of whole numbers, not 4)"},
      {R"({"metrics_file": 3})", {}, R"("metrics_file" must be a text, not 3)"},
      {R"({"checkpoint": {"resume": true}})",
       {},
       R"("checkpoint.resume" must be one of "auto", "never", not true)"},
      {R"({"optimizer": {"type": "sgd", "nesterov": 1}})",
       {},
       R"("optimizer.nesterov" must be true or false, not 1)"},
      {R"({"optimizer": {"type": "sgd", "nesterov": true}})", {}, R"("optimizer.nesterov" needs)"},
      {R"({"data": {"type": "idx"}})", {}, R"("data.dir" must name)"},
      {R"({"model": {"type": "cnn"}})", {}, R"("model.type" "cnn" needs images)"},
      {R"({"model": {"type": "cnn", "channels": []}})",
       {},
       R"("model.channels" must name at least one block)"},
      {"[]", {}, "the config must be a JSON object, not []"},
      {"{", {}, "line 1: this is not valid JSON: "},
      {"", {}, "line 1: this is not valid JSON: "},
      {"{\n  \"epochs\": 3,\n  \"seed\" 4\n}", {}, "line 3: this is not valid JSON: "},
      {"{\n  \"epochs\": 3\n", {}, "line 3: this is not valid JSON: "},
      {R"({"epochs": 3, "epochs": 4})", {}, R"(the key "epochs" stands there twice)"},
      {R"({"seed": 1, "model": {"hidden": [1], "hidden": [2]}})",
       {},
       R"(the key "model.hidden" stands there twice)"},
      {"{}",
       {R"(model={"hidden":[1],"hidden":[2]})"},
       R"(--set model={"hidden":[1],"hidden":[2]}: the key "hidden")"},
      {"{}", {"epochs=abc"}, R"(--set epochs=abc: "epochs" must be a whole number of at least 1, not "abc")"},
      {R"({"model": {"hidden": [1]}})",
       {"model=3"},
       R"(--set model=3: "model" must be a JSON object, not 3)"},
      {"{}", {R"(optimizer={"lr":"x"})"}, R"(--set optimizer={"lr":"x"}: "optimizer.lr" must be)"},
      {"{}", {"epochs.first=1"}, R"(--set epochs.first=1: "epochs" must be a whole number)"},
      {"{}", {"seed=1", "epochs=0", "epochs=-1"}, "--set epochs=-1: "},
      {R"({"data": {"type": "synthetic"}})",
       {"data.type=idx"},
       R"(--set data.type=idx: "data.dir" must name)"},
      {R"({"model": {"type": "cnn"}})",
       {"data.type=synthetic"},
       R"(--set data.type=synthetic: "model.type" "cnn")"},
      {"{}", {"model.type=cnn"}, R"(--set model.type=cnn: "model.type" "cnn" needs images)"},
      {R"({"model": {"type": "cnn"}})",
       {"model.type=rnn"},
       R"(--set model.type=rnn: "model.type" must be one of)"},
      {"{}", {"epochs"}, "--set epochs: write key=value"},
      {"{}", {"=3"}, "--set =3: write key=value"},
      {R"({"epochs": 3})", {"epochs.first=1"}, "--set epochs.first=1: nothing can be set within the value 3"},
  };
  for (const Refused& expected : cases) {
    EXPECT_THAT(refusal(expected.text, expected.overrides), HasSubstr(expected.sentence)) << expected.text;
  }
}

TEST(TrainConfig, BlamesTheFileForItsOwnFaultsOnly) {
  const std::string file = testing::TempDir() + "/blame.json";
  std::ofstream(file) << R"({"epochs": 0})";
  const auto blame = [&file](const std::vector<std::string>& overrides) -> std::string {
    try {
      load_config(file, overrides);
    } catch (const worker::ConfigError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_THAT(blame({"seed=1"}), StartsWith(file + ": \"epochs\" must be"));
  EXPECT_THAT(blame({"epochs=abc"}), StartsWith("--set epochs=abc: \"epochs\" must be"));
  EXPECT_THAT(blame({"epochs"}), StartsWith("--set epochs: write key=value"));
  EXPECT_EQ(blame({"epochs=1"}), "accepted");
}

TEST(TrainConfig, NamesAFileThatCannotBeRead) {
  const std::string folder = testing::TempDir();
  for (const std::string& file : {folder + "/there-is-no-such.json", folder}) {
    try {
      load_config(file, {});
      ADD_FAILURE() << file << " was accepted";
    } catch (const worker::ConfigError& error) {
      EXPECT_THAT(error.what(), HasSubstr("cannot read the config file " + file));
    }
  }
}

}  // namespace
}  // namespace cpprun::trainer
