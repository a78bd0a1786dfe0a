#include "snapshot/consumers/evaluator_queue.h"

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/restore/stored_snapshot.h"
#include "tests/snapshot/evaluator_testing.h"
#include "tests/snapshot/other_process.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class EvaluatorQueueTest : public testing::Test {
 protected:
  void Add(EvaluatorOptions options) { Add(std::move(options), gate_.function()); }
  void Add(EvaluatorOptions options, EvaluatorFunction function) {
    if (options.name.empty()) options.name = "e";
    ASSERT_THAT(stream_.AddEvaluator(std::move(options), std::move(function), host_), IsOk());
  }

  RecordingSink sink_;
  TestShelf shelf_;
  const absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  const EvaluatorHost host_{.sink = &sink_, .shelf = &shelf_, .now = [this] { return now_; }};
  Gate gate_;
  SnapshotStream stream_;
};

TEST_F(EvaluatorQueueTest, CallsTheFunctionWithEverySnapshotInTheStagingMemory) {
  StreamTrainer trainer(stream_, 1);
  std::vector<float> weights(512);
  Add({}, [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
    EXPECT_NE(dynamic_cast<const StagedSnapshot*>(&snapshot), nullptr);
    const std::span<const std::byte> bytes = snapshot.bytes(*snapshot.Find("weight"));
    std::memcpy(weights.data(), bytes.data(), bytes.size());
    EXPECT_EQ(trainer.snapshots_held(), 1u);
    return Verdict({{"loss", 0.25}}, "the loss is odd");
  });
  trainer.Save(3);
  stream_.DrainEvaluators();
  for (size_t i = 0; i < weights.size(); ++i) ASSERT_EQ(weights[i], StreamTrainer::Weight(3, i));
  EXPECT_EQ(trainer.snapshots_held(), 0u);
  ASSERT_THAT(sink_.lines(), ElementsAre("3 done"));
  const Evaluation row = sink_.rows()[0].second;
  EXPECT_EQ(row.evaluator, "e");
  EXPECT_EQ(row.worker, "trainer");
  EXPECT_EQ(row.metrics, (Metrics{{"loss", 0.25}}));
  EXPECT_EQ(row.unhealthy, "the loss is odd");
  EXPECT_EQ(row.reported, now_);
  EXPECT_GT(row.took, absl::ZeroDuration());
}

TEST_F(EvaluatorQueueTest, PassesOverStepsThatAreNotMultiplesWithoutARow) {
  Add({.every_steps = 3});
  gate_.LetThrough(10);
  StreamTrainer trainer(stream_, 8);
  for (int64_t step = 0; step <= 6; ++step) trainer.Save(step);
  stream_.DrainEvaluators();
  for (const auto& [step, row] : sink_.rows()) EXPECT_EQ(step % 3, 0);
  EXPECT_EQ(sink_.rows().size(), 3u);
}

TEST_F(EvaluatorQueueTest, LatestTakesThePlaceOfWhatWaitsWithoutHoldingUpTheTrainer) {
  Add({.when_lagging = WhenLagging::kLatest});
  StreamTrainer trainer(stream_, 3);
  trainer.Save(1);
  gate_.AwaitCalls(1);
  for (int64_t step : {2, 3, 4}) trainer.Save(step);
  EXPECT_EQ(trainer.snapshots_held(), 2u);
  gate_.LetThrough(10);
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), ElementsAre(1, 4));
  EXPECT_THAT(sink_.lines(), ElementsAre("2 skipped: a newer snapshot took its place",
                                         "3 skipped: a newer snapshot took its place", "1 done", "4 done"));
  EXPECT_EQ(trainer.snapshots_held(), 0u);
}

TEST_F(EvaluatorQueueTest, ASaveThatIsNotToBePersistedEndsAfterItsRow) {
  StreamTrainer trainer(stream_, 1);
  Add({.half_precision = HalfPrecision::kBfloat16});
  trainer.Save(1, /*persist=*/false);
  gate_.AwaitCalls(1);
  EXPECT_EQ(trainer.snapshots_held(), 0u);
  EXPECT_FALSE(trainer.committed(1).ready());
  gate_.LetThrough(1);
  EXPECT_THAT(trainer.committed(1).Wait(), IsOk());
  EXPECT_THAT(sink_.lines(), ElementsAre("1 done"));
}

