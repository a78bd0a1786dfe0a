// What an evaluator's verdict does to a run: which step it goes back to, and what it may then save.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/failing_save.h"
#include "tests/snapshot/journal_calls.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/other_process.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::FailingFileSystem;
using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class CheckpointerRollbackTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options = {}) {
    options.directory = store_;
    options.observer = ObserverOf({.warning = [this](std::string_view line) {
      absl::MutexLock lock(&mutex_);
      warnings_ += std::string(line) + "\n";
    }});
    auto checkpointer = CheckpointerOnFileSystem::Open(files_, std::move(options));
    EXPECT_THAT(checkpointer, IsOk());
    return checkpointer.ok() ? *std::move(checkpointer) : nullptr;
  }

  // Its evaluator looks for NaN at the head of the weights.
  std::unique_ptr<AsyncCheckpointer> OpenWithMonitor() {
    auto checkpointer = Open();
    EXPECT_THAT(checkpointer->AddEvaluator({.name = "health", .entries = {"model.weight"}},
                                           [](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
                                             float first = 0;
                                             std::memcpy(&first, snapshot.bytes(0).data(), sizeof(first));
                                             return Verdict(Metrics{}, std::isnan(first) ? "NaN" : "");
                                           }),
                IsOk());
    return checkpointer;
  }

  void SaveStep(AsyncCheckpointer& checkpointer, int64_t step, bool diverged = false) {
    trainer_.SetTo(step);
    if (diverged) trainer_.weight[0] = std::nanf("");
    auto save = checkpointer.Save(step, trainer_.state);
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
    ASSERT_THAT(checkpointer.WaitUntilEvaluated(),
                testing::AnyOf(IsOk(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("ENOSPC"))));
  }

  // What is written of evaluations finds no room.
  void FillDisk() { files_.SetRule(NoRoomForEntries()); }

  std::string warnings() {
    absl::MutexLock lock(&mutex_);
    return warnings_;
  }

  storage::TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  FailingFileSystem files_{storage::PosixFileSystem()};
  TestTrainer trainer_{1000};
  absl::Mutex mutex_;
  std::string warnings_ ABSL_GUARDED_BY(mutex_);
};

TEST_F(CheckpointerRollbackTest, PassesOverAStepWhoseVerdictCannotBeRecorded) {
  auto checkpointer = OpenWithMonitor();
  SaveStep(*checkpointer, 1);
  FillDisk();
  SaveStep(*checkpointer, 2, /*diverged=*/true);
  auto report = checkpointer->RestoreLatest(trainer_.state, {.healthy_only = true});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 1);
  EXPECT_TRUE(trainer_.IsAt(1));
  EXPECT_THAT(report->passed_over, ElementsAre(Pair(2, "unhealthy: health: NaN")));
  EXPECT_THAT(warnings(), HasSubstr("ENOSPC"));
  EXPECT_THAT(checkpointer->Restore(2, trainer_.state, {.healthy_only = true}),
              StatusIs(StatusCode::kNotFound, HasSubstr("step 2 is unhealthy: health: NaN")));
  EXPECT_TRUE(checkpointer->ShouldSave(2));
  files_.Reset();
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  EXPECT_EQ(checkpointer->LatestStep()->unhealthy(), "health: NaN") << "it was kept until it could be recorded";
  EXPECT_EQ(checkpointer->RestoreLatest(trainer_.state, {.healthy_only = true})->step, 1);
}

TEST_F(CheckpointerRollbackTest, PassesOverAStepThatAWorkerCallsUnhealthy) {
  auto checkpointer = Open({.tuning = {.poll_interval = absl::InfiniteDuration()}});
  SaveStep(*checkpointer, 1);
  ASSERT_THAT(
      OtherProcess(store_).Report(1, {.evaluator = "validation", .worker = "worker 1", .unhealthy = "it babbles"}),
      IsOk());
  EXPECT_THAT(checkpointer->Restore(1, trainer_.state, {.healthy_only = true}),
              StatusIs(StatusCode::kNotFound, HasSubstr("step 1 is unhealthy: validation: it babbles")));
  EXPECT_THAT(checkpointer->Restore(1, trainer_.state), IsOk());
}

