#include "trainer/schedule.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace cpprun::trainer {
namespace {

// From `from` at 0 to `to` at 1 along half a cosine.
double half_cosine(double from, double to, double share) {
  return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * share));
}

double warmup(double start_factor, std::int64_t step, std::int64_t warmup_steps) {
  if (step >= warmup_steps) return 1;
  return start_factor + (1 - start_factor) * static_cast<double>(step) / static_cast<double>(warmup_steps);
}

struct Factor {
  double step;
  double total;

  double operator()(const ConstantSchedule&) const { return 1; }

  double operator()(const LinearWarmupSchedule& s) const {
    return warmup(s.start_factor, static_cast<std::int64_t>(step), s.warmup_steps);
  }

  double operator()(const CosineSchedule& s) const {
    const double warm = static_cast<double>(s.warmup_steps);
    if (step < warm) return warmup(s.start_factor, static_cast<std::int64_t>(step), s.warmup_steps);
    return half_cosine(1, s.min_factor, (step - warm) / (total - warm));
  }

  double operator()(const OneCycleSchedule& s) const {
    const double peak = s.pct_start * total - 1;  // the step of the highest rate, as torch counts; may be < 0
    const double start = 1 / s.div_factor;
    if (step <= peak) return half_cosine(start, 1, peak > 0 ? step / peak : 1);
    return half_cosine(1, start / s.final_div_factor, (step - peak) / (total - 1 - peak));
  }
};

}  // namespace

double learning_rate_factor(const ScheduleConfig& schedule, std::int64_t step, std::int64_t total_steps) {
  const std::int64_t last = std::max<std::int64_t>(total_steps - 1, 0);
  return std::visit(Factor{static_cast<double>(std::min(step, last)), static_cast<double>(total_steps)},
                    schedule);
}

}  // namespace cpprun::trainer
