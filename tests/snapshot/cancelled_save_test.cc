// SaveOptions::cancelled: a save that waits for an evaluator or for memory is given up, and the next one is whole.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/deadline.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/preemption_guard.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

TEST(CancellableWait, EndsAsTheWaitOrTheDeadlineOrTheCallerSays) {
  int waits = 0;
  const auto comes_at = [&](int count) { return [&waits, count](const Deadline&) { return ++waits == count; }; };
  const auto comes_never = [](const Deadline& until) {
    absl::SleepFor(until.left());
    return false;
  };
  EXPECT_EQ(AwaitUnlessCancelled([] { return false; }, Deadline::Never(), comes_at(3)), WaitEnd::kDone);
  EXPECT_EQ(waits, 3);
  EXPECT_EQ(AwaitUnlessCancelled(nullptr, Deadline::Passed(), comes_at(1)), WaitEnd::kDeadline);
  EXPECT_EQ(AwaitUnlessCancelled([] { return false; }, Deadline::After(3 * kCancellationInterval), comes_never),
            WaitEnd::kDeadline);
  int asked = 0;
  EXPECT_EQ(AwaitUnlessCancelled([&] { return ++asked == 2; }, Deadline::Never(), comes_never), WaitEnd::kCancelled);
  EXPECT_EQ(asked, 2);
}

TEST(CancellableWait, IsNotCutIntoPiecesForACallerWhoNeverCancels) {
  const auto has_no_end = [](const Deadline& until) { return until.left() == absl::InfiniteDuration(); };
  EXPECT_EQ(AwaitUnlessCancelled(nullptr, Deadline::Never(), has_no_end), WaitEnd::kDone);
}

// The state has 1.2 MB.
constexpr uint64_t kRoomForOne = 2 << 20;

// An evaluator stands still until the test lets it go on. It may outlive the checkpointer.
class CancelledSaveTest : public testing::Test {
 protected:
  struct Pause {
    std::atomic<bool> began = false;
    absl::Notification go_on;
  };

  void Open(CheckpointerOptions options, WhenLagging when_lagging) {
    options.directory = directory_ / "store";
    options.observer = NoWarnings();
    auto opened = AsyncCheckpointer::Open(std::move(options));
    ASSERT_THAT(opened, IsOk());
    checkpointer_ = *std::move(opened);
    const auto stands_still = [pause = pause_](const Snapshot&) -> absl::StatusOr<Verdict> {
      pause->began = true;
      pause->go_on.WaitForNotification();
      return Verdict();
    };
    ASSERT_THAT(checkpointer_->AddEvaluator({.name = "slow", .when_lagging = when_lagging}, stands_still), IsOk());
    ASSERT_THAT(Save(1), IsOk());
    while (!pause_->began) absl::SleepFor(absl::Milliseconds(1));
  }
  void TearDown() override {
    if (!pause_->go_on.HasBeenNotified()) pause_->go_on.Notify();
  }

  absl::StatusOr<SaveHandle> Save(int64_t step, std::function<bool()> cancelled = nullptr) {
    trainer_.SetTo(step);
    return checkpointer_->Save(step, trainer_.state, {.cancelled = std::move(cancelled)});
  }

  // A save and an evaluation are given up when they are told so; after that a save is committed.
  void ExpectGivenUp(const std::string& message) {
    const auto is_cancelled = StatusIs(absl::StatusCode::kCancelled, HasSubstr(message));
    int asked = 0;
    EXPECT_THAT(Save(2, [&] { return ++asked == 3; }), is_cancelled);
    EXPECT_EQ(asked, 3);
    EXPECT_THAT(checkpointer_->Evaluate(2, trainer_.state, {.cancelled = [] { return true; }}), is_cancelled);
    EXPECT_THAT(Save(2, []() -> bool { throw std::runtime_error("no signals"); }),
                StatusIs(absl::StatusCode::kInternal, HasSubstr("no signals")));
    EXPECT_THAT(checkpointer_->CheckForErrors(), IsOk());
    EXPECT_TRUE(checkpointer_->ShouldSave(2));
    pause_->go_on.Notify();
    auto save = Save(2);
    ASSERT_THAT(save, IsOk());
    EXPECT_THAT(save->committed().Wait(), IsOk());
    ASSERT_THAT(checkpointer_->WaitUntilEvaluated(), IsOk());
    ASSERT_THAT(checkpointer_->Restore(2, trainer_.state), IsOk());
    EXPECT_TRUE(trainer_.IsAt(2));
    const auto steps = checkpointer_->Steps();
    ASSERT_THAT(steps, IsOk());
    EXPECT_THAT(*steps, ElementsAre(Field(&StepInfo::step, 1), Field(&StepInfo::step, 2)));
  }

  const storage::TestDirectory directory_ = storage::TestDirectory::InMemory();
  TestTrainer trainer_;
  const std::shared_ptr<Pause> pause_ = std::make_shared<Pause>();
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
};

TEST_F(CancelledSaveTest, WaitsForAnEvaluatorNoLonger) {
  ASSERT_NO_FATAL_FAILURE(Open({}, WhenLagging::kBlock));
  ExpectGivenUp("step 2 was not saved: the wait for an evaluator was cancelled");
}

TEST_F(CancelledSaveTest, WaitsForMemoryNoLonger) {
  ASSERT_NO_FATAL_FAILURE(Open({.staging_bytes_max = kRoomForOne}, WhenLagging::kSkip));
  ExpectGivenUp("step 2 was not saved: the wait for staging memory was cancelled");
}

TEST_F(CancelledSaveTest, IsNotAskedWhereNothingIsWaitedFor) {
  ASSERT_NO_FATAL_FAILURE(Open({}, WhenLagging::kSkip));
  EXPECT_THAT(Save(2, []() -> bool { throw std::runtime_error("it was asked"); }), IsOk());
}

// The last one has a deadline of its own.
TEST_F(CancelledSaveTest, IsNotAskedByTheLastSaveOfAGuard) {
  ASSERT_NO_FATAL_FAILURE(Open({.staging_bytes_max = kRoomForOne}, WhenLagging::kBlock));
  auto guard = PreemptionGuard::Install({.signals = {}, .end = absl::Now() + absl::Seconds(3)});
  ASSERT_THAT(guard, IsOk());
  trainer_.SetTo(2);
  SaveOptions options;
  options.cancelled = [] { return true; };
  EXPECT_THAT((*guard)->SaveAndClose(*checkpointer_, 2, trainer_.state, std::move(options)).save, IsOk());
}

}  // namespace
}  // namespace tidemark