TEST_F(CheckpointerRollbackTest, ReplacesAnUnhealthyStepWithoutBeingToldTo) {
  auto checkpointer = OpenWithMonitor();
  SaveStep(*checkpointer, 1);
  SaveStep(*checkpointer, 2, /*diverged=*/true);
  const std::string diverged = checkpointer->LatestStep()->attempt;
  EXPECT_FALSE(checkpointer->ShouldSave(1));
  ASSERT_EQ(checkpointer->RestoreLatest(trainer_.state, {.healthy_only = true})->step, 1);
  EXPECT_TRUE(checkpointer->ShouldSave(2));
  EXPECT_FALSE(checkpointer->ShouldSave(1)) << "it is healthy";
  EXPECT_THAT(checkpointer->Save(1, trainer_.state), StatusIs(StatusCode::kAlreadyExists, HasSubstr("step 1")));
  SaveStep(*checkpointer, 2);
  EXPECT_NE(checkpointer->LatestStep()->attempt, diverged);
  EXPECT_EQ(checkpointer->LatestStep()->unhealthy(), "") << "that was of the other attempt";
  EXPECT_FALSE(checkpointer->ShouldSave(2));
  EXPECT_THAT(checkpointer->Save(2, trainer_.state), StatusIs(StatusCode::kAlreadyExists, HasSubstr("step 2")));
}

TEST_F(CheckpointerRollbackTest, KeepsTheUnhealthyAttemptUntilTheNewOneIsCommitted) {
  auto checkpointer = OpenWithMonitor();
  SaveStep(*checkpointer, 2, /*diverged=*/true);
  const std::string diverged = checkpointer->LatestStep()->attempt;
  FailSave(files_, "CreateDirectory", absl::ResourceExhaustedError("disk full"));
  auto save = checkpointer->Save(2, trainer_.state);
  ASSERT_THAT(save, IsOk());
  EXPECT_THAT(save->committed().Wait(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("disk full")));
  files_.Reset();
  EXPECT_EQ(checkpointer->LatestStep()->attempt, diverged);
  EXPECT_EQ(checkpointer->Restore(2, trainer_.state)->info.unhealthy(), "health: NaN");
  EXPECT_TRUE(checkpointer->ShouldSave(2)) << "it may be tried again";
}

TEST_F(CheckpointerRollbackTest, OnlyEvaluatesNothingInPlaceOfAnUnhealthyStep) {
  auto checkpointer = OpenWithMonitor();
  SaveStep(*checkpointer, 2, /*diverged=*/true);
  EXPECT_THAT(checkpointer->Evaluate(2, trainer_.state), StatusIs(StatusCode::kAlreadyExists, HasSubstr("step 2")));
}

TEST_F(CheckpointerRollbackTest, GoesBackDespiteAnEvaluatorThatNeverReturns) {
  auto gate = std::make_shared<absl::Notification>();
  auto entered = std::make_shared<absl::Notification>();
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "stuck"},
                                         [gate, entered](const Snapshot&) -> absl::StatusOr<Verdict> {
                                           entered->Notify();
                                           gate->WaitForNotification();
                                           return Verdict();
                                         }),
              IsOk());
  ASSERT_THAT(checkpointer->Save(1, trainer_.state), IsOk());
  entered->WaitForNotification();
  auto report =
      checkpointer->RestoreLatest(trainer_.state, {.healthy_only = true, .evaluations_timeout = absl::Nanoseconds(1)});
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 1);
  EXPECT_THAT(warnings(), HasSubstr("restoring without a verdict from: evaluator 'stuck' at step 1"));
  gate->Notify();
}

}  // namespace
}  // namespace tidemark
