// The learning rate of each step: a linear warm-up, then half a cosine down to a floor.

#ifndef EXAMPLES_CHAR_LM_SCHEDULE_H_
#define EXAMPLES_CHAR_LM_SCHEDULE_H_

#include <cstdint>

namespace char_lm {

struct Schedule {
  double peak = 1e-3;
  double floor = 1e-4;
  int64_t warm_up_steps = 20;
  int64_t steps = 0;  // of the whole run

  // 0 <= step < steps. A function of the step alone, so a checkpoint need not hold it.
  double LearningRate(int64_t step) const;
};

}  // namespace char_lm

#endif  // EXAMPLES_CHAR_LM_SCHEDULE_H_
