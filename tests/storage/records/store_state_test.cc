#include "storage/records/store_state.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/records/metric_report.h"
#include "storage/records/record_bytes.h"
#include "tests/non_finite.h"
#include "tests/storage/records/fact_testing.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

constexpr uint64_t kStateSeed = 20261128;

StepRecord Committed(int64_t step, uint8_t attempt, double loss, uint64_t sequence = 1) {
  StepRecord record;
  record.info = {.step = step, .attempt = TestAttemptName(attempt), .sequence = sequence, .metrics = {{"loss", loss}}};
  return record;
}

StateFact Deleted(int64_t step, uint8_t attempt) {
  return {.step = step, .attempt = TestAttemptName(attempt), .state = StepState::kDeleted, .reason = "retention"};
}

std::string BytesOf(const std::optional<StepRecord>& record) { return record ? Bytes(*record) : "none"; }

std::vector<std::string> DeletionsOf(const StoreState& state) {
  std::vector<std::string> deletions;
  for (const DeletionRecord& deletion : state.Deletions()) deletions.push_back(EncodeDeletionRecord(deletion));
  return deletions;
}

// What the facts say, by loops over maps of plain records, and by the functions that change a record today.
struct NaiveState {
  std::map<int64_t, StepRecord> steps;
  std::map<int64_t, PhasesRecord> phases;
  std::map<std::string, DeletionRecord> garbage;
  std::map<std::string, DeletionRequestFact> requests;
  BestModes modes;
  uint64_t sequence = 0;

  void AddGarbage(const StepRecord& record) {
    if (const auto left = DeletionOf(record)) garbage[record.info.attempt] = *left;
  }
  StepRecord* OfAttempt(int64_t step, const std::string& attempt) {
    const auto found = steps.find(step);
    return found != steps.end() && found->second.info.attempt == attempt ? &found->second : nullptr;
  }

  void Apply(const StepFact& fact) {
    const StepInfo& info = fact.record.info;
    if (steps.contains(info.step)) {
      const StepRecord& old = steps[info.step];
      if (old.info.attempt != info.attempt || info.state == StepState::kDeleted) AddGarbage(old);
    }
    steps[info.step] = fact.record;
    if (MayHaveFiles(info.state)) garbage.erase(info.attempt);
    if (phases.contains(info.step) && phases[info.step].attempt != info.attempt) phases.erase(info.step);
    sequence = std::max(sequence, info.sequence);
  }
  void Apply(const StateFact& fact) {
    StepRecord* record = OfAttempt(fact.step, fact.attempt);
    if (record == nullptr || record->info.state == StepState::kDeleted) return;
    if (fact.state == StepState::kDeleted) {
      AddGarbage(*record);
      return MakeDeleted(*record, fact.reason);
    }
    record->info.state = fact.state;
    record->info.reason = fact.reason;
    if (fact.state == StepState::kCommitted) {
      record->info.reason.clear();
    } else {
      record->info.kept.clear();
    }
  }
  void Apply(const EvaluationFact& fact) {
    if (StepRecord* record = OfAttempt(fact.step, fact.attempt)) ApplyEvaluation(record->info, fact.evaluation);
  }
  void Apply(const PinFact& fact) {
    StepRecord* record = OfAttempt(fact.step, fact.attempt);
    if (record == nullptr || record->info.state == StepState::kDeleted) return;
    record->info.pinned = fact.pinned;
    record->info.pin_note = fact.note;
    record->info.tags = fact.tags;
  }
  void Apply(const KeptFact& fact) {
    StepRecord* record = OfAttempt(fact.step, fact.attempt);
    if (record != nullptr && record->info.state == StepState::kCommitted) record->info.kept = fact.reason;
  }
  void Apply(const PhasesFact& fact) {
    if (OfAttempt(fact.record.step, fact.record.attempt) != nullptr) phases[fact.record.step] = fact.record;
  }
  void Apply(const BestModesFact& fact) {
    for (const auto& [metric, mode] : fact.modes) modes[metric] = mode;
  }
  void Apply(const DeletionRequestFact& fact) { requests[fact.id] = fact; }
  void Apply(const AnswerFact& fact) { requests.erase(fact.id); }
  void Apply(const StoreFact&) {}

