// SnapshotStream::MakeRoom: what waits under WhenLagging::kLatest makes room for saves that find none.

#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/evaluator_testing.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::ElementsAre;
using testing::IsEmpty;

class MakingRoomTest : public testing::Test {
 protected:
  void Add(EvaluatorOptions options) { Add(std::move(options), gate_.function()); }
  void Add(EvaluatorOptions options, EvaluatorFunction function) {
    if (options.name.empty()) options.name.push_back('e');
    ASSERT_THAT(stream_.AddEvaluator(std::move(options), std::move(function), host_), IsOk());
  }

  RecordingSink sink_;
  TestShelf shelf_;
  const EvaluatorHost host_{.sink = &sink_, .shelf = &shelf_, .now = absl::Now};
  Gate gate_;
  SnapshotStream stream_;
};

TEST_F(MakingRoomTest, LatestGivesTheMemoryOfWhatWaitsToASaveThatFindsNoRoom) {
  Add({.when_lagging = WhenLagging::kLatest});
  StreamTrainer trainer(stream_, 2);
  trainer.Save(1);
  gate_.AwaitCalls(1);
  for (int64_t step : {2, 3, 4}) trainer.Save(step);  // each in the memory of the one before
  gate_.LetThrough(10);
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), ElementsAre(1, 4));
  EXPECT_THAT(sink_.lines(), ElementsAre("2 skipped: a save needed its memory", "3 skipped: a save needed its memory",
                                         "1 done", "4 done"));
}

TEST_F(MakingRoomTest, LatestGivesMemoryAlsoToStepsThatItIsNotToEvaluate) {
  Gate other;
  Add({.when_lagging = WhenLagging::kLatest, .every_steps = 10});
  StreamTrainer trainer(stream_, 3);
  trainer.Save(0);
  gate_.AwaitCalls(1);
  Add({.name = "other", .when_lagging = WhenLagging::kLatest, .every_steps = 5}, other.function());
  trainer.Save(5);
  other.AwaitCalls(1);
  // Both are stuck, each on a snapshot of its own, and wait for the same one of step 10.
  for (int64_t step = 6; step <= 19; ++step) trainer.Save(step);
  EXPECT_EQ(trainer.snapshots_held(), 2u);
  EXPECT_THAT(sink_.lines(), ElementsAre("10 skipped: a save needed its memory", "10 skipped: a save needed its memory",
                                         "15 skipped: a save needed its memory"));
  gate_.LetThrough(10);
  other.LetThrough(10);
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), ElementsAre(0));
  EXPECT_THAT(other.seen(), ElementsAre(5));
}

TEST_F(MakingRoomTest, LatestKeepsWhatWaitsWhereASaveIsNotMade) {
  Add({.when_lagging = WhenLagging::kLatest});
  StreamTrainer trainer(stream_, 3);
  trainer.Save(1);
  gate_.AwaitCalls(1);
  trainer.Save(2);
  EXPECT_TRUE(trainer.FindsRoom(3));  // and then the state cannot be copied, say
  gate_.LetThrough(10);
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), ElementsAre(1, 2));
}

TEST_F(MakingRoomTest, LatestGivesUpNothingForMemoryThatSomebodyElseHolds) {
  Gate other;
  Add({.when_lagging = WhenLagging::kLatest});
  StreamTrainer trainer(stream_, 2);
  trainer.Save(1);
  gate_.AwaitCalls(1);
  Add({.name = "other", .when_lagging = WhenLagging::kSkip}, other.function());
  trainer.Save(2);
  other.AwaitCalls(1);
  EXPECT_FALSE(trainer.FindsRoom(3));
  EXPECT_THAT(sink_.lines(), IsEmpty());
  gate_.LetThrough(10);
  other.LetThrough(10);
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), ElementsAre(1, 2));
}

TEST_F(MakingRoomTest, LatestGivesMemoryToASaveThatWaitsAsSoonAsNobodyElseHoldsIt) {
  Gate other;
  Add({.when_lagging = WhenLagging::kLatest});
  StreamTrainer trainer(stream_, 2, WhenFull::kBlock);
  trainer.Save(1);
  gate_.AwaitCalls(1);
  Add({.name = "other", .when_lagging = WhenLagging::kSkip}, other.function());
  trainer.Save(2);
  other.AwaitCalls(1);
  std::thread thread([&] { trainer.Save(3); });
  other.LetThrough(10);
  thread.join();  // while the first evaluator is stuck on step 1
  EXPECT_EQ(gate_.left(), 0u);
  gate_.LetThrough(10);
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), ElementsAre(1, 3));
}

}  // namespace
}  // namespace tidemark
