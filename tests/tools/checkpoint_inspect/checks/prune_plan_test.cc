#include "tools/checkpoint_inspect/checks/prune_plan.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string AttemptOf(int64_t step) { return std::string(31, '0') + static_cast<char>('0' + step); }

StepInfo Step(int64_t step, StepState state = StepState::kCommitted) {
  return {.step = step,
          .state = state,
          .attempt = AttemptOf(step),
          .sequence = static_cast<uint64_t>(step),
          .stored_bytes = static_cast<uint64_t>(100 * step)};
}

// Of each step, the steps in whose files it has chunks.
PrunePlan Pruning(const RetentionOptions& options, const std::vector<StepInfo>& steps,
                  const std::map<int64_t, std::vector<int64_t>>& references = {}, const storage::Claims& leases = {}) {
  return PlanPruning(
      options, steps,
      [&](int64_t step) {
        std::vector<std::string> attempts;
        const auto found = references.find(step);
        if (found == references.end()) return attempts;
        for (const int64_t other : found->second) attempts.push_back(AttemptOf(other));
        return attempts;
      },
      leases);
}

std::vector<int64_t> Going(const PrunePlan& plan) {
  std::vector<int64_t> going;
  for (const PrunedStep& step : plan.steps) {
    if (!step.keep) going.push_back(step.step);
  }
  return going;
}

TEST(ParseKeepBest, TellsMetricModeAndCountApart) {
  const auto expect = [](const std::string& text, const std::string& metric, std::optional<BestMode> mode,
                         int64_t count) {
    const auto rule = ParseKeepBest(text);
    ASSERT_TRUE(rule.ok()) << rule.status();
    EXPECT_EQ(rule->metric, metric) << text;
    EXPECT_EQ(rule->mode, mode) << text;
    EXPECT_EQ(rule->count, count) << text;
  };
  expect("loss", "loss", std::nullopt, 1);
  expect("validation/loss:3", "validation/loss", std::nullopt, 3);
  expect("accuracy:highest", "accuracy", BestMode::kHighest, 1);
  expect("accuracy:highest:5", "accuracy", BestMode::kHighest, 5);
  expect("a:b:lowest:2", "a:b", BestMode::kLowest, 2);
  expect("top:5:1", "top:5", std::nullopt, 1);
}

TEST(ParseKeepBest, RefusesWhatNamesNoSteps) {
  for (const char* text : {"", ":3", ":highest", ":highest:2", "loss:0", "loss:-1"}) {
    const auto rule = ParseKeepBest(text);
    EXPECT_TRUE(absl::IsInvalidArgument(rule.status())) << text;
    EXPECT_THAT(rule.status().message(), HasSubstr("METRIC[:lowest|:highest][:COUNT]")) << text;
  }
}

TEST(PlanPruning, SaysWhatRetentionSays) {
  std::vector<StepInfo> steps = {Step(1), Step(2), Step(3), Step(4), Step(5)};
  steps[1].pinned = true;
  const PrunePlan plan = Pruning({.max_to_keep = 2}, steps, {}, {{3, "leased by worker 7"}});
  EXPECT_THAT(Going(plan), ElementsAre(1));
  EXPECT_EQ(plan.deletions(), 1u);
  ASSERT_EQ(plan.steps.size(), 5u);
  EXPECT_EQ(plan.steps[0].reason, "not among the latest 2");
  EXPECT_EQ(plan.steps[1].reason, "pinned");
  EXPECT_EQ(plan.steps[2].reason, "leased by worker 7");
  EXPECT_EQ(plan.steps[4].reason, "latest");
  EXPECT_EQ(plan.freed_bytes, 100u);
}

TEST(PlanPruning, LooksAtCommittedStepsOnly) {
  const PrunePlan plan = Pruning({.max_to_keep = 1}, {Step(1, StepState::kDamaged), Step(2, StepState::kDeleted),
                                                      Step(3, StepState::kFailed), Step(4), Step(5)});
  EXPECT_THAT(Going(plan), ElementsAre(4));
  EXPECT_EQ(plan.steps.size(), 2u);
}

TEST(PlanPruning, FreesNothingOfAFileInWhichAStepThatStaysHasChunks) {
  const PrunePlan plan = Pruning({.max_to_keep = 1}, {Step(1), Step(2), Step(3)}, {{2, {1}}, {3, {1}}});
  EXPECT_THAT(Going(plan), ElementsAre(1, 2));
  EXPECT_THAT(plan.steps[0].needed_by, ElementsAre(3));
  EXPECT_EQ(plan.steps[0].freed_bytes, 0u);
  EXPECT_THAT(plan.steps[1].needed_by, IsEmpty());
  EXPECT_EQ(plan.steps[1].freed_bytes, 200u);
  EXPECT_EQ(plan.freed_bytes, 200u);
}

TEST(PlanPruning, FreesAFileInWhichOnlyStepsThatGoHaveChunks) {
  const PrunePlan plan = Pruning({.max_to_keep = 1}, {Step(1), Step(2), Step(3)}, {{2, {1}}});
  EXPECT_EQ(plan.freed_bytes, 300u);
}

// Damaged and lost ones may be restored in part, or come back.
TEST(PlanPruning, KeepsTheFilesOfStepsThatAreNotCommittedEither) {
  const PrunePlan plan = Pruning({.max_to_keep = 1}, {Step(1), Step(2, StepState::kDamaged), Step(3)}, {{2, {1}}});
  EXPECT_THAT(plan.steps[0].needed_by, ElementsAre(2));
  EXPECT_EQ(plan.freed_bytes, 0u);
}

TEST(PlanPruning, FreesWhatOnlyStepsThatGoKeptOfAStepDeletedEarlier) {
  const std::vector<StepInfo> steps = {Step(1, StepState::kDeleted), Step(2, StepState::kDeleted),
                                       Step(3, StepState::kDeleted), Step(4), Step(5)};
  const PrunePlan plan = Pruning({.max_to_keep = 1}, steps, {{4, {1, 2}}, {5, {2}}});
  EXPECT_THAT(Going(plan), ElementsAre(4));
  EXPECT_EQ(plan.bygone_bytes, 100u) << "step 5 has chunks in those of 2, and those of 3 are gone";
  EXPECT_EQ(plan.freed_bytes, 500u);
}

TEST(PlanPruning, KeepsTheBestOfEachRule) {
  std::vector<StepInfo> steps = {Step(1), Step(2), Step(3), Step(4)};
  for (StepInfo& info : steps) info.metrics = {{"loss", 1.0 / static_cast<double>(info.step)}};
  const PrunePlan plan = Pruning({.keep_best = {{.metric = "loss", .mode = BestMode::kHighest, .count = 2}}}, steps);
  EXPECT_THAT(Going(plan), ElementsAre(3));
  EXPECT_EQ(plan.steps[0].reason, "among the best 2 of loss (1)");
}

}  // namespace
}  // namespace tidemark::inspect
