// AsyncCheckpointer::Close with a deadline, and destruction, while something never comes to an end by itself.

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/gated_state.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using storage::FailingFileSystem;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class CheckpointerClosingTest : public testing::Test {
 protected:
  // What is left to itself uses this, until it releases the store.
  void TearDown() override { OpenWhenReleased(); }

  struct World {
    storage::TestDirectory directory;
    FailingFileSystem files{storage::PosixFileSystem()};
    absl::Notification gate;     // for the disk, once it is held
    absl::Notification at_gate;  // somebody has come to it
    TestTrainer trainer;
    GatedState gated_state;
  };

  absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> TryOpen(CheckpointerOptions options = {}) {
    options.directory = world_.directory / "store";
    if (options.observer == nullptr) options.observer = NoWarnings();
    options.tuning.codec_threads = 1;
    options.tuning.io = IoBackend::kThreads;
    return CheckpointerOnFileSystem::Open(world_.files, std::move(options));
  }

  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options = {}) {
    auto checkpointer = TryOpen(std::move(options));
    EXPECT_THAT(checkpointer, IsOk());
    return checkpointer.ok() ? *std::move(checkpointer) : nullptr;
  }

  // As another process would, on a file system that is not held.
  absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> TryOpenBeside() {
    return AsyncCheckpointer::Open(
        {.directory = world_.directory / "store", .tuning = {.io = IoBackend::kThreads}, .observer = NoWarnings()});
  }

  // Once whoever was left to itself has released the store.
  std::unique_ptr<AsyncCheckpointer> OpenWhenReleased() {
    for (;;) {
      auto checkpointer = TryOpenBeside();
      if (checkpointer.ok()) return *std::move(checkpointer);
      if (!absl::IsUnavailable(checkpointer.status())) {
        ADD_FAILURE() << checkpointer.status();
        return nullptr;
      }
    }
  }

  // Every shard waits for the gate, and with it every other call.
  void HoldShards() {
    world_.files.SetRule([this](const FailingFileSystem::Call& call) {
      if (call.operation == "Create" && call.path.ends_with(".tmk")) {
        if (!world_.at_gate.HasBeenNotified()) world_.at_gate.Notify();
        world_.gate.WaitForNotification();
      }
      return absl::OkStatus();
    });
  }

  // `of` gives the future whose callback holds the last owner of the checkpointer, while the step is being saved.
  void DropInCallback(const std::function<Future(AsyncCheckpointer&, const SaveHandle&)>& of) {
    std::string warnings;
    std::shared_ptr<AsyncCheckpointer> checkpointer =
        Open({.observer = ObserverOf({.warning = [&](std::string_view line) { warnings += line; }})});
    HoldShards();
    auto save = checkpointer->Save(12, world_.trainer.state);
    ASSERT_THAT(save, IsOk());
    world_.at_gate.WaitForNotification();
    absl::Notification dropped;
    const Future future = of(*checkpointer, *save);
    future.OnReady([&dropped, owner = std::move(checkpointer)](const absl::Status& status) mutable {
      EXPECT_THAT(status, IsOk());
      owner.reset();
      dropped.Notify();
    });
    world_.gate.Notify();
    dropped.WaitForNotification();
    const std::unique_ptr<AsyncCheckpointer> next = OpenWhenReleased();
    ASSERT_NE(next, nullptr);
    EXPECT_EQ(next->LatestStep()->step, 12);
    EXPECT_EQ(warnings, "");
  }

  World world_;
};

// The callback runs on a thread of the checkpointer, which cannot wait for itself.
TEST_F(CheckpointerClosingTest, IsDoneForACallbackOfTheSaveThatDropsTheLastOwner) {
  DropInCallback([](AsyncCheckpointer&, const SaveHandle& save) { return save.committed(); });
}

TEST_F(CheckpointerClosingTest, IsDoneForACallbackOfCommittedThatDropsTheLastOwner) {
  DropInCallback([](AsyncCheckpointer& checkpointer, const SaveHandle&) { return checkpointer.Committed(12); });
}

