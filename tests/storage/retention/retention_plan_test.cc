#include "storage/retention/retention_plan.h"

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/non_finite.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::ElementsAre;
using testing::IsEmpty;

// A committed step with a sequence of the same number, saved as many minutes after 1970.
StepInfo Step(int64_t step, Metrics metrics = {}) {
  StepInfo info;
  info.step = step;
  info.sequence = static_cast<uint64_t>(step);
  info.created = absl::UnixEpoch() + absl::Minutes(step);
  info.metrics = std::move(metrics);
  return info;
}

std::vector<StepInfo> Steps(std::initializer_list<int64_t> numbers) {
  std::vector<StepInfo> steps;
  for (const int64_t number : numbers) steps.push_back(Step(number));
  return steps;
}

CommittedSteps Shared(const std::vector<StepInfo>& steps) {
  CommittedSteps shared;
  for (const StepInfo& info : steps) shared.push_back(std::make_shared<const StepInfo>(info));
  return shared;
}

// "step: reason", with a "-" before the step if it goes.
std::vector<std::string> Plan(RetentionOptions options, const std::vector<StepInfo>& steps, const Claims& claims = {},
                              const std::set<int64_t>& unjudged = {}) {
  EXPECT_THAT(ResolveBestModes({}, options), IsOk());
  std::vector<std::string> lines;
  for (const RetentionDecision& decision : PlanRetention(options, Shared(steps), claims, unjudged)) {
    lines.push_back(absl::StrCat(decision.keep ? "" : "-", decision.step, ": ", decision.reason));
  }
  return lines;
}

TEST(RetentionPlan, KeepsEverythingWithoutARule) {
  std::vector<StepInfo> steps = Steps({1, 2, 3});
  steps[0].pinned = true;
  EXPECT_THAT(Plan({}, steps), ElementsAre("1: pinned", "2: no rule is set", "3: latest"));
  EXPECT_THAT(Plan({.keep_unevaluated_until = {{.evaluator = "validation"}}}, Steps({1, 2})),
              ElementsAre("1: evaluator validation has not reported yet",
                          "2: latest; evaluator validation has not reported yet"));
  EXPECT_THAT(Plan({}, {}), IsEmpty());
}

TEST(RetentionPlan, KeepsAStepOnWhichAFunctionOfTheTrainerThrows) {
  const auto score = [](const Metrics& metrics) { return metrics.at("loss"); };
  const std::vector<StepInfo> steps = {Step(1), Step(2, {{"loss", 2}}), Step(3, {{"loss", 1}}), Step(4, {{"loss", 9}})};
  EXPECT_THAT(Plan({.keep_best = {{.score = score}}}, steps),
              ElementsAre("1: KeepBest::score threw an exception", "-2: not among the best of score",
                          "3: best score (1)", "4: latest"));
  const auto keep = [](const StepInfo& info) -> bool {
    if (info.step == 1) throw std::runtime_error("out of luck");
    return info.step == 3;
  };
  EXPECT_THAT(Plan({.keep = keep}, steps),
              ElementsAre("1: RetentionOptions::keep threw an exception", "-2: not kept by the predicate",
                          "3: kept by the predicate", "4: latest"));
}

TEST(RetentionPlan, ScoresStepsByAFunctionOfTheirMetrics) {
  const auto sum = [](const Metrics& metrics) {
    return metrics.contains("a") && metrics.contains("b") ? metrics.at("a") + metrics.at("b") : std::nan("");
  };
  const std::vector<StepInfo> steps = {Step(1, {{"a", 1}, {"b", 5}}), Step(2, {{"a", 2}, {"b", 2}}),
                                       Step(3, {{"a", 0}}), Step(4)};
  EXPECT_THAT(Plan({.keep_best = {{.score = sum}}}, steps),
              ElementsAre("-1: not among the best of score", "2: best score (4)", "-3: not among the best of score",
                          "4: latest"));
  EXPECT_THAT(Plan({.keep_best = {{.metric = "cost", .mode = BestMode::kHighest, .count = 2, .score = sum}}}, steps)[0],
              "1: among the best 2 of cost (6)");
}

