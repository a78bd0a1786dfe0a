// A catalog in memory and the index answer alike.

#include "storage/store/memory_catalog.h"

#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/index/manifest.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/records/step_record_json.h"

namespace tidemark::storage {
namespace {

std::string AttemptText(uint8_t n) { return ToHex(AttemptId{{n}}.bytes); }

// Facts about few steps, so that they meet.
class Drawn {
 public:
  explicit Drawn(uint32_t seed) : random_(seed) {}

  Fact Next() {
    const int64_t step = Below(6);
    const std::string attempt = AttemptText(static_cast<uint8_t>(4 * step + Below(4)));
    switch (Below(10)) {
      case 0:
      case 1: {
        StepRecord record;
        record.info.step = step;
        record.info.attempt = attempt;
        record.info.sequence = ++sequence_;
        record.info.metrics = {{"loss", static_cast<double>(Below(3))}};
        if (Below(2) == 0) record.references.push_back({.attempt = AttemptId{{static_cast<uint8_t>(Below(24))}}});
        return StepFact{std::move(record)};
      }
      case 2:
        return StateFact{.step = step, .attempt = attempt, .state = StepState::kDeleted, .reason = "a rule's"};
      case 3:
        return StateFact{
            .step = step, .attempt = attempt, .state = Below(2) == 0 ? StepState::kDamaged : StepState::kCommitted};
      case 4: {
        EvaluationFact fact{.step = step, .attempt = attempt};
        fact.evaluation.evaluator = Below(2) == 0 ? "a" : "b";
        fact.evaluation.metrics = {{"accuracy", static_cast<double>(Below(4))}};
        if (Below(8) == 0) fact.evaluation.unhealthy = "diverged";
        return fact;
      }
      case 5:
        return PinFact{.step = step, .attempt = attempt, .pinned = true, .tags = {"t"}};
      case 9:
        return PhasesFact{
            {.step = step, .attempt = attempt, .phases = {{.name = fmt::format("p{}", Below(3)), .lane = "trainer"}}}};
      case 6:
        return BestModesFact{{{fmt::format("m{}", Below(2)), Below(2) == 0 ? BestMode::kLowest : BestMode::kHighest}}};
      case 7:
        return DeletionRequestFact{.id = AttemptText(static_cast<uint8_t>(Below(3))),
                                   .step = step,
                                   .attempt = attempt,
                                   .asked = absl::FromUnixSeconds(Below(3))};
      default:
        return AnswerFact{.id = AttemptText(static_cast<uint8_t>(Below(3)))};
    }
  }

  int64_t Below(int64_t bound) { return std::uniform_int_distribution<int64_t>(0, bound - 1)(random_); }

