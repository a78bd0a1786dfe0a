#include "storage/records/fact.h"

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/records/metric_report.h"
#include "tests/storage/records/fact_testing.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr int64_t kStep = 1000;
const StepState kLive[] = {StepState::kCommitted, StepState::kDamaged, StepState::kLost, StepState::kFailed};

// The record after the fact, and what it leaves.
struct Outcome {
  std::optional<StepRecord> record;
  std::optional<DeletionRecord> left;
};

Outcome After(const Fact& fact, std::optional<StepRecord> record) {
  Outcome outcome{.record = std::move(record)};
  outcome.left = ApplyToStep(fact, outcome.record);
  return outcome;
}

StepRecord InState(StepState state) {
  StepRecord record = FullStep(kStep, 1);
  record.info.state = state;
  if (state == StepState::kDeleted) MakeDeleted(record, "retention");
  return record;
}

StateFact ToState(StepState state, uint8_t attempt = 1) {
  return {.step = kStep, .attempt = TestAttemptName(attempt), .state = state, .reason = "why"};
}

TEST(StepOfFact, IsTheStepOfThoseThatChangeARecord) {
  std::vector<std::optional<int64_t>> steps;
  for (const Fact& fact : FactsOfEachKind()) steps.push_back(StepOfFact(fact));
  const std::optional<int64_t> none;
  EXPECT_THAT(steps, ElementsAre(kStep, kStep, kStep, kStep, kStep, none, none, none, none, none));
}

TEST(ApplyToStep, MakesARecordOfAStepFactAlone) {
  for (const Fact& fact : FactsOfEachKind()) {
    const Outcome outcome = After(fact, std::nullopt);
    EXPECT_EQ(outcome.record.has_value(), std::holds_alternative<StepFact>(fact)) << fact.index();
    EXPECT_EQ(outcome.left, std::nullopt) << fact.index();
  }
}

TEST(ApplyToStep, PutsAStepFactInThePlaceOfAnyRecord) {
  for (const StepState state : {StepState::kCommitted, StepState::kLost, StepState::kDeleted, StepState::kUnsaved}) {
    const Outcome outcome = After(StepFact{FullStep(kStep, 2)}, InState(state));
    EXPECT_EQ(Bytes(*outcome.record), Bytes(FullStep(kStep, 2)));
  }
}

TEST(ApplyToStep, LeavesTheAttemptThatIsReplaced) {
  for (const StepState state : kLive) {
    const Outcome outcome = After(StepFact{FullStep(kStep, 2)}, InState(state));
    ASSERT_TRUE(outcome.left.has_value()) << StepStateName(state);
    EXPECT_EQ(outcome.left->step, kStep);
    EXPECT_EQ(outcome.left->attempt, TestAttempt(1));
    EXPECT_THAT(outcome.left->references, ElementsAre(TestAttempt(9)));
  }
  EXPECT_EQ(After(StepFact{FullStep(kStep, 2)}, InState(StepState::kDeleted)).left, std::nullopt);
  StepRecord unsaved = InState(StepState::kUnsaved);
  unsaved.info.attempt.clear();
  EXPECT_EQ(After(StepFact{FullStep(kStep, 2)}, unsaved).left, std::nullopt);
}

TEST(ApplyToStep, LeavesNothingOfTheSameAttemptUnlessItIsDeleted) {
  EXPECT_EQ(After(StepFact{FullStep(kStep, 1)}, InState(StepState::kLost)).left, std::nullopt);
  const Outcome outcome = After(StepFact{InState(StepState::kDeleted)}, InState(StepState::kCommitted));
  ASSERT_TRUE(outcome.left.has_value());
  EXPECT_EQ(outcome.left->attempt, TestAttempt(1));
  EXPECT_EQ(After(StepFact{InState(StepState::kDeleted)}, InState(StepState::kDeleted)).left, std::nullopt);
}

TEST(ApplyToStep, DeletesAsMakeDeleted) {
  for (const StepState state : kLive) {
    StepRecord deleted = InState(state);
    MakeDeleted(deleted, "why");
    const Outcome outcome = After(ToState(StepState::kDeleted), InState(state));
    EXPECT_EQ(Bytes(*outcome.record), Bytes(deleted)) << StepStateName(state);
    ASSERT_TRUE(outcome.left.has_value()) << StepStateName(state);
    EXPECT_EQ(EncodeDeletionRecord(*outcome.left), EncodeDeletionRecord(*DeletionOf(InState(state))));
  }
}

