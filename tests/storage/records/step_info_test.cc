#include "tidemark/step_info.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark {
namespace {

TEST(StepStateName, NamesEveryState) {
  EXPECT_EQ(StepStateName(StepState::kCommitted), "committed");
  EXPECT_EQ(StepStateName(StepState::kDamaged), "damaged");
  EXPECT_EQ(StepStateName(StepState::kLost), "lost");
  EXPECT_EQ(StepStateName(StepState::kFailed), "failed");
  EXPECT_EQ(StepStateName(StepState::kDeleted), "deleted");
  EXPECT_EQ(StepStateName(StepState::kUnsaved), "unsaved");
}

TEST(OutcomeName, NamesEveryOutcome) {
  EXPECT_EQ(OutcomeName(Evaluation::Outcome::kDone), "done");
  EXPECT_EQ(OutcomeName(Evaluation::Outcome::kSkipped), "skipped");
  EXPECT_EQ(OutcomeName(Evaluation::Outcome::kFailed), "failed");
}

TEST(StepInfo, IsUnhealthyInTheWordsOfTheFirstEvaluationThatSaysSo) {
  StepInfo info;
  EXPECT_EQ(info.unhealthy(), "");
  info.evaluations = {{.evaluator = "validation"}};
  EXPECT_EQ(info.unhealthy(), "");
  info.evaluations.push_back({.evaluator = "watch", .unhealthy = "loss spike"});
  info.evaluations.push_back({.evaluator = "z", .unhealthy = "NaN"});
  EXPECT_EQ(info.unhealthy(), "watch: loss spike");
}

TEST(StepInfo, IsEvaluatedByWhoHasARowWhateverItSays) {
  StepInfo info;
  EXPECT_FALSE(info.evaluated_by("validation"));
  info.evaluations = {{.evaluator = "validation", .outcome = Evaluation::Outcome::kSkipped}};
  EXPECT_TRUE(info.evaluated_by("validation"));
  EXPECT_FALSE(info.evaluated_by("valid"));
}

}  // namespace
}  // namespace tidemark
