// The learning rate over the steps of a run, as a factor of the configured rate. Pure.
//
// Formulas, each as in torch.optim.lr_scheduler (2.15), with t the step from 0 and T the run's steps:
//   constant       1
//   linear_warmup  LinearLR:          s + (1 - s) * min(t, W) / W
//   cosine         the same for t < W; then CosineAnnealingLR over T - W steps:
//                  m + (1 - m) * (1 + cos(pi * (t - W) / (T - W))) / 2
//                  (Loshchilov & Hutter, SGDR, arXiv 1608.03983, without restarts)
//   one_cycle      OneCycleLR, anneal_strategy "cos", two phases, cycle_momentum off: from 1/d up to 1 over
//                  the steps 0 .. p*T - 1, then down to 1/(d*f) at step T - 1, both along half a cosine
//                  (Smith & Topin, Super-Convergence, arXiv 1708.07120)
#pragma once

#include <cstdint>

#include "trainer/train_config.hpp"

namespace cpprun::trainer {

// `step` counts updates from 0; `total_steps` is the number of updates of the whole run, at least 1. A step
// beyond the end has the last step's factor.
double learning_rate_factor(const ScheduleConfig& schedule, std::int64_t step, std::int64_t total_steps);

}  // namespace cpprun::trainer