TEST(RetentionPlan, KeepsStepsWithoutTheMetricIfToldTo) {
  const std::vector<StepInfo> steps = {Step(1, {{"loss", 1}}), Step(2), Step(3, {{"loss", std::nan("")}}),
                                       Step(4, {{"loss", 0.5}}), Step(5)};
  EXPECT_THAT(Plan({.keep_best = {{.metric = "loss", .keep_without_metric = true}}}, steps),
              ElementsAre("-1: not among the best of loss", "2: without loss", "3: without loss", "4: best loss (0.5)",
                          "5: latest; without loss"));
}

// By the times of the steps alone: no clock says how old they are.
TEST(RetentionPlan, KeepsWhatWasSavedShortlyBeforeTheLastCommit) {
  EXPECT_THAT(Plan({.keep_for = absl::Minutes(10)}, Steps({1, 89, 90, 100})),
              ElementsAre("-1: not saved within 10m", "-89: not saved within 10m", "90: saved within 10m",
                          "100: latest; saved within 10m"));
  // After a rollback the last commit is of a lower step; one that a clock set back makes later than it stays.
  std::vector<StepInfo> steps = Steps({1, 2, 50});
  steps[1].sequence = 60;
  EXPECT_THAT(
      Plan({.keep_for = absl::Seconds(30)}, steps),
      ElementsAre("-1: not saved within 30s", "2: committed last; saved within 30s", "50: latest; saved within 30s"));
}

TEST(RetentionPlan, KeepsTheLatest) {
  EXPECT_THAT(Plan({.max_to_keep = 2}, Steps({1, 2, 3})),
              ElementsAre("-1: not among the latest 2", "2: among the latest 2", "3: latest"));
  EXPECT_THAT(Plan({.max_to_keep = 9}, Steps({1, 2})), ElementsAre("1: among the latest 9", "2: latest"));
}

TEST(RetentionPlan, KeepsTheLatestWhateverTheRules) {
  EXPECT_THAT(Plan({.keep_every_steps = 10}, Steps({10, 11, 12})),
              ElementsAre("10: divisible by 10", "-11: not divisible by 10", "12: latest"));
}

TEST(RetentionPlan, KeepsTheOneThatWasCommittedLastAfterARollback) {
  std::vector<StepInfo> steps = Steps({1, 2, 3});
  steps[0].sequence = 9;
  EXPECT_THAT(Plan({.max_to_keep = 1}, steps),
              ElementsAre("1: among the latest 1", "-2: not among the latest 1", "3: latest"));
  EXPECT_THAT(Plan({.keep_every_steps = 2}, steps), ElementsAre("1: committed last", "2: divisible by 2", "3: latest"));
}

TEST(RetentionPlan, CountsTheLatestByTheOrderOfTheirCommits) {
  // Rolled back from 50 to 20, and on from there.
  std::vector<StepInfo> steps = Steps({20, 30, 40, 50});
  steps[1].sequence = 60;
  EXPECT_THAT(Plan({.max_to_keep = 2}, steps), ElementsAre("-20: not among the latest 2", "30: among the latest 2",
                                                           "-40: not among the latest 2", "50: latest"));
}

TEST(RetentionPlan, KeepsTheLatestHealthyStep) {
  std::vector<StepInfo> steps = Steps({1, 2, 3, 4});
  steps[2].evaluations = {{.evaluator = "health", .unhealthy = "1 NaN"}};
  steps[3].evaluations = {{.evaluator = "health", .unhealthy = "7 NaN"}};
  EXPECT_THAT(Plan({.max_to_keep = 1}, steps),
              ElementsAre("-1: not among the latest 1", "2: the latest healthy one",
                          "-3: not among the latest 1; unhealthy: 1 NaN", "4: latest"));
}

