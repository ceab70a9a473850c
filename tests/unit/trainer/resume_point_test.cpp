#include "trainer/resume_point.hpp"

#include <gtest/gtest.h>

#include "worker_runtime/recorded_main.hpp"

namespace cpprun::trainer {
namespace {

constexpr ResumePoint kState{.identity = {.seed = 1,
                                          .shuffle_seed = 2,
                                          .batch_size = 16,
                                          .accumulation_steps = 3,
                                          .processes = 2,
                                          .train_examples = 128},
                             .epoch = 4,
                             .used = 7,
                             .batch = 5,
                             .step = 6,
                             .schedule_step = 8};

TEST(ResumePoint, SurvivesTheRoundTrip) {
  const ResumePoint back = parse_resume_point(to_json(kState));
  EXPECT_EQ(first_difference(back.identity, kState.identity), std::nullopt);
  EXPECT_EQ(back.epoch, 4);
  EXPECT_EQ(back.batch, 5);
  EXPECT_EQ(back.step, 6);
  EXPECT_EQ(back.used, 7);
  EXPECT_EQ(back.schedule_step, 8);
  EXPECT_EQ(back.identity.processes, 2);
}

TEST(ResumePoint, OfAnOlderCheckpointHasSeenOneNumberOfProcesses) {
  const ResumePoint point = parse_resume_point(
      R"({"epoch":1,"batch":2,"step":9,"identity":{"seed":0,"shuffle_seed":0,"batch_size":8,)"
      R"("accumulation_steps":1,"processes":3,"train_examples":96}})");
  EXPECT_EQ(point.used, 0);
  EXPECT_EQ(point.schedule_step, 9);
}

// 100 examples, batches of 8.
struct Change {
  const char* what;
  std::int64_t from, used, batch;  // processes, examples, batches of one process
  std::int64_t to, used_then;
};

TEST(ResumePoint, GoesOnBehindWhatAllProcessesHaveUsed) {
  const Change changes[] = {
      {"in the first batch", 3, 0, 0, 2, 0},
      {"in the middle", 3, 0, 2, 2, 48},
      {"to more", 2, 0, 3, 5, 48},
      {"a second time", 2, 48, 1, 4, 64},
      {"a second time, before a batch", 2, 48, 0, 4, 48},
      {"after the last batch, which was shorter", 3, 0, 5, 2, 100},
      {"after the last batch of the rest", 2, 48, 4, 3, 100},
  };
  for (const Change& change : changes) {
    ResumePoint saved{.identity = kState.identity, .epoch = 1, .used = change.used, .batch = change.batch};
    saved.identity.batch_size = 8;
    saved.identity.processes = change.from;
    saved.identity.train_examples = 100;
    const ResumePoint point = with_processes(saved, change.to);
    EXPECT_EQ(point.used, change.used_then) << change.what;
    EXPECT_EQ(point.batch, 0) << change.what;
    EXPECT_EQ(point.epoch, 1) << change.what;
    EXPECT_EQ(point.identity.processes, change.to) << change.what;
  }
}

TEST(ResumePoint, KeepsTheSchedulesShareOfTheRun) {
  ResumePoint saved{.identity = kState.identity, .step = 12, .schedule_step = 12};
  saved.identity.accumulation_steps = 1;
  saved.identity.processes = 4;
  saved.identity.train_examples = 384;  // 6 updates an epoch, and 12 of two processes
  const ResumePoint point = with_processes(saved, 2);
  EXPECT_EQ(point.step, 12);
  EXPECT_EQ(point.schedule_step, 24);
}

TEST(ResumePoint, StaysAsItIsWithTheSameNumberOfProcesses) {
  EXPECT_EQ(to_json(with_processes(kState, kState.identity.processes)), to_json(kState));
}

TEST(ResumePoint, CountsBatchesAndUpdatesOfOneProcess) {
  const RunIdentity run{.batch_size = 16, .accumulation_steps = 3, .processes = 2};
  EXPECT_EQ(batches(run, 128), 4);
  EXPECT_EQ(updates(run, 128), 2);
  EXPECT_EQ(batches(run, 131), 5) << "a shorter last batch";
  EXPECT_EQ(updates(run, 1), 0) << "fewer examples than processes";
}

TEST(ResumePoint, NamesWhatDiffers) {
  RunIdentity other = kState.identity;
  other.processes = 3;
  EXPECT_EQ(first_difference(kState.identity, other), std::nullopt);
  other.train_examples = 129;
  EXPECT_EQ(first_difference(kState.identity, other), "train_examples 128 instead of 129");
  other.seed = 9;
  EXPECT_EQ(first_difference(kState.identity, other), "seed 1 instead of 9");
}

TEST(ResumePoint, RefusesOtherTexts) {
  for (const char* text : {"", "{", "[]", "{}", R"({"epoch":0,"batch":0,"step":0})",
                           R"({"epoch":"x","batch":0,"step":0,"identity":{}})"}) {
    EXPECT_THROW(parse_resume_point(text), worker::ConfigError) << text;
  }
}

}  // namespace
}  // namespace cpprun::trainer