TEST(ApplyToStep, ChangesTheStateAndTheReason) {
  for (const StepState state : {StepState::kDamaged, StepState::kLost}) {
    StepRecord expected = InState(state);
    expected.info.reason = "why";
    expected.info.kept.clear();
    const Outcome outcome = After(ToState(state), InState(StepState::kCommitted));
    EXPECT_EQ(Bytes(*outcome.record), Bytes(expected));
    EXPECT_EQ(outcome.left, std::nullopt);
  }
}

TEST(ApplyToStep, ForgetsTheReasonOfAStepThatIsCommittedAgain) {
  StepRecord damaged = InState(StepState::kDamaged);
  damaged.info.reason = "chunk 3";
  EXPECT_EQ(Bytes(*After(ToState(StepState::kCommitted), damaged).record), Bytes(FullStep(kStep, 1)));
}

TEST(ApplyToStep, AppliesAnEvaluationAsApplyEvaluation) {
  for (const Evaluation& evaluation :
       {Evaluation{.evaluator = "e", .metrics = {{"accuracy", 1}}},              // in the place of what it said before
        Evaluation{.evaluator = "e", .outcome = Evaluation::Outcome::kSkipped},  // outranked
        Evaluation{.evaluator = "new", .metrics = {{"loss", 3}}, .unhealthy = "it diverges"}}) {
    for (const StepState state : {StepState::kCommitted, StepState::kDeleted, StepState::kLost}) {
      StepRecord expected = InState(state);
      ApplyEvaluation(expected.info, evaluation);
      const EvaluationFact fact{.step = kStep, .attempt = TestAttemptName(1), .evaluation = evaluation};
      const Outcome outcome = After(fact, InState(state));
      EXPECT_EQ(Bytes(*outcome.record), Bytes(expected));
      EXPECT_EQ(outcome.left, std::nullopt);
    }
  }
}

TEST(ApplyToStep, AppliesAnEvaluationToAStepThatWasNeverSaved) {
  StepRecord unsaved;
  unsaved.info = {.step = kStep, .state = StepState::kUnsaved};
  const EvaluationFact fact{.step = kStep, .evaluation = {.evaluator = "e", .metrics = {{"loss", 3}}}};
  EXPECT_EQ(After(fact, unsaved).record->info.metrics.at("e/loss"), 3);
}

TEST(ApplyToStep, AssignsThePinWithItsNoteAndTags) {
  const PinFact pin{
      .step = kStep, .attempt = TestAttemptName(1), .pinned = true, .note = "paper", .tags = {"published"}};
  const StepInfo pinned = After(pin, InState(StepState::kLost)).record->info;
  EXPECT_TRUE(pinned.pinned);
  EXPECT_EQ(pinned.pin_note, "paper");
  EXPECT_THAT(pinned.tags, ElementsAre("published"));
  const StepInfo unpinned =
      After(PinFact{.step = kStep, .attempt = TestAttemptName(1)}, FullStep(kStep, 1)).record->info;
  EXPECT_FALSE(unpinned.pinned);
  EXPECT_EQ(unpinned.pin_note, "");
  EXPECT_THAT(unpinned.tags, IsEmpty());
}

TEST(ApplyToStep, SaysWhyOnlyACommittedStepIsKept) {
  const KeptFact kept{.step = kStep, .attempt = TestAttemptName(1), .reason = "best loss"};
  EXPECT_EQ(After(kept, FullStep(kStep, 1)).record->info.kept, "best loss");
  StepRecord damaged = InState(StepState::kDamaged);
  damaged.info.kept.clear();
  EXPECT_EQ(After(kept, damaged).record->info.kept, "");
}

TEST(ApplyToStep, LeavesADeletedStepDeleted) {
  for (const Fact& fact : std::vector<Fact>{ToState(StepState::kCommitted), ToState(StepState::kLost),
                                            ToState(StepState::kDeleted), FactsOfEachKind()[3], FactsOfEachKind()[4]}) {
    const Outcome outcome = After(fact, InState(StepState::kDeleted));
    EXPECT_EQ(Bytes(*outcome.record), Bytes(InState(StepState::kDeleted))) << fact.index();
    EXPECT_EQ(outcome.left, std::nullopt);
  }
}

TEST(ApplyToStep, ChangesNothingOfAnotherAttempt) {
  for (const Fact& fact : FactsOfEachKind()) {
    if (std::holds_alternative<StepFact>(fact)) continue;
    const Outcome outcome = After(fact, FullStep(kStep, 2));
    EXPECT_EQ(Bytes(*outcome.record), Bytes(FullStep(kStep, 2))) << fact.index();
    EXPECT_EQ(outcome.left, std::nullopt);
  }
  EXPECT_EQ(After(ToState(StepState::kDeleted), FullStep(kStep, 2)).left, std::nullopt);
}

}  // namespace
}  // namespace tidemark::storage