TEST(RetentionPlan, KeepsWhatIsKnownToBeHealthyUntilTheNextIs) {
  const RetentionOptions options{.max_to_keep = 1, .keep_unevaluated_until = {{.evaluator = "health"}}};
  std::vector<StepInfo> steps = Steps({1, 2, 3});
  for (size_t i = 0; i < 2; ++i) steps[i].evaluations = {{.evaluator = "health"}};
  EXPECT_THAT(Plan(options, steps),
              ElementsAre("-1: not among the latest 1", "2: the latest that evaluators found healthy",
                          "3: latest; evaluator health has not reported yet"));
}

// What an evaluator may yet call unhealthy takes the place of nothing, and is not given up for that either.
TEST(RetentionPlan, KeepsWhatIsHealthyAsFarAsIsKnownAndWhatIsKnownToBe) {
  std::vector<StepInfo> steps = Steps({1, 2, 3, 4, 5});
  steps[4].evaluations = {{.evaluator = "health", .unhealthy = "1 NaN"}};
  EXPECT_THAT(Plan({.max_to_keep = 1}, steps, {}, {3, 4}),
              ElementsAre("-1: not among the latest 1", "2: the latest that evaluators found healthy",
                          "3: the next step for an evaluator to judge", "4: the latest healthy one", "5: latest"));
  steps[4].evaluations.clear();
  EXPECT_THAT(Plan({.max_to_keep = 1}, steps, {}, {5}),
              ElementsAre("-1: not among the latest 1", "-2: not among the latest 1", "-3: not among the latest 1",
                          "4: the latest that evaluators found healthy", "5: latest"));
}

TEST(RetentionPlan, ReadsItsNotesOfEvaluatorsThatHaveYetToReadAStep) {
  StepInfo info = Step(1);
  info.kept = "latest; " + YetToRead("evaluator 'a'") + "; " + YetToRead("evaluator 'b'") + "; leased by worker 5";
  EXPECT_THAT(NotedHolds(info), ElementsAre("evaluator 'a' has not read it yet", "evaluator 'b' has not read it yet"));
  info.evaluations = {{.evaluator = "a"}};
  EXPECT_THAT(NotedHolds(info), ElementsAre("evaluator 'b' has not read it yet"));
  EXPECT_FALSE(IsNotedNextToJudge(info));
  info.kept = "the latest healthy one; the next step for an evaluator to judge";
  EXPECT_THAT(NotedHolds(info), testing::IsEmpty());
  EXPECT_TRUE(IsNotedNextToJudge(info));
  for (const char* kept : {"", "evaluator '", "evaluator a has not reported yet", "; ;", "has not read it yet"}) {
    info.kept = kept;
    EXPECT_THAT(NotedHolds(info), testing::IsEmpty()) << kept;
  }
}

TEST(RetentionPlan, TakesForUnjudgedWhatLacksARowOfAnEvaluator) {
  std::vector<StepInfo> steps = Steps({1, 2, 3});
  CommittedSteps committed;
  const auto share = [&] {
    committed.clear();
    for (const StepInfo& info : steps) committed.push_back(std::make_shared<const StepInfo>(info));
    return UnjudgedByRecord(committed);
  };
  EXPECT_THAT(share(), testing::IsEmpty());
  steps[0].evaluations = {{.evaluator = "a"}, {.evaluator = "b"}};
  steps[1].evaluations = {{.evaluator = "a", .outcome = Evaluation::Outcome::kSkipped}};
  EXPECT_THAT(share(), ElementsAre(2, 3));
  steps[1].evaluations.push_back({.evaluator = "b", .unhealthy = "NaN"});
  EXPECT_THAT(share(), ElementsAre(3));
}

TEST(RetentionPlan, NeitherCountsNorDecidesAboutStepsThatAreNotCommitted) {
  std::vector<StepInfo> steps = Steps({1, 2, 3, 4, 5, 6, 7});
  steps[1].state = StepState::kDamaged;
  steps[2].state = StepState::kLost;
  steps[3].state = StepState::kFailed;
  steps[5].state = StepState::kDeleted;
  steps[6].state = StepState::kUnsaved;
  EXPECT_THAT(Plan({.max_to_keep = 2}, steps), ElementsAre("1: among the latest 2", "5: latest"));
}