TEST_F(EvaluatorQueueTest, LatestKeepsAsManyAsMayBePending) {
  Add({.max_pending = 3, .when_lagging = WhenLagging::kLatest});
  StreamTrainer trainer(stream_, 8);
  trainer.Save(1);
  gate_.AwaitCalls(1);
  for (int64_t step : {2, 3, 4, 5}) trainer.Save(step);
  EXPECT_EQ(trainer.snapshots_held(), 3u);
  gate_.LetThrough(10);
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), ElementsAre(1, 4, 5));
}

TEST_F(EvaluatorQueueTest, LatestWithRoomForOneSnapshotHoldsUpTheTrainerOnlyAsLongAsItIsEvaluated) {
  Add({.when_lagging = WhenLagging::kLatest});
  StreamTrainer trainer(stream_, 1, WhenFull::kBlock);
  trainer.Save(1);
  gate_.AwaitCalls(1);
  absl::Notification saving;
  std::thread thread([&] {
    saving.Notify();
    trainer.Save(2);
    EXPECT_GE(gate_.left(), 1u);
  });
  saving.WaitForNotification();
  gate_.LetThrough(10);
  thread.join();
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), ElementsAre(1, 2));
}

TEST_F(EvaluatorQueueTest, SkipLeavesOutTheNewOneAndSaysWhatItWasBusyWith) {
  Add({.when_lagging = WhenLagging::kSkip});
  StreamTrainer trainer(stream_, 2);
  trainer.Save(1);
  gate_.AwaitCalls(1);
  for (int64_t step : {2, 3}) {
    trainer.Save(step);
    EXPECT_EQ(trainer.snapshots_held(), 1u);
  }
  gate_.LetThrough(10);
  stream_.DrainEvaluators();
  trainer.Save(4);
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), ElementsAre(1, 4));
  EXPECT_THAT(sink_.lines(), ElementsAre("2 skipped: lagging: step 1 was still being evaluated",
                                         "3 skipped: lagging: step 1 was still being evaluated", "1 done", "4 done"));
}

TEST_F(EvaluatorQueueTest, BlockHoldsUpTheTrainerBeforeItAsksForMemory) {
  Add({.when_lagging = WhenLagging::kBlock});
  StreamTrainer trainer(stream_, 2);
  trainer.Save(1);
  gate_.AwaitCalls(1);
  absl::Notification saving;
  std::thread thread([&] {
    saving.Notify();
    trainer.Save(2);
    EXPECT_EQ(gate_.left(), 1u);
    EXPECT_GT(trainer.waited(), absl::ZeroDuration());
  });
  saving.WaitForNotification();
  EXPECT_EQ(trainer.snapshots_held(), 1u);
  gate_.LetThrough(1);
  gate_.AwaitCalls(2);
  thread.join();
  gate_.LetThrough(2);
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), ElementsAre(1, 2));
  EXPECT_THAT(sink_.lines(), ElementsAre("1 done", "2 done"));
}

TEST_F(EvaluatorQueueTest, BlockWithSeveralEvaluatorsLosesNothingAndNeedsNoMoreMemoryThanTheyMayHold) {
  std::vector<int64_t> quick;
  Add({.max_pending = 2, .when_lagging = WhenLagging::kBlock},
      [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
        quick.push_back(snapshot.step());
        return Verdict();
      });
  Add({.name = "other", .when_lagging = WhenLagging::kBlock});
  gate_.LetThrough(100);
  StreamTrainer trainer(stream_, 2);  // no Save fails for want of room
  std::vector<int64_t> all;
  for (int64_t step = 1; step <= 50; ++step) {
    trainer.Save(step);
    all.push_back(step);
  }
  stream_.DrainEvaluators();
  EXPECT_EQ(quick, all);
  EXPECT_EQ(gate_.seen(), all);
}

TEST_F(EvaluatorQueueTest, CallsOnAsManyThreadsAsItIsGiven) {
  Add({.max_pending = 2, .when_lagging = WhenLagging::kSkip, .threads = 2});
  StreamTrainer trainer(stream_, 4);
  trainer.Save(1);
  trainer.Save(2);
  gate_.AwaitCalls(2);  // both are in the function
  trainer.Save(3);
  gate_.LetThrough(2);
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), testing::UnorderedElementsAre(1, 2));
  EXPECT_EQ(sink_.lines()[0], "3 skipped: lagging: step 1 was still being evaluated");
}

TEST_F(EvaluatorQueueTest, LatestDoesNotEvaluateMoreThanMayBePending) {
  Add({.max_pending = 1, .when_lagging = WhenLagging::kLatest, .threads = 3});
  StreamTrainer trainer(stream_, 2);
  trainer.Save(1);
  gate_.AwaitCalls(1);
  trainer.Save(2);
  trainer.Save(3);
  EXPECT_THAT(gate_.seen(), ElementsAre(1));
  gate_.LetThrough(10);
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), ElementsAre(1, 3));
}

