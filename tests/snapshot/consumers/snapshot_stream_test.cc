#include "snapshot/consumers/snapshot_stream.h"

#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/staging/stager.h"
#include "tests/snapshot/evaluator_testing.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;

class Recorder final : public SnapshotConsumer {
 public:
  void Consume(std::shared_ptr<const StagedSnapshot> snapshot) override {
    if (gate != nullptr) gate->WaitForNotification();
    steps.push_back(snapshot->step());
  }
  absl::Notification* gate = nullptr;
  std::vector<int64_t> steps;
};

std::shared_ptr<const StagedSnapshot> MakeSnapshot(Stager& stager, int64_t step) {
  State state;
  return *stager.Begin(step, state, {}, absl::UnixEpoch());
}

TEST(SnapshotStream, HandsEverySnapshotToEveryConsumerInOrder) {
  Stager stager({.staging_bytes_max = 1 << 20});
  Recorder one;
  Recorder two;
  SnapshotStream stream;
  ASSERT_TRUE(stream.AddConsumer(&one).ok());
  ASSERT_TRUE(stream.AddConsumer(&two).ok());
  for (int64_t step : {3, 5, 8}) stream.Publish(MakeSnapshot(stager, step));
  stream.Drain();
  EXPECT_THAT(one.steps, testing::ElementsAre(3, 5, 8));
  EXPECT_THAT(two.steps, testing::ElementsAre(3, 5, 8));
}

TEST(SnapshotStream, DoesNotLetOneConsumerHoldUpAnotherOrThePublisher) {
  Stager stager({.staging_bytes_max = 1 << 20});
  absl::Notification gate;
  absl::Notification passed;
  Recorder slow;
  slow.gate = &gate;
  class Passing final : public SnapshotConsumer {
   public:
    explicit Passing(absl::Notification& passed) : passed_(passed) {}
    void Consume(std::shared_ptr<const StagedSnapshot> snapshot) override {
      if (snapshot->step() == 2) passed_.Notify();
    }

   private:
    absl::Notification& passed_;
  } quick(passed);
  SnapshotStream stream;
  ASSERT_TRUE(stream.AddConsumer(&slow).ok());
  ASSERT_TRUE(stream.AddConsumer(&quick).ok());
  for (int64_t step : {1, 2}) stream.Publish(MakeSnapshot(stager, step));
  passed.WaitForNotification();
  gate.Notify();
  stream.Drain();
  EXPECT_THAT(slow.steps, testing::ElementsAre(1, 2));
}

TEST(SnapshotStream, GivesTheMemoryBackWhenTheLastConsumerReleasesIt) {
  Stager stager({.staging_bytes_max = 1 << 20});
  Recorder consumer;
  SnapshotStream stream;
  ASSERT_TRUE(stream.AddConsumer(&consumer).ok());
  stream.Publish(MakeSnapshot(stager, 1));
  stream.Drain();
  EXPECT_EQ(stager.arena().bytes_in_use(), 0u);
}

TEST(SnapshotStream, NamesTheSavesThatAreInHandAtTheDeadline) {
  Stager stager({.staging_bytes_max = 1 << 20});
  absl::Notification gate;
  Recorder consumer;
  consumer.gate = &gate;
  SnapshotStream stream;
  ASSERT_TRUE(stream.AddConsumer(&consumer).ok());
  EXPECT_TRUE(stream.ConsumersAreIdle());
  for (int64_t step : {3, 5}) stream.Publish(MakeSnapshot(stager, step));
  EXPECT_FALSE(stream.ConsumersAreIdle());
  std::vector<std::string> still_running;
  size_t saves = 0;
  EXPECT_FALSE(stream.DrainUntil(Deadline::Passed(), &still_running, &saves));
  EXPECT_THAT(still_running, testing::ElementsAre("the save of step 3", "the save of step 5"));
  EXPECT_EQ(saves, 2u);
  gate.Notify();
  still_running.clear();
  EXPECT_TRUE(stream.DrainUntil(Deadline::Never(), &still_running));
  EXPECT_THAT(still_running, testing::IsEmpty());
  EXPECT_TRUE(stream.ConsumersAreIdle());
  EXPECT_THAT(consumer.steps, testing::ElementsAre(3, 5));
}

TEST(SnapshotStream, RefusesAnEvaluatorOfATakenNameOrWithoutAFunctionOrOfBadOptions) {
  RecordingSink sink;
  TestShelf shelf;
  const EvaluatorHost host{.sink = &sink, .shelf = &shelf, .now = absl::Now};
  const EvaluatorFunction function = [](const Snapshot&) { return Verdict(); };
  SnapshotStream stream;
  ASSERT_THAT(stream.AddEvaluator({.name = "a"}, function, host), IsOk());
  EXPECT_THAT(stream.AddEvaluator({.name = "a"}, function, host),
              StatusIs(absl::StatusCode::kAlreadyExists, testing::HasSubstr("'a'")));
  EXPECT_THAT(stream.AddEvaluator({.name = "b"}, nullptr, host),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("'b' has no function")));
  EXPECT_THAT(stream.AddEvaluator({.name = "b", .threads = 0}, function, host),
              StatusIs(absl::StatusCode::kInvalidArgument, testing::HasSubstr("threads is 0")));
  EXPECT_THAT(stream.AddEvaluator({.name = "b"}, function, host), IsOk());
}

// Like the persister with what is not to be saved: holds it until it is staged.
class Holder final : public SnapshotConsumer {
 public:
  void Consume(std::shared_ptr<const StagedSnapshot> snapshot) override {
    snapshot->progress()->WaitUntilEnded().IgnoreError();
  }
};

TEST(SnapshotStream, ResolvesWhatIsNotToBeSavedWhenEverybodyHasReleasedIt) {
  RecordingSink sink;
  TestShelf shelf;
  Gate gate;
  Holder holder;
  SnapshotStream stream;
  StreamTrainer trainer(stream, 1);
  ASSERT_THAT(stream.AddConsumer(&holder), IsOk());
  ASSERT_THAT(stream.AddEvaluator({.name = "e"}, gate.function(), {.sink = &sink, .shelf = &shelf, .now = absl::Now}),
              IsOk());
  trainer.Save(4, /*persist=*/false);
  gate.AwaitCalls(1);
  EXPECT_FALSE(trainer.committed(4).ready());
  gate.LetThrough(1);
  EXPECT_THAT(trainer.committed(4).Wait(), IsOk());
  EXPECT_EQ(trainer.snapshots_held(), 0u);
  EXPECT_THAT(sink.lines(), testing::ElementsAre("4 done"));
}

TEST(SnapshotStream, ResolvesWhatIsNotToBeSavedWithTheFailureOfItsStaging) {
  Holder holder;
  SnapshotStream stream;
  StreamTrainer trainer(stream, 1);
  ASSERT_THAT(stream.AddConsumer(&holder), IsOk());
  trainer.Save(4, /*persist=*/false, absl::InternalError("the device fell off the bus"));
  EXPECT_THAT(trainer.committed(4).Wait(), StatusIs(absl::StatusCode::kInternal, testing::HasSubstr("fell off")));
  EXPECT_EQ(trainer.snapshots_held(), 0u);
}

}  // namespace
}  // namespace tidemark
