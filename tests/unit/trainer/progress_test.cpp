#include "trainer/progress.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace cpprun::trainer {
namespace {

constexpr ProgressSample kSample{.epoch = 4,
                                 .epochs = 30,
                                 .step = 120,
                                 .total_steps = 690,
                                 .loss = 0.12344,
                                 .learning_rate = 0.0021,
                                 .examples_per_second = 3214.4};

TEST(Progress, TextSaysWhereTheRunIs) {
  EXPECT_EQ(progress_text(kSample), "step 120/690  epoch 5/30  loss 0.1234  lr 0.0021  3214 ex/s");
}

TEST(Progress, LineHasABarAndNeverWraps) {
  EXPECT_EQ(progress_line(kSample, 200), "[#.........] " + progress_text(kSample));
  EXPECT_EQ(progress_line(kSample, 14), "[#.........] ");
  EXPECT_EQ(progress_line(kSample, 0), "");
}

TEST(Progress, BarIsFullAtTheEnd) {
  ProgressSample sample = kSample;
  sample.step = sample.total_steps;
  EXPECT_EQ(progress_line(sample, 13), "[##########]");
  sample.step = 0;
  EXPECT_EQ(progress_line(sample, 13), "[..........]");
}

TEST(Progress, ALossThatIsNoNumberIsShownAsSuch) {
  ProgressSample sample = kSample;
  sample.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_NE(progress_text(sample).find("loss nan"), std::string::npos);
}

}  // namespace
}  // namespace cpprun::trainer
