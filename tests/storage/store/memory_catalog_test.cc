// A catalog in memory and the index say what a naive model says.

#include "storage/store/memory_catalog.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/index/manifest.h"
#include "storage/records/metric_report.h"
#include "tests/non_finite.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/records/fact_testing.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::SizeIs;

constexpr uint64_t kCatalogSeed = 20261128;

StepRecord Committed(int64_t step, uint8_t attempt, double loss, uint64_t sequence = 1) {
  StepRecord record;
  record.info = {.step = step, .attempt = TestAttemptName(attempt), .sequence = sequence, .metrics = {{"loss", loss}}};
  return record;
}

StateFact Deleted(int64_t step, uint8_t attempt) {
  return {.step = step, .attempt = TestAttemptName(attempt), .state = StepState::kDeleted, .reason = "retention"};
}

std::string BytesOf(const std::optional<StepRecord>& record) { return record ? Bytes(*record) : "none"; }

template <typename T>
T Answer(absl::StatusOr<T> answer) {
  EXPECT_THAT(answer, IsOk());
  return *std::move(answer);
}

void Apply(MemoryCatalog& catalog, const Fact& fact) { catalog.Apply({&fact, 1}); }

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

  std::vector<DeletionRequestFact> Requests() const {
    std::vector<DeletionRequestFact> sorted;
    for (const auto& [id, request] : requests) sorted.push_back(request);
    SortRequests(sorted);
    return sorted;
  }
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

void ExpectSame(const StepCatalog& catalog, const NaiveState& naive) {
  EXPECT_EQ(catalog.last_sequence(), naive.sequence);
  std::vector<std::string> records, expected_records;
  const absl::Status visited = catalog.ForEach([&](const StepRecord& record) {
    records.push_back(Bytes(record));
    return true;
  });
  EXPECT_THAT(visited, IsOk());
  std::vector<int64_t> committed, expected_committed;
  for (const auto& info : Answer(catalog.Committed())) committed.push_back(info->step);
  for (const auto& [step, record] : naive.steps) {
    expected_records.push_back(Bytes(record));
    if (record.info.state == StepState::kCommitted) expected_committed.push_back(step);
  }
  EXPECT_EQ(records, expected_records);
  EXPECT_EQ(committed, expected_committed);
  EXPECT_EQ(Answer(catalog.LatestCommitted()), committed.empty() ? std::nullopt : std::optional(committed.back()));
  for (int64_t step = 0; step <= 75; step += 5) {
    const auto is_below = [&](const StepRecord& record) { return record.info.step <= step; };
    EXPECT_EQ(BytesOf(Answer(catalog.Find(step))),
              BytesOf(naive.Last([&](const StepRecord& record) { return record.info.step == step; })));
    EXPECT_EQ(BytesOf(Answer(catalog.FindAtOrBelow(step))), BytesOf(naive.Last(is_below)));
    EXPECT_EQ(BytesOf(Answer(catalog.FindCommittedAtOrBelow(step))), BytesOf(naive.Last([&](const StepRecord& record) {
                return is_below(record) && record.info.state == StepState::kCommitted;
              })));
  }
  for (const char* metric : {"m0", "m1", "e0/m0", "e1/m2", "none"}) {
    for (const BestMode mode : {BestMode::kLowest, BestMode::kHighest}) {
      EXPECT_EQ(BytesOf(Answer(catalog.FindBest(metric, mode))), BytesOf(naive.Best(metric, mode))) << metric;
    }
  }
  std::vector<std::string> deletions, expected_deletions;
  for (const DeletionRecord& deletion : Answer(catalog.Deletions()))
    deletions.push_back(EncodeDeletionRecord(deletion));
  for (const auto& [attempt, deletion] : naive.garbage) expected_deletions.push_back(EncodeDeletionRecord(deletion));
  EXPECT_EQ(deletions, expected_deletions);
  for (uint8_t i = 0; i < 5; ++i) {
    EXPECT_EQ(Answer(catalog.IsReferenced(TestAttempt(i))), naive.IsReferenced(TestAttempt(i))) << int{i};
    for (int64_t step = 0; step < 80; step += 10) {
      PhasesRecord expected{.step = step, .attempt = TestAttemptName(i)};
      const auto found = naive.phases.find(step);
      if (found != naive.phases.end() && found->second.attempt == expected.attempt) expected = found->second;
      const PhasesRecord phases{
          .step = step, .attempt = expected.attempt, .phases = Answer(catalog.Phases(step, expected.attempt))};
      EXPECT_EQ(EncodePhasesRecord(phases), EncodePhasesRecord(expected));
    }
  }
  EXPECT_EQ(Answer(catalog.RecordedBestModes()), naive.modes);
  std::vector<std::string> requests, expected_requests;
  for (const DeletionRequestFact& request : Answer(catalog.Requests())) requests.push_back(Bytes(request));
  for (const DeletionRequestFact& request : naive.Requests()) expected_requests.push_back(Bytes(request));
  EXPECT_EQ(requests, expected_requests);
}

