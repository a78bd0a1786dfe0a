#include "eval/step_backlog.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/memory_catalog.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::ElementsAre;
using testing::IsEmpty;

class StepBacklogTest : public testing::Test {
 protected:
  static storage::StepRecord Record(int64_t step, uint8_t sequence) {
    storage::StepRecord record;
    record.info.step = step;
    record.info.sequence = sequence;
    record.info.attempt = storage::ToHex(storage::AttemptId{{sequence}}.bytes);
    return record;
  }
  // Attempts are numbered in the order in which they are committed.
  void Commit(int64_t step) { Put(Record(step, ++sequence_)); }
  // The step has this record.
  void Put(storage::StepRecord record) {
    const storage::Fact fact = storage::StepFact{std::move(record)};
    catalog_.Apply({&fact, 1});
  }
  void Update() { ASSERT_THAT(backlog_.Update(catalog_, true, now_), IsOk()); }

  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    for (auto step = backlog_.FirstAfter(std::nullopt); step; step = backlog_.FirstAfter(step->step)) {
      steps.push_back(step->step);
    }
    return steps;
  }
  void FinishAll() {
    for (auto step = backlog_.FirstAfter(std::nullopt); step; step = backlog_.FirstAfter(std::nullopt))
      backlog_.Done(*step);
  }

  storage::MemoryCatalog catalog_;
  uint8_t sequence_ = 0;
  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1000);
  StepBacklog backlog_{{.evaluator = "validation", .every_steps = 10, .begin_step = 20}};
};

TEST_F(StepBacklogTest, HasTheStepsThatAreAskedFor) {
  for (int64_t step : {40, 10, 25, 20, 30}) Commit(step);
  Update();
  EXPECT_THAT(Steps(), ElementsAre(20, 30, 40));
  EXPECT_EQ(backlog_.FirstAfter(20)->step, 30);
  EXPECT_FALSE(backlog_.highest_done().has_value());
}

TEST_F(StepBacklogTest, TakesInNewSteps) {
  Commit(20);
  Update();
  FinishAll();
  EXPECT_EQ(backlog_.highest_done(), 20);
  Update();
  EXPECT_THAT(Steps(), IsEmpty());
  Commit(30);
  Commit(40);
  Update();
  EXPECT_THAT(Steps(), ElementsAre(30, 40));
}

TEST_F(StepBacklogTest, FindsAnEarlierStepThatWasWrittenAnew) {
  for (int64_t step : {20, 30, 40}) Commit(step);
  Update();
  FinishAll();
  Commit(30);
  Commit(50);
  Update();
  const auto again = backlog_.FirstAfter(29);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->step, 30);
  EXPECT_EQ(again->attempt, (storage::AttemptId{{4}}));
  // With it, those are looked at once more that no record says are done.
  EXPECT_THAT(Steps(), ElementsAre(20, 30, 40, 50));
}

TEST_F(StepBacklogTest, FindsAStepThatWasWrittenTwiceAtOnce) {
  Commit(20);
  Update();
  FinishAll();
  Commit(30);
  Commit(30);
  Update();
  EXPECT_EQ(backlog_.FirstAfter(29)->attempt, (storage::AttemptId{{3}}));
}

// After a rollback, say.
TEST_F(StepBacklogTest, FindsAnEarlierStepThatWasSavedAfterOneThatFailed) {
  for (int64_t step : {20, 40}) Commit(step);
  Update();
  FinishAll();
  storage::StepRecord failed = Record(60, ++sequence_);
  failed.info.state = StepState::kFailed;
  Put(failed);
  Update();
  Commit(30);
  Update();
  const auto found = backlog_.FirstAfter(20);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 30);
}

TEST_F(StepBacklogTest, HasTheLastStepThatThereIs) {
  StepBacklog backlog({.evaluator = "validation"});
  const auto update = [&] { ASSERT_THAT(backlog.Update(catalog_, true, now_), IsOk()); };
  Commit(0);
  update();
  for (const int64_t step : {INT64_MAX - 1, INT64_MAX}) {
    Commit(step);
    update();
  }
  EXPECT_EQ(backlog.FirstAfter(0)->step, INT64_MAX - 1);
  EXPECT_EQ(backlog.FirstAfter(INT64_MAX - 1)->step, INT64_MAX);
  EXPECT_FALSE(backlog.FirstAfter(INT64_MAX).has_value());
  Commit(20);
  Commit(INT64_MAX);
  update();
  EXPECT_EQ(backlog.FirstAfter(0)->step, 20);
  EXPECT_EQ(backlog.FirstAfter(20)->step, INT64_MAX - 1);
  EXPECT_EQ(backlog.FirstAfter(INT64_MAX - 1)->attempt, (storage::AttemptId{{5}}));
}