TEST_F(EvaluatorQueueTest, MakesARowOfWhateverTheFunctionThrowsOrReturnsAndGoesOn) {
  Add({.max_pending = 9, .when_lagging = WhenLagging::kBlock}, [](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
    switch (snapshot.step()) {
      case 1:
        throw std::runtime_error("no such batch");
      case 2:
        throw 2;
      case 3:
        return absl::UnavailableError("the data set is gone");
      case 4:
        return Verdict({{"", 1.0}}, "3 NaN");
      default:
        return Verdict({{"loss", 1.0}});
    }
  });
  StreamTrainer trainer(stream_, 9);
  for (int64_t step = 1; step <= 5; ++step) trainer.Save(step);
  stream_.DrainEvaluators();
  EXPECT_THAT(
      sink_.lines(),
      ElementsAre("1 failed: it threw: no such batch", "2 failed: it threw something other than a std::exception",
                  "3 failed: UNAVAILABLE: the data set is gone",
                  testing::StartsWith("4 failed: INVALID_ARGUMENT: evaluator 'e': the metric's name"), "5 done"));
  EXPECT_THAT(sink_.rows()[3].second.metrics, IsEmpty());
  EXPECT_EQ(sink_.rows()[3].second.unhealthy, "3 NaN") << "that counts all the same";
  EXPECT_EQ(trainer.snapshots_held(), 0u);
}

TEST_F(EvaluatorQueueTest, HandsOverTheEntriesThatMatch) {
  std::vector<std::string> names;
  Add({.entries = {"we*"}}, [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
    for (const EntrySpec& entry : snapshot.entries()) names.push_back(entry.name);
    return Verdict();
  });
  Add({.name = "mistaken", .entries = {"we*", "modle.*"}});
  StreamTrainer trainer(stream_, 1);
  trainer.Save(1);
  stream_.DrainEvaluators();
  EXPECT_THAT(names, ElementsAre("weight"));
  EXPECT_THAT(gate_.seen(), IsEmpty());
  EXPECT_THAT(sink_.lines(),
              testing::UnorderedElementsAre("1 done", "1 failed: pattern 'modle.*' matches no entry of the snapshot"));
}

TEST_F(EvaluatorQueueTest, GivesTheStagingMemoryBackBeforeItEvaluatesInHalf) {
  std::vector<uint16_t> halves;
  StreamTrainer trainer(stream_, 1);
  Add({.half_precision = HalfPrecision::kBfloat16}, [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
    const size_t weight = *snapshot.Find("weight");
    EXPECT_EQ(snapshot.entries()[weight].dtype, Dtype::kBfloat16);
    halves.resize(snapshot.bytes(weight).size() / 2);
    std::memcpy(halves.data(), snapshot.bytes(weight).data(), snapshot.bytes(weight).size());
    return gate_(snapshot);
  });
  trainer.Save(1);
  gate_.AwaitCalls(1);
  EXPECT_EQ(trainer.snapshots_held(), 0u);
  gate_.LetThrough(1);
  stream_.DrainEvaluators();
  ASSERT_EQ(halves.size(), 512u);
  EXPECT_EQ(halves[0], 0x3f80);    // 1
  EXPECT_EQ(halves[256], 0x3fc0);  // 1.5
}

TEST_F(EvaluatorQueueTest, LeavesOutWhatWasNotStaged) {
  Add({});
  StreamTrainer trainer(stream_, 1);
  trainer.Save(1, true, absl::InternalError("the device fell off the bus"));
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), IsEmpty());
  EXPECT_THAT(sink_.lines(), ElementsAre("1 skipped: it was not staged: the device fell off the bus"));
  EXPECT_EQ(trainer.snapshots_held(), 0u);
}