 private:
  std::mt19937 random_;
  uint64_t sequence_ = 0;
};

std::string TextOf(const absl::StatusOr<std::optional<StepRecord>>& found) {
  EXPECT_THAT(found, IsOk());
  return found.ok() && found->has_value() ? EncodeStepRecord(**found) : "none";
}

std::vector<std::string> TextOf(const absl::StatusOr<std::vector<DeletionRecord>>& deletions) {
  std::vector<std::string> texts;
  EXPECT_THAT(deletions, IsOk());
  for (const DeletionRecord& deletion : *deletions) texts.push_back(EncodeDeletionRecord(deletion));
  return texts;
}

void ExpectAlike(const StepCatalog& a, const StepCatalog& b) {
  EXPECT_EQ(a.last_sequence(), b.last_sequence());
  for (int64_t step = 0; step < 7; ++step) {
    EXPECT_EQ(TextOf(a.Find(step)), TextOf(b.Find(step))) << step;
    EXPECT_EQ(TextOf(a.FindAtOrBelow(step)), TextOf(b.FindAtOrBelow(step))) << step;
    EXPECT_EQ(TextOf(a.FindCommittedAtOrBelow(step)), TextOf(b.FindCommittedAtOrBelow(step))) << step;
  }
  for (int64_t step = 0; step < 6; ++step) {
    const auto record = a.Find(step);
    if (!record.ok() || !record->has_value()) continue;
    const auto of_a = a.Phases(step, (*record)->info.attempt), of_b = b.Phases(step, (*record)->info.attempt);
    ASSERT_THAT(of_a, IsOk());
    ASSERT_THAT(of_b, IsOk());
    ASSERT_EQ(of_a->size(), of_b->size()) << step;
    for (size_t i = 0; i < of_a->size(); ++i) EXPECT_EQ((*of_a)[i].name, (*of_b)[i].name);
  }
  EXPECT_EQ(*a.LatestCommitted(), *b.LatestCommitted());
  for (const std::string metric : {"loss", "a/accuracy", "none"}) {
    for (const BestMode mode : {BestMode::kLowest, BestMode::kHighest}) {
      EXPECT_EQ(TextOf(a.FindBest(metric, mode)), TextOf(b.FindBest(metric, mode))) << metric << BestModeName(mode);
    }
  }
  EXPECT_EQ(*a.RecordedBestModes(), *b.RecordedBestModes());
  for (uint8_t n = 0; n < 24; ++n)
    EXPECT_EQ(*a.IsReferenced(AttemptId{{n}}), *b.IsReferenced(AttemptId{{n}})) << int{n};
  EXPECT_EQ(TextOf(a.Deletions()), TextOf(b.Deletions()));
  const auto requests_a = a.Requests(), requests_b = b.Requests();
  ASSERT_THAT(requests_a, IsOk());
  ASSERT_THAT(requests_b, IsOk());
  ASSERT_EQ(requests_a->size(), requests_b->size());
  for (size_t i = 0; i < requests_a->size(); ++i) EXPECT_EQ((*requests_a)[i].id, (*requests_b)[i].id);
  const auto committed_a = a.Committed(), committed_b = b.Committed();
  ASSERT_THAT(committed_a, IsOk());
  ASSERT_THAT(committed_b, IsOk());
  ASSERT_EQ(committed_a->size(), committed_b->size());
  for (size_t i = 0; i < committed_a->size(); ++i) EXPECT_EQ((*committed_a)[i]->step, (*committed_b)[i]->step);
}

TEST(MemoryCatalogTest, AnswersAsTheIndexDoes) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    SimulatedDisk disk;
    auto index = Manifest::Create(disk, "/index", StoreId{{1}});
    ASSERT_THAT(index, IsOk());
    MemoryCatalog memory;
    Drawn drawn(seed);
    for (EntryNumber entry = 1; entry <= 30; ++entry) {
      std::vector<Fact> facts;
      for (int64_t i = drawn.Below(4); i >= 0; --i) {
        // As they are read.
        const absl::StatusOr<std::string> bytes = EncodeFact(drawn.Next());
        ASSERT_THAT(bytes, IsOk());
        facts.push_back(*DecodeFact(*bytes));
      }
      memory.Apply(facts);
      ASSERT_THAT(
          (*index)->Apply({.number = entry, .digest = Digest128{{static_cast<uint8_t>(entry)}}, .epoch = 1}, facts),
          IsOk());
      if (entry % 10 == 0) ExpectAlike(memory, **index);
    }
    const auto applied = (*index)->Applied();
    ASSERT_THAT(applied, IsOk());
    ASSERT_TRUE(applied->has_value());
    EXPECT_EQ((*applied)->number, 30u);
    EXPECT_EQ((*applied)->digest, Digest128{{30}});
  }
}

TEST(MemoryCatalogTest, ForgetsGarbageThatIsGone) {
  MemoryCatalog memory;
  for (const uint8_t attempt : {1, 2, 3}) {
    StepRecord record;
    record.info.step = 1;
    record.info.attempt = AttemptText(attempt);
    memory.Apply(std::vector<Fact>{StepFact{record}});
  }
  EXPECT_THAT(*memory.Deletions(), testing::SizeIs(2));
  const AttemptId first{{1}};
  memory.ForgetGarbage({&first, 1});
  ASSERT_THAT(*memory.Deletions(), testing::SizeIs(1));
  EXPECT_EQ((*memory.Deletions())[0].attempt, AttemptId{{2}});
}

}  // namespace
}  // namespace tidemark::storage