TEST_F(StepBacklogTest, LeavesOutWhatIsDoneDeletedOrDamaged) {
  storage::StepRecord done = Record(20, ++sequence_);
  done.info.evaluations.push_back({.evaluator = "validation", .outcome = Evaluation::Outcome::kFailed});
  Put(done);
  storage::StepRecord another = Record(30, ++sequence_);
  another.info.evaluations.push_back({.evaluator = "another"});
  Put(another);
  storage::StepRecord damaged = Record(40, ++sequence_);
  damaged.info.state = StepState::kDamaged;
  Put(damaged);
  storage::StepRecord deleted = Record(50, ++sequence_);
  deleted.info.state = StepState::kDeleted;
  Put(deleted);
  Update();
  EXPECT_THAT(Steps(), ElementsAre(30));
  EXPECT_EQ(backlog_.highest_done(), 20);
}

TEST_F(StepBacklogTest, HasWhatFailedWhereThatIsToBeDoneAgain) {
  using Outcome = Evaluation::Outcome;
  for (const auto& [step, outcome] : {std::pair(20, Outcome::kFailed), std::pair(30, Outcome::kSkipped)}) {
    storage::StepRecord record = Record(step, ++sequence_);
    record.info.evaluations.push_back({.evaluator = "validation", .outcome = outcome});
    Put(record);
  }
  Update();
  EXPECT_THAT(Steps(), IsEmpty());
  StepBacklog again({.evaluator = "validation", .again_if_failed = true});
  ASSERT_THAT(again.Update(catalog_, true, now_), IsOk());
  ASSERT_TRUE(again.FirstAfter(std::nullopt).has_value());
  EXPECT_EQ(again.FirstAfter(std::nullopt)->step, 20);
  EXPECT_FALSE(again.FirstAfter(20).has_value());
  EXPECT_EQ(again.highest_done(), 30);
}

TEST_F(StepBacklogTest, KnowsHowFarTheStoreHasCome) {
  EXPECT_FALSE(backlog_.highest_seen().has_value());
  Commit(10);
  Update();
  EXPECT_EQ(backlog_.highest_seen(), 10) << "though nobody asks for it";
  storage::StepRecord lost = Record(45, ++sequence_);
  lost.info.state = StepState::kLost;
  Put(lost);
  storage::StepRecord failed = Record(50, ++sequence_);
  failed.info.state = StepState::kFailed;
  Put(failed);
  Update();
  EXPECT_EQ(backlog_.highest_seen(), 45) << "what could not be saved may be saved again";
  Commit(30);
  Update();
  EXPECT_EQ(backlog_.highest_seen(), 45);
}

TEST_F(StepBacklogTest, FindsAStepThatIsSoundAgainWhenAllIsReadAgain) {
  storage::StepRecord record = Record(20, ++sequence_);
  record.info.state = StepState::kDamaged;
  Put(record);
  Commit(30);
  Update();
  EXPECT_THAT(Steps(), ElementsAre(30));
  record.info.state = StepState::kCommitted;
  Put(record);
  Update();
  EXPECT_THAT(Steps(), ElementsAre(30)) << "no attempt is new";
  now_ += StepBacklog::kFullReadInterval;
  ASSERT_THAT(backlog_.Update(catalog_, false, now_), IsOk());
  EXPECT_THAT(Steps(), ElementsAre(20, 30)) << "of a change before";
}

TEST_F(StepBacklogTest, ReadsNothingAgainWhileNothingChanges) {
  Commit(20);
  Update();
  FinishAll();
  now_ += StepBacklog::kFullReadInterval;
  ASSERT_THAT(backlog_.Update(catalog_, false, now_), IsOk());
  EXPECT_THAT(Steps(), IsEmpty()) << "else the step would be back, since its record does not say that it is done";
}

TEST_F(StepBacklogTest, KeepsTheNewAttemptWhenTheOldOneIsDone) {
  Commit(20);
  Update();
  const auto old = backlog_.FirstAfter(std::nullopt);
  ASSERT_TRUE(old.has_value());
  Commit(20);
  Update();
  backlog_.Done(*old);
  ASSERT_TRUE(backlog_.FirstAfter(std::nullopt).has_value());
  EXPECT_EQ(backlog_.FirstAfter(std::nullopt)->attempt, (storage::AttemptId{{2}}));
  backlog_.Drop(*backlog_.FirstAfter(std::nullopt));
  EXPECT_FALSE(backlog_.FirstAfter(std::nullopt).has_value());
}

}  // namespace
}  // namespace tidemark