TEST_F(EvaluatorQueueTest, QueueHoldsNoMemoryPastTheBoundAndReadsTheCommittedStep) {
  // The same steps in a store.
  storage::TestDirectory directory;
  const storage::StoreLayout layout(directory / "store");
  SnapshotStream unused;
  StreamTrainer other(unused, 1);
  {
    auto checkpointer = AsyncCheckpointer::Open({.directory = layout.directory()});
    ASSERT_THAT(checkpointer, IsOk());
    for (int64_t step : {2, 3}) {
      other.Save(step);  // sets the weights
      ASSERT_THAT((*checkpointer)->Save(step, other.state()), IsOk());
    }
    ASSERT_THAT((*checkpointer)->Close(), IsOk());
  }
  const absl::StatusOr<storage::StoreId> id = storage::ReadStoreIdentity(storage::PosixFileSystem(), layout);
  ASSERT_THAT(id, IsOk());
  const auto journal = OtherProcess(layout.directory()).Open();
  ASSERT_THAT(journal, IsOk());
  const storage::ShardReadOptions read;
  TestShelf shelf([&](int64_t step, std::vector<std::string> patterns,
                      HalfPrecision half) -> absl::StatusOr<SnapshotShelf::Reading> {
    auto record = (*journal)->catalog().Find(step);
    return SnapshotShelf::Reading{.attempt = (*record)->info.attempt, .read = [&, record = **record, patterns, half]() {
                                    return OpenStoredSnapshot({storage::PosixFileSystem(), layout, *id, read}, record,
                                                              patterns, half, CompanionEntries::kNever);
                                  }};
  });
  std::vector<std::vector<float>> weights;
  const EvaluatorHost host{.sink = &sink_, .shelf = &shelf, .now = absl::Now};
  const auto evaluate = [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
    const std::span<const std::byte> bytes = snapshot.bytes(*snapshot.Find("weight"));
    EXPECT_EQ(snapshot.entries().size(), 1u);
    weights.emplace_back(bytes.size() / sizeof(float));
    std::memcpy(weights.back().data(), bytes.data(), bytes.size());
    return gate_(snapshot);
  };
  ASSERT_THAT(
      stream_.AddEvaluator({.name = "e", .when_lagging = WhenLagging::kQueue, .entries = {"weight"}}, evaluate, host),
      IsOk());
  StreamTrainer trainer(stream_, 2);
  trainer.Save(1);
  gate_.AwaitCalls(1);
  trainer.Save(2);
  trainer.Save(3);
  EXPECT_EQ(trainer.snapshots_held(), 1u);
  EXPECT_THAT(shelf.claimed(), ElementsAre(2, 3));
  gate_.LetThrough(10);
  trainer.Settle(3, absl::OkStatus());  // not in order
  trainer.Settle(2, absl::OkStatus());
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), ElementsAre(1, 2, 3));
  EXPECT_THAT(sink_.lines(), ElementsAre("1 done", "2 done", "3 done"));
  EXPECT_THAT(shelf.claimed(), IsEmpty());
  ASSERT_EQ(weights.size(), 3u);
  for (int64_t step : {1, 2, 3}) {
    for (size_t i = 0; i < 512; ++i) {
      ASSERT_EQ(weights[static_cast<size_t>(step - 1)][i], StreamTrainer::Weight(step, i)) << step;
    }
  }
}

TEST_F(EvaluatorQueueTest, QueueSaysWhyThereIsNothingToRead) {
  Add({.when_lagging = WhenLagging::kQueue});
  StreamTrainer trainer(stream_, 2);
  trainer.Save(1);
  gate_.AwaitCalls(1);
  for (int64_t step : {2, 3}) trainer.Save(step);
  gate_.LetThrough(10);
  trainer.Settle(2, absl::ResourceExhaustedError("step 2 was not committed: the disk is full"));
  trainer.Settle(3, absl::OkStatus());
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), ElementsAre(1));
  EXPECT_THAT(
      sink_.lines(),
      ElementsAre("1 done", "2 failed: there is nothing to evaluate: step 2 was not committed: the disk is full",
                  "3 failed: step 3 is not committed"));
  EXPECT_THAT(shelf_.claimed(), IsEmpty());
  EXPECT_EQ(shelf_.damage(), 0) << "none was met";
}

TEST_F(EvaluatorQueueTest, QueueHoldsUpTheTrainerWhereNothingIsToBeSaved) {
  Add({.when_lagging = WhenLagging::kQueue});
  StreamTrainer trainer(stream_, 2);
  trainer.Save(1);
  gate_.AwaitCalls(1);
  absl::Notification saving;
  std::thread thread([&] {
    saving.Notify();
    trainer.Save(2, /*persist=*/false);
    EXPECT_EQ(gate_.left(), 1u);
  });
  saving.WaitForNotification();
  gate_.LetThrough(1);
  thread.join();
  gate_.LetThrough(2);
  stream_.DrainEvaluators();
  EXPECT_THAT(gate_.seen(), ElementsAre(1, 2));
  EXPECT_THAT(shelf_.claimed(), IsEmpty());
}