  // The last record for which `is_in` holds.
  template <typename Predicate>
  std::optional<StepRecord> Last(const Predicate& is_in) const {
    std::optional<StepRecord> last;
    for (const auto& [step, record] : steps) {
      if (is_in(record)) last = record;
    }
    return last;
  }
  std::optional<StepRecord> Best(const std::string& metric, BestMode mode) const {
    std::vector<std::pair<double, int64_t>> found;
    for (const auto& [step, record] : steps) {
      const StepInfo& info = record.info;
      if (info.state != StepState::kCommitted || !info.unhealthy().empty() || !info.metrics.contains(metric)) continue;
      const double value = info.metrics.at(metric) + 0.0;  // no -0.0
      if (std::isfinite(value)) found.emplace_back(mode == BestMode::kHighest ? value : -value + 0.0, step);
    }
    if (found.empty()) return std::nullopt;
    return steps.at(std::max_element(found.begin(), found.end())->second);
  }
  bool IsReferenced(const AttemptId& attempt) const {
    return Last([&](const StepRecord& record) {
             return record.info.state != StepState::kDeleted &&
                    std::any_of(record.references.begin(), record.references.end(),
                                [&](const FileReference& file) { return file.attempt == attempt; });
           })
        .has_value();
  }
};

void ExpectSame(const StoreState& state, const NaiveState& naive) {
  EXPECT_EQ(state.size(), naive.steps.size());
  EXPECT_EQ(state.last_sequence(), naive.sequence);
  std::vector<int64_t> committed;
  for (const auto& [step, record] : naive.steps) {
    EXPECT_EQ(BytesOf(state.Find(step)), Bytes(record));
    if (record.info.state == StepState::kCommitted) committed.push_back(step);
  }
  EXPECT_THAT(state.committed(), testing::ElementsAreArray(committed));
  EXPECT_EQ(state.LatestCommitted(), committed.empty() ? std::nullopt : std::optional(committed.back()));
  for (int64_t step = -1; step <= 75; step += 4) {
    const auto is_below = [&](const StepRecord& record) { return record.info.step <= step; };
    EXPECT_EQ(BytesOf(state.FindAtOrBelow(step)), BytesOf(naive.Last(is_below)));
    EXPECT_EQ(BytesOf(state.FindCommittedAtOrBelow(step)), BytesOf(naive.Last([&](const StepRecord& record) {
                return is_below(record) && record.info.state == StepState::kCommitted;
              })));
  }
  for (const char* metric : {"m0", "m1", "e0/m0", "e1/m2", "none"}) {
    for (const BestMode mode : {BestMode::kLowest, BestMode::kHighest}) {
      EXPECT_EQ(BytesOf(state.FindBest(metric, mode)), BytesOf(naive.Best(metric, mode))) << metric;
    }
  }
  std::vector<std::string> deletions;
  for (const auto& [attempt, deletion] : naive.garbage) deletions.push_back(EncodeDeletionRecord(deletion));
  EXPECT_EQ(DeletionsOf(state), deletions);
  for (uint8_t i = 0; i < 5; ++i) {
    EXPECT_EQ(state.IsReferenced(TestAttempt(i)), naive.IsReferenced(TestAttempt(i))) << int{i};
    for (int64_t step = 0; step < 80; step += 10) {
      PhasesRecord expected{.step = step, .attempt = TestAttemptName(i)};
      const auto found = naive.phases.find(step);
      if (found != naive.phases.end() && found->second.attempt == expected.attempt) expected = found->second;
      const PhasesRecord phases{
          .step = step, .attempt = expected.attempt, .phases = state.Phases(step, expected.attempt)};
      EXPECT_EQ(EncodePhasesRecord(phases), EncodePhasesRecord(expected));
    }
  }
  EXPECT_EQ(state.recorded_best_modes(), naive.modes);
  ASSERT_EQ(state.requests().size(), naive.requests.size());
  for (const auto& [id, request] : state.requests()) EXPECT_EQ(Bytes(request), Bytes(naive.requests.at(id)));
}

