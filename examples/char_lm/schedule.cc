#include "examples/char_lm/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace char_lm {

double Schedule::LearningRate(int64_t step) const {
  if (step < warm_up_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warm_up_steps);
  const int64_t decay_steps = std::max<int64_t>(steps - warm_up_steps, 1);
  const double progress = static_cast<double>(step - warm_up_steps) / static_cast<double>(decay_steps);
  return floor + (peak - floor) * 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
}

}  // namespace char_lm