TEST_F(EvaluatorQueueTest, NamesWhatIsStillRunningAtTheDeadlineAndDropsNothing) {
  Add({.name = "slow", .max_pending = 2, .when_lagging = WhenLagging::kSkip});
  StreamTrainer trainer(stream_, 3);
  for (int64_t step : {12, 13}) trainer.Save(step);
  gate_.AwaitCalls(1);
  std::vector<std::string> still_running;
  EXPECT_FALSE(stream_.DrainUntil(Deadline::Passed(), &still_running));
  EXPECT_THAT(still_running,
              ElementsAre("evaluator 'slow' at step 12", "evaluator 'slow', which has not read 1 steps from 13 on"));
  gate_.LetThrough(2);
  still_running.clear();
  EXPECT_TRUE(stream_.DrainUntil(Deadline::Never(), &still_running));
  EXPECT_THAT(still_running, IsEmpty());
  EXPECT_THAT(sink_.lines(), ElementsAre("12 done", "13 done"));
}

TEST(EvaluatorQueue, LeavesAFunctionThatDoesNotReturnToItselfWithAllThatItUses) {
  absl::Notification entered;
  absl::Notification release;
  absl::Notification gone;
  float last = 0;
  {
    auto sink = std::make_unique<RecordingSink>();
    auto shelf = std::make_unique<TestShelf>();
    auto stream = std::make_unique<SnapshotStream>();
    auto trainer = std::make_unique<StreamTrainer>(*stream, 3);
    // The function's own state says when the last of the evaluator is gone.
    const std::shared_ptr<int> state(new int(0), [&](int* number) {
      delete number;
      gone.Notify();
    });
    EvaluatorFunction function = [&, state](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
      entered.Notify();
      release.WaitForNotification();
      const std::span<const std::byte> bytes = snapshot.bytes(*snapshot.Find("weight"));
      std::memcpy(&last, bytes.data() + 511 * sizeof(float), sizeof(last));
      ++*state;
      return Verdict({{"loss", last}});
    };
    ASSERT_THAT(
        stream->AddEvaluator({.name = "stuck", .max_pending = 2, .when_lagging = WhenLagging::kSkip, .threads = 1},
                             std::move(function), {.sink = sink.get(), .shelf = shelf.get(), .now = absl::Now}),
        IsOk());
    trainer->Save(1);
    trainer->Save(2);
    entered.WaitForNotification();
    std::vector<std::string> still_running;
    EXPECT_FALSE(stream->DrainUntil(Deadline::Passed(), &still_running));
    EXPECT_EQ(still_running.front(), "evaluator 'stuck' at step 1");
    stream->StopEvaluators();
    EXPECT_THAT(sink->lines(), ElementsAre("2 skipped: the checkpointer was closed"));
    sink.reset();
    shelf.reset();
    trainer.reset();
    stream.reset();
  }
  EXPECT_FALSE(gone.HasBeenNotified());
  release.Notify();
  gone.WaitForNotification();
  EXPECT_EQ(last, StreamTrainer::Weight(1, 511));
}

TEST_F(EvaluatorQueueTest, ReleasesTheClaimsOfWhatIsLeftOutAtTheEnd) {
  Add({.when_lagging = WhenLagging::kQueue});
  StreamTrainer trainer(stream_, 2);
  trainer.Save(1);
  gate_.AwaitCalls(1);
  trainer.Save(2);
  EXPECT_THAT(shelf_.claimed(), ElementsAre(2));
  gate_.LetThrough(1);
  // Step 2 waits for its commit, which never comes.
  sink_.AwaitRows(1);
  stream_.StopEvaluators();
  EXPECT_THAT(shelf_.claimed(), IsEmpty());
  EXPECT_THAT(sink_.lines(), ElementsAre("1 done")) << "a later process may evaluate it";
  trainer.Settle(2, absl::OkStatus());  // nobody minds
}

TEST(EvaluatorOptions, AreHeldAgainstTheirRanges) {
  const auto check = [](EvaluatorOptions options) { return ValidateEvaluatorOptions(options); };
  EXPECT_THAT(check({.name = "validation"}), IsOk());
  EXPECT_THAT(check({.name = std::string(256, 'x'), .threads = 64}), IsOk());
  for (const std::string& name : {std::string(), std::string(257, 'x'), std::string("a/b"), std::string("\xff")}) {
    EXPECT_THAT(check({.name = name}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("EvaluatorOptions::name: ")));
  }
  EXPECT_THAT(check({.name = "e", .max_pending = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("max_pending is 0; it must be at least 1")));
  EXPECT_THAT(check({.name = "e", .every_steps = 0}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("every_steps is 0; it must be at least 1")));
  for (int threads : {0, 65}) {
    EXPECT_THAT(check({.name = "e", .threads = threads}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("it must be 1 to 64")));
  }
}

}  // namespace
}  // namespace tidemark