TEST(RetentionPlan, KeepsTheBestOfEachMetric) {
  const std::vector<StepInfo> steps = {Step(1, {{"loss", 3}, {"validation/accuracy", 0.5}}),
                                       Step(2, {{"loss", 1.25}, {"validation/accuracy", 0.25}}),
                                       Step(3, {{"loss", 2}, {"validation/accuracy", 0.25}}), Step(4, {{"loss", 4}})};
  EXPECT_THAT(Plan({.keep_best = {{.metric = "loss"},
                                  {.metric = "validation/accuracy", .mode = BestMode::kHighest, .count = 1}}},
                   steps),
              ElementsAre("1: best validation/accuracy (0.5)", "2: best loss (1.25)",
                          "-3: not among the best of loss or the best of validation/accuracy", "4: latest"));
  EXPECT_THAT(Plan({.keep_best = {{.metric = "loss", .count = 2}}}, steps),
              ElementsAre("-1: not among the best 2 of loss", "2: among the best 2 of loss (1.25)",
                          "3: among the best 2 of loss (2)", "4: latest"));
}

TEST(RetentionPlan, TakesTheLaterOfEqualValues) {
  const std::vector<StepInfo> steps = {Step(1, {{"loss", 1}}), Step(2, {{"loss", 1}}), Step(3, {{"loss", 1}}), Step(4)};
  for (const BestMode mode : {BestMode::kLowest, BestMode::kHighest}) {
    EXPECT_THAT(Plan({.keep_best = {{.metric = "loss", .mode = mode}}}, steps),
                ElementsAre("-1: not among the best of loss", "-2: not among the best of loss", "3: best loss (1)",
                            "4: latest"));
  }
}

TEST(RetentionPlan, TakesNoValueForTheBestThatIsNotFinite) {
  const std::vector<StepInfo> steps = {Step(1, {{"loss", kNan}}), Step(2, {{"loss", -kInfinity}}),
                                       Step(3, {{"loss", 7}}), Step(4, {{"loss", kInfinity}}), Step(5)};
  for (const BestMode mode : {BestMode::kLowest, BestMode::kHighest}) {
    EXPECT_THAT(Plan({.keep_best = {{.metric = "loss", .mode = mode, .count = 3}}}, steps),
                ElementsAre("-1: not among the best 3 of loss", "-2: not among the best 3 of loss",
                            "3: among the best 3 of loss (7)", "-4: not among the best 3 of loss", "5: latest"));
  }
}

TEST(RetentionPlan, TakesNoUnhealthyStepForTheBest) {
  std::vector<StepInfo> steps = {Step(1, {{"loss", 1}}), Step(2, {{"loss", 2}}), Step(3)};
  steps[0].evaluations = {{.evaluator = "a"}, {.evaluator = "health", .unhealthy = "weight has 3 NaN"}};
  EXPECT_THAT(
      Plan({.keep_best = {{.metric = "loss"}}}, steps),
      ElementsAre("-1: not among the best of loss; unhealthy: weight has 3 NaN", "2: best loss (2)", "3: latest"));
}

TEST(RetentionPlan, KeepsTheFirstOfEveryInterval) {
  EXPECT_THAT(Plan({.keep_interval = absl::Minutes(10)}, Steps({1, 5, 10, 11, 20, 22, 23})),
              ElementsAre("1: first in 10m", "-5: not the first in 10m", "-10: not the first in 10m",
                          "11: first in 10m", "-20: not the first in 10m", "22: first in 10m", "23: latest"));
}

TEST(RetentionPlan, LosesNothingToAClockThatJumpsBack) {
  std::vector<StepInfo> steps = Steps({10, 20, 25, 30, 35, 36});
  steps[3].created -= absl::Hours(1);  // and stays behind from there on
  steps[4].created -= absl::Hours(1);
  EXPECT_THAT(Plan({.keep_interval = absl::Minutes(10)}, steps),
              ElementsAre("10: first in 10m", "20: first in 10m", "-25: not the first in 10m", "30: first in 10m",
                          "-35: not the first in 10m", "36: latest; first in 10m"));
}

