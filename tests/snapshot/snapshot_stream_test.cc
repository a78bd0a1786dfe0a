#include "snapshot/snapshot_stream.h"

#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/stager.h"

namespace tidemark {
namespace {

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

TEST(SnapshotStream, GivesTheMemoryBackWhenTheLastConsumerLetsGo) {
  Stager stager({.staging_bytes_max = 1 << 20});
  Recorder consumer;
  SnapshotStream stream;
  ASSERT_TRUE(stream.AddConsumer(&consumer).ok());
  stream.Publish(MakeSnapshot(stager, 1));
  stream.Drain();
  EXPECT_EQ(stager.arena().bytes_in_use(), 0u);
}

}  // namespace
}  // namespace tidemark