// Several facts at a time, as entries have them.
void CompareWithNaive(uint64_t seed, const StepCatalog& catalog, absl::FunctionRef<void(std::span<const Fact>)> apply) {
  FactDrawer drawer(seed);
  NaiveState naive;
  for (int i = 0; i < 160; ++i) {
    std::vector<Fact> facts;
    for (uint64_t n = drawer.Below(4); n < 4; ++n) {
      // Most facts are of steps; records are few enough for facts of their attempt to meet them.
      facts.push_back(drawer.Below(3) == 0 ? drawer.Draw() : drawer.DrawOfKind(drawer.Below(5)));
      std::visit([&](const auto& one) { naive.Apply(one); }, facts.back());
    }
    SCOPED_TRACE(fmt::format("seed {}, entry {}", seed, i));
    apply(facts);
    if (i % 8 == 0 || i > 155) ExpectSame(catalog, naive);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(MemoryCatalogTest, SaysWhatANaiveModelSays) {
  for (uint64_t i = 0; i < 12; ++i) {
    MemoryCatalog catalog(/*unpacked_max=*/1 + i % 4);
    CompareWithNaive(kCatalogSeed + i, catalog, [&](std::span<const Fact> facts) { catalog.Apply(facts); });
  }
}

TEST(MemoryCatalogTest, IsEmptyWithoutFacts) {
  MemoryCatalog catalog;
  ExpectSame(catalog, NaiveState());
}

TEST(MemoryCatalogTest, AnswersAsTheIndexDoes) {
  for (uint64_t i = 0; i < 4; ++i) {
    SimulatedDisk disk;
    auto index = Manifest::Create(disk, "/index", StoreId{{1}});
    ASSERT_THAT(index, IsOk());
    JournalPlace place{.epoch = 1};
    CompareWithNaive(kCatalogSeed + i, **index, [&](std::span<const Fact> facts) {
      ++place.number;
      place.digest = Digest128{{static_cast<uint8_t>(place.number)}};
      EXPECT_THAT((*index)->Apply(place, facts), IsOk());
    });
    EXPECT_EQ(*(*index)->Applied(), place);
  }
}

TEST(MemoryCatalogTest, ForgetsGarbageThatIsGone) {
  MemoryCatalog catalog;
  for (const uint8_t attempt : {1, 2, 3}) Apply(catalog, StepFact{Committed(1, attempt, 0)});
  EXPECT_THAT(*catalog.Deletions(), SizeIs(2));
  const AttemptId first = TestAttempt(1);
  catalog.ForgetGarbage({&first, 1});
  ASSERT_THAT(*catalog.Deletions(), SizeIs(1));
  EXPECT_EQ((*catalog.Deletions())[0].attempt, TestAttempt(2));
}

TEST(MemoryCatalogTest, KnowsNoStepOfAFactWithoutAStepFact) {
  MemoryCatalog catalog;
  for (const Fact& fact : FactsOfEachKind()) {
    if (!std::holds_alternative<StepFact>(fact)) Apply(catalog, fact);
  }
  EXPECT_EQ(*catalog.FindAtOrBelow(1 << 30), std::nullopt);
  EXPECT_THAT(*catalog.Deletions(), IsEmpty());
  EXPECT_THAT(*catalog.Phases(1000, TestAttemptName(1)), IsEmpty());
}

TEST(MemoryCatalogTest, KeepsRecordsThatAreNotUnpackedAnyMore) {
  MemoryCatalog catalog;
  constexpr int64_t kSteps = 3 * MemoryCatalog::kUnpackedMax;
  for (int64_t step = 0; step < kSteps; ++step) Apply(catalog, StepFact{FullStep(step)});
  // In an order that unpacks each of them again.
  const Evaluation evaluation{.evaluator = "late", .metrics = {{"loss", 2}}};
  for (int64_t step = kSteps - 1; step >= 0; --step) {
    Apply(catalog, EvaluationFact{.step = step, .attempt = TestAttemptName(1), .evaluation = evaluation});
  }
  int64_t visited = 0;
  const absl::Status status = catalog.ForEach([&](const StepRecord& record) {
    StepRecord expected = FullStep(visited++);
    ApplyEvaluation(expected.info, evaluation);
    EXPECT_EQ(Bytes(record), Bytes(expected));
    return !testing::Test::HasFailure();
  });
  EXPECT_THAT(status, IsOk());
  EXPECT_EQ(visited, kSteps);
}

TEST(MemoryCatalogTest, VisitsFromTheFirstStepUntilItIsToldToStop) {
  MemoryCatalog catalog;
  for (const int64_t step : {30, 10, 20, 40}) Apply(catalog, StepFact{Committed(step, 1, 0)});
  std::vector<int64_t> steps;
  const absl::Status status = catalog.ForEach(
      [&](const StepRecord& record) {
        steps.push_back(record.info.step);
        return record.info.step < 30;
      },
      /*first_step=*/11);
  EXPECT_THAT(status, IsOk());
  EXPECT_THAT(steps, ElementsAre(20, 30));
}

TEST(MemoryCatalogTest, FindsTheLastOfTheBestHealthySteps) {
  MemoryCatalog catalog;
  const double losses[] = {0.5, -0.0, 0.0, 3, 3, kInfinity, kNan, -kInfinity};
  for (int64_t step = 0; step < 8; ++step) Apply(catalog, StepFact{Committed(step, 1, losses[step])});
  EXPECT_EQ((*catalog.FindBest("loss", BestMode::kLowest))->info.step, 2);
  EXPECT_EQ((*catalog.FindBest("loss", BestMode::kHighest))->info.step, 4);
  Apply(catalog,
        EvaluationFact{
            .step = 4, .attempt = TestAttemptName(1), .evaluation = {.evaluator = "e", .unhealthy = "it diverges"}});
  EXPECT_EQ((*catalog.FindBest("loss", BestMode::kHighest))->info.step, 3);
  Apply(catalog, Deleted(2, 1));
  EXPECT_EQ((*catalog.FindBest("loss", BestMode::kLowest))->info.step, 1);
  EXPECT_EQ(*catalog.FindBest("accuracy", BestMode::kLowest), std::nullopt);
}

TEST(MemoryCatalogTest, TakesAnAttemptThatIsAStepsAgainOffTheDeletions) {
  MemoryCatalog catalog;
  Apply(catalog, StepFact{Committed(10, 1, 0)});
  Apply(catalog, StepFact{Committed(10, 2, 0)});
  ASSERT_THAT(*catalog.Deletions(), SizeIs(1));
  EXPECT_EQ((*catalog.Deletions())[0].attempt, TestAttempt(1));
  Apply(catalog, StepFact{Committed(10, 1, 0)});
  ASSERT_THAT(*catalog.Deletions(), SizeIs(1));
  EXPECT_EQ((*catalog.Deletions())[0].attempt, TestAttempt(2));
}

TEST(MemoryCatalogTest, CountsAReferenceUntilTheLastStepThatHasItIsDeleted) {
  MemoryCatalog catalog;
  for (uint8_t i = 1; i <= 2; ++i) {
    StepRecord record = Committed(10 * i, i, 0);
    record.references = {{.step = 5, .attempt = TestAttempt(9)}, {.step = 5, .attempt = TestAttempt(9), .rank = 1}};
    Apply(catalog, StepFact{record});
  }
  Apply(catalog, StateFact{.step = 10, .attempt = TestAttemptName(1), .state = StepState::kLost, .reason = "gone"});
  Apply(catalog, Deleted(20, 2));
  EXPECT_TRUE(*catalog.IsReferenced(TestAttempt(9)));  // a lost step may be found again
  Apply(catalog, Deleted(10, 1));
  EXPECT_FALSE(*catalog.IsReferenced(TestAttempt(9)));
  EXPECT_THAT((*catalog.Deletions())[0].references, ElementsAre(TestAttempt(9), TestAttempt(9)));
  StepRecord deleted = FullStep(30, 3);
  deleted.info.state = StepState::kDeleted;  // a record that still has its references
  Apply(catalog, StepFact{deleted});
  EXPECT_FALSE(*catalog.IsReferenced(TestAttempt(9)));
}

TEST(MemoryCatalogTest, KeepsTheHighestSequence) {
  MemoryCatalog catalog;
  Apply(catalog, StepFact{Committed(10, 1, 0, /*sequence=*/7)});
  Apply(catalog, StepFact{Committed(10, 2, 0, /*sequence=*/3)});
  EXPECT_EQ(catalog.last_sequence(), 7u);
}

TEST(MemoryCatalogTest, KeepsARequestUntilItIsAnswered) {
  MemoryCatalog catalog;
  const Fact request = FactsOfEachKind()[7];
  Apply(catalog, request);
  ASSERT_THAT(*catalog.Requests(), SizeIs(1));
  EXPECT_EQ(Bytes(catalog.Requests()->front()), Bytes(request));
  Apply(catalog, AnswerFact{.id = TestAttemptName(78)});
  EXPECT_THAT(*catalog.Requests(), SizeIs(1));
  Apply(catalog, AnswerFact{.id = TestAttemptName(77), .refused = "it is pinned"});
  EXPECT_THAT(*catalog.Requests(), IsEmpty());
}

TEST(MemoryCatalogTest, KeepsOtherBestModes) {
  MemoryCatalog catalog;
  Apply(catalog, BestModesFact{{{"a", BestMode::kLowest}, {"b", BestMode::kLowest}}});
  Apply(catalog, BestModesFact{{{"b", BestMode::kHighest}}});
  EXPECT_THAT(*catalog.RecordedBestModes(), ElementsAre(Pair("a", BestMode::kLowest), Pair("b", BestMode::kHighest)));
}

TEST(MemoryCatalogTest, KnowsThePhasesOfTheAttemptThatAStepHas) {
  MemoryCatalog catalog;
  const auto noted = [](uint8_t attempt) {
    return PhasesFact{{.step = 10, .attempt = TestAttemptName(attempt), .phases = {{.name = "write"}}}};
  };
  Apply(catalog, StepFact{Committed(10, 1, 0)});
  Apply(catalog, noted(1));
  EXPECT_THAT(*catalog.Phases(10, TestAttemptName(1)), SizeIs(1));
  EXPECT_THAT(*catalog.Phases(10, TestAttemptName(2)), IsEmpty());
  Apply(catalog, noted(2));  // of an attempt that the step does not have
  EXPECT_THAT(*catalog.Phases(10, TestAttemptName(1)), SizeIs(1));
  Apply(catalog, Deleted(10, 1));
  EXPECT_THAT(*catalog.Phases(10, TestAttemptName(1)), SizeIs(1));
  Apply(catalog, StepFact{Committed(10, 2, 0)});
  EXPECT_THAT(*catalog.Phases(10, TestAttemptName(1)), IsEmpty());
}

}  // namespace
}  // namespace tidemark::storage