TEST(RetentionPlan, SurvivesTheEndsOfTime) {
  std::vector<StepInfo> steps = Steps({1, 2, 3, 4});
  steps[0].created = absl::InfinitePast();
  steps[1].created = absl::InfiniteFuture();
  EXPECT_THAT(Plan({.keep_interval = absl::Minutes(10)}, steps),
              ElementsAre("1: first in 10m", "2: first in 10m", "3: first in 10m", "4: latest"));
}

TEST(RetentionPlan, AsksThePredicateAboutCommittedStepsOnly) {
  std::vector<StepInfo> steps = Steps({1, 2, 3, 4});
  steps[0].state = StepState::kDamaged;
  std::vector<int64_t> asked;
  const auto keep = [&](const StepInfo& info) {
    asked.push_back(info.step);
    return info.step == 3;
  };
  EXPECT_THAT(Plan({.keep = keep}, steps),
              ElementsAre("-2: not kept by the predicate", "3: kept by the predicate", "4: latest"));
  EXPECT_THAT(asked, ElementsAre(2, 3, 4));
}

TEST(RetentionPlan, DelaysUntilTheEvaluatorHasSaidSomething) {
  std::vector<StepInfo> steps = Steps({1, 2, 4, 6, 7});
  steps[1].evaluations = {{.evaluator = "validation", .outcome = Evaluation::Outcome::kSkipped}};
  steps[2].evaluations = {{.evaluator = "another"}};
  EXPECT_THAT(
      Plan({.max_to_keep = 1, .keep_unevaluated_until = {{.evaluator = "validation", .every_steps = 2}}}, steps),
      ElementsAre("-1: not among the latest 1", "-2: not among the latest 1",
                  "4: evaluator validation has not reported yet", "6: evaluator validation has not reported yet",
                  "7: latest"));
}

TEST(RetentionPlan, KeepsWhatAnEvaluatorFailedOn) {
  const RetentionOptions options{.keep_best = {{.metric = "v/x", .mode = BestMode::kLowest}},
                                 .keep_unevaluated_until = {{.evaluator = "v"}}};
  std::vector<StepInfo> steps = Steps({1, 2, 3});
  for (size_t i = 0; i < 2; ++i) {
    steps[i].evaluations = {{.evaluator = "v", .outcome = Evaluation::Outcome::kFailed, .reason = "no memory"}};
  }
  steps[2].evaluations = {{.evaluator = "v"}};
  const std::string failed = "evaluator v failed and has not reported a result yet";
  EXPECT_THAT(Plan(options, steps), ElementsAre("1: " + failed, "2: " + failed, "3: latest"));
  steps[0].evaluations[0].outcome = Evaluation::Outcome::kDone;
  EXPECT_THAT(Plan(options, steps), ElementsAre("-1: not among the best of v/x", "2: " + failed, "3: latest"));
}

TEST(RetentionPlan, KeepsWhatIsPinnedOrClaimed) {
  std::vector<StepInfo> steps = Steps({1, 2, 3, 4, 5});
  steps[0].pinned = true;
  steps[1].pinned = true;
  steps[1].pin_note = "for the paper";
  const Claims claims = {{3, "leased by a"}, {3, "leased by b"}, {99, "leased by c"}};
  EXPECT_THAT(Plan({.max_to_keep = 1}, steps, claims),
              ElementsAre("1: pinned", "2: pinned (for the paper)", "3: leased by a; leased by b",
                          "-4: not among the latest 1", "5: latest"));
}

TEST(RetentionPlan, NamesTheTagsOfAStepThatIsPinned) {
  std::vector<StepInfo> steps = Steps({1, 2, 3});
  for (size_t i = 0; i < 2; ++i) {
    steps[i].pinned = true;
    steps[i].tags = {"paper", "v1"};
  }
  steps[1].pin_note = "figure 3";
  EXPECT_THAT(Plan({.max_to_keep = 1}, steps),
              ElementsAre("1: tagged paper, v1", "2: tagged paper, v1 (figure 3)", "3: latest"));
}

