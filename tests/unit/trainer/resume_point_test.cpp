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
                             .batch = 5,
                             .step = 6};

TEST(ResumePoint, SurvivesTheRoundTrip) {
  const ResumePoint back = parse_resume_point(to_json(kState));
  EXPECT_EQ(first_difference(back.identity, kState.identity), std::nullopt);
  EXPECT_EQ(back.epoch, 4);
  EXPECT_EQ(back.batch, 5);
  EXPECT_EQ(back.step, 6);
}

TEST(ResumePoint, NamesWhatDiffers) {
  RunIdentity other = kState.identity;
  other.processes = 3;
  EXPECT_EQ(first_difference(kState.identity, other), "processes 2 instead of 3");
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