// An operator pins a step just when the trainer starts.
TEST_F(CheckpointerClosingTest, IsAwaitedByOpenWhereCheckpointInspectHoldsTheStore) {
  ASSERT_THAT(Open()->Close(), IsOk());
  auto holder = storage::PosixFileSystem().TryLock(world_.directory / "store/LOCK");
  ASSERT_THAT(holder, IsOk());
  ASSERT_THAT((*holder)->WriteNote("{\"pid\":1,\"program\":\"checkpoint-inspect\"}\n"), IsOk());
  int tries = 0;
  world_.files.SetGate([&](const std::string& operation, const std::string& path) {
    if (operation == "TryLock" && path.ends_with("/store/LOCK") && ++tries == 3) holder->reset();
  });
  auto checkpointer = TryOpen();
  world_.files.SetGate(nullptr);
  ASSERT_THAT(checkpointer, IsOk());
  EXPECT_EQ(tries, 3);
}

TEST_F(CheckpointerClosingTest, NamesTheSavesThatWereStillRunningAndMayBeCalledAgain) {
  auto checkpointer = Open();
  HoldShards();
  auto first = checkpointer->Save(12, world_.trainer.state);
  ASSERT_THAT(first, IsOk());
  world_.at_gate.WaitForNotification();
  EXPECT_THAT(checkpointer->Close(absl::InfinitePast()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr(world_.directory / "store"), HasSubstr("the save of step 12"))));
  EXPECT_THAT(checkpointer->Save(13, world_.trainer.state),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("closed")));
  EXPECT_FALSE(checkpointer->ShouldSave(13));
  EXPECT_THAT(TryOpenBeside(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("store")));
  EXPECT_FALSE(first->committed().ready());
  world_.gate.Notify();
  EXPECT_THAT(checkpointer->Close(absl::InfiniteFuture()), IsOk());
  EXPECT_THAT(first->committed().Wait(), IsOk());
  EXPECT_EQ(Open()->LatestStep()->step, 12);
}

TEST_F(CheckpointerClosingTest, NeedsNoTimeWhereNothingRuns) {
  auto checkpointer = Open();
  auto save = checkpointer->Save(1, world_.trainer.state);
  ASSERT_THAT(save, IsOk());
  ASSERT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
  EXPECT_THAT(checkpointer->Close(absl::InfiniteFuture()), IsOk());
  EXPECT_THAT(checkpointer->Close(absl::InfinitePast()), IsOk()) << "closed it is";
}

TEST_F(CheckpointerClosingTest, UsesCloseTimeoutWithoutADeadline) {
  auto checkpointer = Open({.close_timeout = absl::Nanoseconds(1)});
  HoldShards();
  ASSERT_THAT(checkpointer->Save(3, world_.trainer.state), IsOk());
  EXPECT_THAT(checkpointer->Close(), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("the save of step 3")));
  world_.gate.Notify();
  EXPECT_THAT(checkpointer->Close(absl::InfiniteFuture()), IsOk());
}

TEST_F(CheckpointerClosingTest, DestructionDoesNotWaitAgainForWhatCloseHasWaitedFor) {
  auto checkpointer = Open({.close_timeout = absl::Hours(10)});
  HoldShards();
  auto save = checkpointer->Save(5, world_.trainer.state);
  ASSERT_THAT(save, IsOk());
  EXPECT_THAT(checkpointer->Close(absl::InfinitePast()), StatusIs(absl::StatusCode::kDeadlineExceeded, HasSubstr("5")));
  checkpointer.reset();
  EXPECT_FALSE(save->committed().ready());
  world_.gate.Notify();
  EXPECT_EQ(OpenWhenReleased()->LatestStep()->step, 5);
}

TEST_F(CheckpointerClosingTest, DestructionLeavesASaveToItselfAndItCommitsYet) {
  std::string warning;
  auto checkpointer =
      Open({.close_timeout = absl::Nanoseconds(1),
            .observer = ObserverOf({.warning = [&](std::string_view line) { warning += std::string(line); }})});
  HoldShards();
  auto save = checkpointer->Save(5, world_.trainer.state);
  ASSERT_THAT(save, IsOk());
  checkpointer.reset();
  EXPECT_THAT(warning, HasSubstr("the save of step 5"));
  EXPECT_THAT(TryOpenBeside(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("store")));
  world_.gate.Notify();
  EXPECT_THAT(save->committed().Wait(), IsOk());
  EXPECT_EQ(OpenWhenReleased()->LatestStep()->step, 5);
}