TEST(RetentionPlan, NamesAllThatSpeaksForAStepAndAllThatDoesNot) {
  std::vector<StepInfo> steps = {Step(999, {{"loss", 2}}), Step(1000, {{"loss", 1}})};
  steps[1].pinned = true;
  const RetentionOptions options = {.max_to_keep = 1,
                                    .keep_best = {{.metric = "loss"}},
                                    .keep_every_steps = 1000,
                                    .keep_interval = absl::Hours(24),
                                    .keep = [](const StepInfo& info) { return info.step == 1000; },
                                    .keep_unevaluated_until = {{.evaluator = "x", .every_steps = 1000}}};
  steps.insert(steps.begin(), {Step(997), Step(998)});
  EXPECT_THAT(Plan(options, steps), ElementsAre("997: first in 24h",
                                                "-998: not among the latest 1, the best of loss, divisible by 1000, "
                                                "the first in 24h, or kept by the predicate",
                                                "999: the latest that evaluators found healthy",
                                                "1000: latest; best loss (1); divisible by 1000; kept by the "
                                                "predicate; evaluator x has not reported yet; pinned"));
}

RetentionOptions RandomRulesOfTwoMetrics(std::mt19937& random) {
  const auto draw = [&](int64_t max) { return std::uniform_int_distribution<int64_t>(0, max)(random); };
  RetentionOptions options;
  options.max_to_keep = draw(3);
  for (const char* metric : {"a", "b"}) {
    const BestMode mode = draw(1) == 0 ? BestMode::kLowest : BestMode::kHighest;
    if (draw(1) == 0) options.keep_best.push_back({.metric = metric, .mode = mode, .count = 1 + draw(2)});
  }
  options.keep_every_steps = draw(7);
  options.keep_interval = absl::Minutes(draw(9));
  if (draw(2) == 0) options.keep_unevaluated_until = {{.evaluator = "e", .every_steps = 1 + draw(3)}};
  return options;
}

// Whatever goes: a second pass over the rest lets nothing more go, and says the same of it.
TEST(RetentionPlan, SaysTheSameOfTheRestOnceItsDeletionsAreDone) {
  const uint32_t seed = SeedOfCases();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const auto draw = [&](int64_t max) { return std::uniform_int_distribution<int64_t>(0, max)(random); };
  for (int round = 0; round < 1000; ++round) {
    const RetentionOptions options = RandomRulesOfTwoMetrics(random);
    std::vector<StepInfo> steps;
    for (int64_t step = draw(3); steps.size() < 20; step += 1 + draw(4)) {
      StepInfo& info = steps.emplace_back(Step(step));
      info.sequence = static_cast<uint64_t>(draw(1000));
      info.created = absl::UnixEpoch() + absl::Minutes(step + draw(20));
      if (draw(2) > 0) info.metrics["a"] = static_cast<double>(draw(4));
      if (draw(2) > 0) info.metrics["b"] = draw(5) == 0 ? kNan : static_cast<double>(draw(4));
      if (draw(1) > 0) info.evaluations.push_back({.evaluator = "e", .unhealthy = draw(3) == 0 ? "diverged" : ""});
      info.pinned = draw(9) == 0;
    }
    const std::vector<RetentionDecision> first = PlanRetention(options, Shared(steps), {});
    std::vector<std::string> kept;
    for (size_t i = 0; i < first.size(); ++i) {
      if (first[i].keep) kept.push_back(absl::StrCat(first[i].step, ": ", first[i].reason));
      if (!first[i].keep) steps[i].state = StepState::kDeleted;
      ASSERT_NE(first[i].reason, "");
    }
    ASSERT_EQ(Plan(options, steps), kept) << "round " << round;
  }
}

