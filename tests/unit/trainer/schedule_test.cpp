// The expected factors were printed by torch 2.15's own schedulers with a learning rate of 1.
#include "trainer/schedule.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace cpprun::trainer {
namespace {

struct Case {
  const char* name;
  ScheduleConfig schedule;
  std::int64_t total_steps;
  std::vector<double> factors;
};

class Schedule : public testing::TestWithParam<Case> {};

TEST_P(Schedule, HasTorchsFactors) {
  const Case& expected = GetParam();
  for (std::size_t step = 0; step < expected.factors.size(); ++step) {
    EXPECT_NEAR(
        learning_rate_factor(expected.schedule, static_cast<std::int64_t>(step), expected.total_steps),
        expected.factors[step], 1e-12)
        << expected.name << " at step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Torch, Schedule,
    testing::Values(
        Case{"constant", ConstantSchedule{}, 3, {1, 1, 1}},
        // LinearLR(start_factor=0.25, total_iters=4)
        Case{"linear_warmup", LinearWarmupSchedule{4, 0.25}, 7, {0.25, 0.4375, 0.625, 0.8125, 1, 1, 1}},
        // CosineAnnealingLR(T_max=6, eta_min=0.1)
        Case{"cosine",
             CosineSchedule{0, 0.5, 0.1},
             6,
             {1, 0.9397114317029974, 0.775, 0.55, 0.3250000000000002, 0.1602885682970026}},
        // SequentialLR([LinearLR(start_factor=0.5, total_iters=2), CosineAnnealingLR(T_max=6, eta_min=0.1)])
        Case{"cosine with warm-up",
             CosineSchedule{2, 0.5, 0.1},
             8,
             {0.5, 0.75, 1, 0.9397114317029974, 0.775, 0.55, 0.3250000000000002, 0.1602885682970026}},
        // OneCycleLR(total_steps=10, pct_start=0.3, cycle_momentum=False)
        Case{"one_cycle",
             OneCycleSchedule{0.3, 25, 1e4},
             10,
             {0.040000000000000036, 0.52, 1, 0.9504846320134737, 0.8117456539497631, 0.6112620219362893,
              0.38874197806371075, 0.18825834605023697, 0.049519367986526286, 4e-06}},
        // OneCycleLR(total_steps=7, pct_start=0.5, div_factor=10, final_div_factor=100, cycle_momentum=False)
        Case{"one_cycle, peak between steps",
             OneCycleSchedule{0.5, 10, 100},
             7,
             {0.09999999999999998, 0.41094235253127365, 0.9140576474687263, 0.9505339495172583,
              0.611649206511179, 0.18906684397156262, 0.001}}));

TEST(Schedule, StaysFiniteInRunsTooShortForIt) {
  for (const ScheduleConfig& schedule :
       {ScheduleConfig{LinearWarmupSchedule{100, 0.5}}, ScheduleConfig{CosineSchedule{1, 0.5, 0}},
        ScheduleConfig{CosineSchedule{100, 0.5, 0}}, ScheduleConfig{OneCycleSchedule{0, 25, 1e4}},
        ScheduleConfig{OneCycleSchedule{1, 25, 1e4}}, ScheduleConfig{OneCycleSchedule{0.3, 25, 1e4}}}) {
    for (std::int64_t total = 1; total <= 4; ++total) {
      for (std::int64_t step = 0; step <= total; ++step) {
        const double factor = learning_rate_factor(schedule, step, total);
        EXPECT_GE(factor, 0) << schedule.index() << ' ' << step << '/' << total;
        EXPECT_LE(factor, 1) << schedule.index() << ' ' << step << '/' << total;
      }
    }
  }
}

}  // namespace
}  // namespace cpprun::trainer
