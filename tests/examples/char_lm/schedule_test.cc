#include "examples/char_lm/schedule.h"

#include <gtest/gtest.h>

namespace char_lm {
namespace {

constexpr Schedule kSchedule = {.peak = 1.0, .floor = 0.1, .warm_up_steps = 10, .steps = 110};

TEST(Schedule, WarmsUpLinearlyToThePeak) {
  EXPECT_DOUBLE_EQ(kSchedule.LearningRate(0), 0.1);
  EXPECT_DOUBLE_EQ(kSchedule.LearningRate(4), 0.5);
  EXPECT_DOUBLE_EQ(kSchedule.LearningRate(9), 1.0);
}

TEST(Schedule, FallsAlongACosineToTheFloor) {
  EXPECT_DOUBLE_EQ(kSchedule.LearningRate(10), 1.0);
  EXPECT_DOUBLE_EQ(kSchedule.LearningRate(60), 0.55);
  EXPECT_NEAR(kSchedule.LearningRate(109), 0.1, 1e-3);
  for (int64_t step = 11; step < 110; ++step) {
    EXPECT_LT(kSchedule.LearningRate(step), kSchedule.LearningRate(step - 1)) << "step " << step;
  }
}

TEST(Schedule, StaysWarmingUpInARunShorterThanTheWarmUp) {
  const Schedule schedule = {.peak = 1.0, .floor = 0.1, .warm_up_steps = 10, .steps = 5};
  EXPECT_DOUBLE_EQ(schedule.LearningRate(4), 0.5);
}

}  // namespace
}  // namespace char_lm