TEST_F(CheckpointerClosingTest, DestructionLeavesAStateThatIsBeingCopiedToItself) {
  auto checkpointer = Open({.staging = Staging::kOverlapped, .close_timeout = absl::Nanoseconds(1)});
  auto save = checkpointer->Save(5, world_.gated_state);
  ASSERT_THAT(save, IsOk());
  checkpointer.reset();
  EXPECT_FALSE(save->staged().ready());
  world_.gated_state.gate.Notify();
  EXPECT_THAT(save->committed().Wait(), IsOk());
  EXPECT_EQ(OpenWhenReleased()->LatestStep()->step, 5);
}

TEST_F(CheckpointerClosingTest, NamesAnEvaluatorThatDoesNotReturn) {
  auto gate = std::make_shared<absl::Notification>();
  auto entered = std::make_shared<absl::Notification>();
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "slow"},
                                         [gate, entered](const Snapshot&) -> absl::StatusOr<Verdict> {
                                           entered->Notify();
                                           gate->WaitForNotification();
                                           return Verdict(Metrics{{"loss", 0.5}});
                                         }),
              IsOk());
  ASSERT_THAT(checkpointer->Save(10, world_.trainer.state), IsOk());
  entered->WaitForNotification();
  ASSERT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
  EXPECT_THAT(checkpointer->Close(absl::InfinitePast()),
              StatusIs(absl::StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("evaluator 'slow' at step 10"), Not(HasSubstr("the save of")))));
  gate->Notify();
  EXPECT_THAT(checkpointer->Close(absl::InfiniteFuture()), IsOk());
  auto steps = Open()->Steps();
  ASSERT_THAT(steps, IsOk());
  EXPECT_EQ(steps->back().metrics.at("slow/loss"), 0.5);
}

TEST_F(CheckpointerClosingTest, DestructionReleasesTheStoreFromUnderAnEvaluatorThatDoesNotReturn) {
  auto gate = std::make_shared<absl::Notification>();
  auto entered = std::make_shared<absl::Notification>();
  auto gone = std::make_shared<absl::Notification>();
  {
    // Notified when the function, and so the thread, has let go of everything.
    std::shared_ptr<void> last(nullptr, [gone](void*) { gone->Notify(); });
    auto checkpointer = Open({.close_timeout = absl::Nanoseconds(1)});
    ASSERT_THAT(checkpointer->AddEvaluator({.name = "slow"},
                                           [gate, entered, last](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
                                             entered->Notify();
                                             gate->WaitForNotification();
                                             // The snapshot is still there.
                                             const double first = static_cast<double>(snapshot.bytes(0)[0]);
                                             return Verdict(Metrics{{"first", first}});
                                           }),
                IsOk());
    ASSERT_THAT(checkpointer->Save(10, world_.trainer.state), IsOk());
    entered->WaitForNotification();
    ASSERT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
    last.reset();
    checkpointer.reset();
  }
  {
    auto checkpointer = Open();
    EXPECT_EQ(checkpointer->LatestStep()->step, 10);
    EXPECT_THAT(checkpointer->LatestStep()->metrics, testing::IsEmpty());
  }
  gate->Notify();
  gone->WaitForNotification();
}

TEST_F(CheckpointerClosingTest, ASnapshotThatIsNotSavedMayOutliveTheCheckpointerInAnEvaluator) {
  auto gate = std::make_shared<absl::Notification>();
  auto entered = std::make_shared<absl::Notification>();
  auto checkpointer = Open({.close_timeout = absl::Nanoseconds(1)});
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "slow"},
                                         [gate, entered](const Snapshot&) -> absl::StatusOr<Verdict> {
                                           entered->Notify();
                                           gate->WaitForNotification();
                                           return Verdict(Metrics{{"loss", 1.0}});
                                         }),
              IsOk());
  auto save = checkpointer->Evaluate(10, world_.trainer.state);
  ASSERT_THAT(save, IsOk());
  entered->WaitForNotification();
  checkpointer.reset();
  EXPECT_FALSE(save->committed().ready());
  gate->Notify();
  EXPECT_THAT(save->committed().Wait(), IsOk());
}

}  // namespace
}  // namespace tidemark