TEST(RetentionOptions, HaveTheNamesThatOtherLibrariesUse) {
  EXPECT_FALSE(RetentionOptions().any());
  EXPECT_EQ(RetentionOptions::MaxToKeep(3).max_to_keep, 3);
  EXPECT_EQ(RetentionOptions::SaveTotalLimit(4).max_to_keep, 4);
  const RetentionOptions top = RetentionOptions::SaveTopK(2, "accuracy", BestMode::kHighest);
  ASSERT_EQ(top.keep_best.size(), 1u);
  EXPECT_EQ(top.keep_best[0].metric, "accuracy");
  EXPECT_EQ(top.keep_best[0].mode, BestMode::kHighest);
  EXPECT_EQ(top.keep_best[0].count, 2);
  EXPECT_EQ(top.max_to_keep, 0);
}

TEST(RetentionOptions, HaveARuleIfAnyIsSet) {
  EXPECT_TRUE(RetentionOptions{.max_to_keep = 1}.any());
  EXPECT_TRUE((RetentionOptions{.keep_best = {{.metric = "loss"}}}.any()));
  EXPECT_TRUE(RetentionOptions{.keep_every_steps = 1}.any());
  EXPECT_TRUE(RetentionOptions{.keep_interval = absl::Seconds(1)}.any());
  EXPECT_TRUE(RetentionOptions{.keep = [](const StepInfo&) { return true; }}.any());
  EXPECT_FALSE((RetentionOptions{.keep_unevaluated_until = {{.evaluator = "x"}}}.any()));
}

TEST(RetentionOptions, AreRefusedOutOfRange) {
  EXPECT_THAT(ValidateRetention({}), IsOk());
  EXPECT_THAT(ValidateRetention({.max_to_keep = 1,
                                 .keep_best = {{.metric = "loss"}},
                                 .keep_every_steps = 1,
                                 .keep_interval = absl::Seconds(1),
                                 .keep_unevaluated_until = {{.evaluator = "x"}}}),
              IsOk());
  const auto refused = [](const RetentionOptions& options, const std::string& message) {
    EXPECT_THAT(ValidateRetention(options), StatusIs(StatusCode::kInvalidArgument, "RetentionOptions::" + message));
  };
  refused({.max_to_keep = -1}, "max_to_keep is -1; it must be >= 0");
  refused({.keep_for = absl::Seconds(-1)}, "keep_for is -1s; it must be >= 0 and finite");
  refused({.keep_best = {{.metric = "a"}, {.metric = ""}}}, "keep_best[1].metric is ''; it must be a name");
  refused({.keep_best = {{.metric = "a", .count = 0}}}, "keep_best[0].count is 0; it must be >= 1");
  refused({.keep_every_steps = -5}, "keep_every_steps is -5; it must be >= 0");
  refused({.keep_interval = absl::Seconds(-1)}, "keep_interval is -1s; it must be >= 0 and finite");
  refused({.keep_interval = absl::InfiniteDuration()}, "keep_interval is inf; it must be >= 0 and finite");
  refused({.keep_unevaluated_until = {{.evaluator = ""}}},
          "keep_unevaluated_until[0].evaluator is ''; it must be a name");
  refused({.keep_unevaluated_until = {{.evaluator = "x", .every_steps = 0}}},
          "keep_unevaluated_until[0].every_steps is 0; it must be >= 1");
}

TEST(ResolveBestModes, SetsTheModesThatAreNotGivenAndNamesTheRuleOfWhichNothingTells) {
  RetentionOptions options{
      .keep_best = {{.metric = "loss"}, {.metric = "x"}, {.metric = "loss", .mode = BestMode::kHighest}}};
  ASSERT_THAT(ResolveBestModes({{"x", BestMode::kHighest}}, options), IsOk());
  EXPECT_EQ(options.keep_best[0].mode, BestMode::kLowest);
  EXPECT_EQ(options.keep_best[1].mode, BestMode::kHighest);
  EXPECT_EQ(options.keep_best[2].mode, BestMode::kHighest);
  options.keep_best.push_back({.metric = "y"});
  EXPECT_THAT(ResolveBestModes({}, options), StatusIs(absl::StatusCode::kInvalidArgument,
                                                      HasSubstr("keep_best[3].mode is not set, and the name 'y'")));
}

}  // namespace
}  // namespace tidemark::storage