void CompareWithNaive(uint64_t seed, size_t unpacked_max) {
  FactDrawer drawer(seed);
  StoreState state(unpacked_max);
  NaiveState naive;
  for (int i = 0; i < 400; ++i) {
    // Most facts are of steps; records are few enough for facts of their attempt to meet them.
    const Fact fact = drawer.Below(3) == 0 ? drawer.Draw() : drawer.DrawOfKind(drawer.Below(5));
    SCOPED_TRACE(fmt::format("seed {}, {} unpacked, fact {} of kind {}", seed, unpacked_max, i, fact.index()));
    state.Apply(fact);
    std::visit([&](const auto& one) { naive.Apply(one); }, fact);
    if (i % 16 == 0 || i > 390) ExpectSame(state, naive);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(StoreState, SaysWhatANaiveModelSays) {
  for (uint64_t i = 0; i < 12; ++i) CompareWithNaive(kStateSeed + i, /*unpacked_max=*/1 + i % 4);
}

TEST(StoreState, IsEmptyWithoutFacts) {
  ExpectSame(StoreState(), NaiveState());
  EXPECT_EQ(StoreState().FindAtOrBelow(100), std::nullopt);
}

TEST(StoreState, KnowsNoStepOfAFactWithoutAStepFact) {
  StoreState state;
  for (const Fact& fact : FactsOfEachKind()) {
    if (!std::holds_alternative<StepFact>(fact)) state.Apply(fact);
  }
  EXPECT_EQ(state.size(), 0u);
  EXPECT_THAT(state.Deletions(), IsEmpty());
  EXPECT_THAT(state.Phases(1000, TestAttemptName(1)), IsEmpty());
}

TEST(StoreState, KeepsRecordsThatAreNotUnpackedAnyMore) {
  StoreState state;
  constexpr int64_t kSteps = 3 * StoreState::kUnpackedMax;
  for (int64_t step = 0; step < kSteps; ++step) state.Apply(StepFact{FullStep(step)});
  // In an order that unpacks each of them again.
  const Evaluation evaluation{.evaluator = "late", .metrics = {{"loss", 2}}};
  for (int64_t step = kSteps - 1; step >= 0; --step) {
    state.Apply(EvaluationFact{.step = step, .attempt = TestAttemptName(1), .evaluation = evaluation});
  }
  int64_t visited = 0;
  state.ForEach([&](const StepRecord& record) {
    StepRecord expected = FullStep(visited++);
    ApplyEvaluation(expected.info, evaluation);
    EXPECT_EQ(Bytes(record), Bytes(expected));
    return !testing::Test::HasFailure();
  });
  EXPECT_EQ(visited, kSteps);
}

TEST(StoreState, VisitsFromTheFirstStepUntilItIsToldToStop) {
  StoreState state;
  for (const int64_t step : {30, 10, 20, 40}) state.Apply(StepFact{Committed(step, 1, 0)});
  std::vector<int64_t> steps;
  state.ForEach(
      [&](const StepRecord& record) {
        steps.push_back(record.info.step);
        return record.info.step < 30;
      },
      /*first_step=*/11);
  EXPECT_THAT(steps, ElementsAre(20, 30));
}

TEST(StoreState, FindsTheLastOfTheBestHealthySteps) {
  StoreState state;
  const double losses[] = {0.5, -0.0, 0.0, 3, 3, kInfinity, kNan, -kInfinity};
  for (int64_t step = 0; step < 8; ++step) state.Apply(StepFact{Committed(step, 1, losses[step])});
  EXPECT_EQ(state.FindBest("loss", BestMode::kLowest)->info.step, 2);
  EXPECT_EQ(state.FindBest("loss", BestMode::kHighest)->info.step, 4);
  state.Apply(EvaluationFact{
      .step = 4, .attempt = TestAttemptName(1), .evaluation = {.evaluator = "e", .unhealthy = "it diverges"}});
  EXPECT_EQ(state.FindBest("loss", BestMode::kHighest)->info.step, 3);
  state.Apply(Deleted(2, 1));
  EXPECT_EQ(state.FindBest("loss", BestMode::kLowest)->info.step, 1);
  EXPECT_EQ(state.FindBest("accuracy", BestMode::kLowest), std::nullopt);
}

TEST(StoreState, TakesAnAttemptThatIsAStepsAgainOffTheDeletions) {
  StoreState state;
  state.Apply(StepFact{Committed(10, 1, 0)});
  state.Apply(StepFact{Committed(10, 2, 0)});
  ASSERT_THAT(state.Deletions(), SizeIs(1));
  EXPECT_EQ(state.Deletions()[0].attempt, TestAttempt(1));
  state.Apply(StepFact{Committed(10, 1, 0)});
  ASSERT_THAT(state.Deletions(), SizeIs(1));
  EXPECT_EQ(state.Deletions()[0].attempt, TestAttempt(2));
}

TEST(StoreState, CountsAReferenceUntilTheLastStepThatHasItIsDeleted) {
  StoreState state;
  for (uint8_t i = 1; i <= 2; ++i) {
    StepRecord record = Committed(10 * i, i, 0);
    record.references = {{.step = 5, .attempt = TestAttempt(9)}, {.step = 5, .attempt = TestAttempt(9), .rank = 1}};
    state.Apply(StepFact{record});
  }
  state.Apply(StateFact{.step = 10, .attempt = TestAttemptName(1), .state = StepState::kLost, .reason = "gone"});
  state.Apply(Deleted(20, 2));
  EXPECT_TRUE(state.IsReferenced(TestAttempt(9)));  // a lost step may be found again
  state.Apply(Deleted(10, 1));
  EXPECT_FALSE(state.IsReferenced(TestAttempt(9)));
  EXPECT_THAT(state.Deletions()[0].references, ElementsAre(TestAttempt(9), TestAttempt(9)));
  StepRecord deleted = FullStep(30, 3);
  deleted.info.state = StepState::kDeleted;  // a record that still has its references
  state.Apply(StepFact{deleted});
  EXPECT_FALSE(state.IsReferenced(TestAttempt(9)));
}

TEST(StoreState, KeepsTheHighestSequence) {
  StoreState state;
  state.Apply(StepFact{Committed(10, 1, 0, /*sequence=*/7)});
  state.Apply(StepFact{Committed(10, 2, 0, /*sequence=*/3)});
  EXPECT_EQ(state.last_sequence(), 7u);
}

TEST(StoreState, KeepsARequestUntilItIsAnswered) {
  StoreState state;
  const Fact request = FactsOfEachKind()[7];
  state.Apply(request);
  ASSERT_THAT(state.requests(), ElementsAre(Pair(TestAttemptName(77), testing::_)));
  EXPECT_EQ(Bytes(state.requests().begin()->second), Bytes(request));
  state.Apply(AnswerFact{.id = TestAttemptName(78)});
  EXPECT_THAT(state.requests(), SizeIs(1));
  state.Apply(AnswerFact{.id = TestAttemptName(77), .refused = "it is pinned"});
  EXPECT_THAT(state.requests(), IsEmpty());
}

TEST(StoreState, KeepsOtherBestModes) {
  StoreState state;
  state.Apply(BestModesFact{{{"a", BestMode::kLowest}, {"b", BestMode::kLowest}}});
  state.Apply(BestModesFact{{{"b", BestMode::kHighest}}});
  EXPECT_THAT(state.recorded_best_modes(), ElementsAre(Pair("a", BestMode::kLowest), Pair("b", BestMode::kHighest)));
}

TEST(StoreState, KnowsThePhasesOfTheAttemptThatAStepHas) {
  StoreState state;
  const auto noted = [](uint8_t attempt) {
    return PhasesFact{{.step = 10, .attempt = TestAttemptName(attempt), .phases = {{.name = "write"}}}};
  };
  state.Apply(StepFact{Committed(10, 1, 0)});
  state.Apply(noted(1));
  EXPECT_THAT(state.Phases(10, TestAttemptName(1)), SizeIs(1));
  EXPECT_THAT(state.Phases(10, TestAttemptName(2)), IsEmpty());
  state.Apply(noted(2));  // of an attempt that the step does not have
  EXPECT_THAT(state.Phases(10, TestAttemptName(1)), SizeIs(1));
  state.Apply(Deleted(10, 1));
  EXPECT_THAT(state.Phases(10, TestAttemptName(1)), SizeIs(1));
  state.Apply(StepFact{Committed(10, 2, 0)});
  EXPECT_THAT(state.Phases(10, TestAttemptName(1)), IsEmpty());
}

}  // namespace
}  // namespace tidemark::storage
