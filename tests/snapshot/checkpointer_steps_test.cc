// What a trainer asks of single steps, and of a store that is to be there: create, Delete, Tag, Untag.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/journal_calls.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/other_process.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::ElementsAre;
using testing::HasSubstr;

class CheckpointerStepsTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options = {}) {
    options.directory = store_;
    if (options.observer == nullptr) options.observer = NoWarnings();
    auto checkpointer = CheckpointerOnFileSystem::Open(files_, std::move(options));
    EXPECT_THAT(checkpointer, IsOk());
    return *std::move(checkpointer);
  }

  std::unique_ptr<AsyncCheckpointer> OpenWithSteps(std::initializer_list<int64_t> steps,
                                                   CheckpointerOptions options = {}) {
    auto checkpointer = Open(std::move(options));
    for (const int64_t step : steps) {
      trainer_.SetTo(step);
      EXPECT_THAT(checkpointer->Save(step, trainer_.state), IsOk());
    }
    EXPECT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
    return checkpointer;
  }

  static StepInfo Info(const AsyncCheckpointer& checkpointer, int64_t step) {
    const absl::StatusOr<std::vector<StepInfo>> steps = checkpointer.Steps();
    EXPECT_THAT(steps, IsOk());
    for (const StepInfo& info : *steps) {
      if (info.step == step) return info;
    }
    return {};
  }

  storage::TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  storage::FailingFileSystem files_{storage::PosixFileSystem()};
  TestTrainer trainer_;
};

TEST_F(CheckpointerStepsTest, AMistypedPathIsNotFoundWhereNoneIsToBeMade) {
  const std::string mistyped = directory_ / "stroe";
  EXPECT_THAT(AsyncCheckpointer::Open({.directory = mistyped, .create = false}),
              StatusIs(StatusCode::kNotFound, HasSubstr("there is no store in " + mistyped)));
  EXPECT_FALSE(std::filesystem::exists(mistyped)) << "nothing was made";
  std::filesystem::create_directory(mistyped);
  EXPECT_THAT(AsyncCheckpointer::Open({.directory = mistyped, .create = false}),
              StatusIs(StatusCode::kNotFound, HasSubstr("there is no store in " + mistyped)));
  EXPECT_TRUE(std::filesystem::is_empty(mistyped));
}

TEST_F(CheckpointerStepsTest, AStoreIsOpenedWithoutMakingOne) {
  ASSERT_THAT(OpenWithSteps({1})->Close(), IsOk());
  auto checkpointer = Open({.create = false});
  EXPECT_THAT(checkpointer->RestoreLatest(trainer_.state), IsOk());
  // Also one whose name is gone, but not its steps.
  ASSERT_THAT(checkpointer->Close(), IsOk());
  std::filesystem::remove(store_ + "/store.json");
  EXPECT_THAT(Open({.create = false})->RestoreLatest(trainer_.state), IsOk());
}

TEST_F(CheckpointerStepsTest, DeletesAStepAndKeepsWhy) {
  std::mutex mutex;
  std::vector<std::string> told;
  auto checkpointer =
      OpenWithSteps({1, 2}, {.observer = ObserverOf({.deleted = [&](int64_t step, std::string_view reason) {
                               std::lock_guard lock(mutex);
                               told.push_back(std::to_string(step) + " " + std::string(reason));
                             }})});
  const std::string shard = ShardPath(store_, 1);
  ASSERT_THAT(checkpointer->Delete(1, "a bad batch"), IsOk());
  EXPECT_EQ(Info(*checkpointer, 1).state, StepState::kDeleted);
  EXPECT_EQ(Info(*checkpointer, 1).reason, "a bad batch");
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_FALSE(std::filesystem::exists(shard));
  {
    std::lock_guard lock(mutex);
    EXPECT_THAT(told, ElementsAre("1 a bad batch"));
  }
  EXPECT_EQ(checkpointer->statistics().steps_deleted, 1u);
  ASSERT_THAT(checkpointer->Close(), IsOk());
  EXPECT_EQ(Info(*Open(), 1).state, StepState::kDeleted);
}

TEST_F(CheckpointerStepsTest, DeletesNothingThatStaysWhateverTheRules) {
  auto checkpointer = OpenWithSteps({1, 2, 3});
  EXPECT_THAT(checkpointer->Delete(3), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("latest")));
  ASSERT_THAT(checkpointer->Pin(2, "for the paper"), IsOk());
  EXPECT_THAT(checkpointer->Delete(2), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("for the paper")));
  EXPECT_THAT(checkpointer->Delete(7), StatusIs(StatusCode::kNotFound, HasSubstr("step 7")));
  ASSERT_THAT(checkpointer->Delete(1), IsOk());
  EXPECT_THAT(checkpointer->Delete(1), StatusIs(StatusCode::kNotFound, HasSubstr("step 1")));
  EXPECT_EQ(checkpointer->LatestStep()->step, 3);
  ASSERT_THAT(checkpointer->Close(), IsOk());
  EXPECT_THAT(checkpointer->Delete(2), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("closed")));
}

TEST_F(CheckpointerStepsTest, DeletesNothingDuringARestore) {
  auto checkpointer = OpenWithSteps({1, 2});
  absl::Status meanwhile;
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state, {.accept =
                                                               [&](const StepInfo&) {
                                                                 meanwhile = checkpointer->Delete(1);
                                                                 return true;
                                                               }}),
              IsOk());
  EXPECT_THAT(meanwhile, StatusIs(StatusCode::kUnavailable, HasSubstr("restore")));
  EXPECT_THAT(checkpointer->Delete(1), IsOk());
}

TEST_F(CheckpointerStepsTest, ADeletionThatTheDiskRefusesIsAnErrorAndTheStepStays) {
  auto checkpointer = OpenWithSteps({1, 2});
  files_.SetRule([](const storage::FailingFileSystem::Call& call) {
    return IsNamingOfEntry(call.operation, call.path) ? absl::InternalError("EIO") : absl::OkStatus();
  });
  const absl::Status deleted = checkpointer->Delete(1);
  files_.SetRule(nullptr);
  EXPECT_THAT(deleted, StatusIs(StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_EQ(Info(*checkpointer, 1).state, StepState::kCommitted);
  EXPECT_THAT(checkpointer->Delete(1), IsOk());
}

// What a run has that was restored to step 2 and goes on from there.
TEST_F(CheckpointerStepsTest, ARunThatGoesOnFromAnOlderStepDiscardsTheLaterOnes) {
  std::mutex mutex;
  std::vector<int64_t> told;
  const auto observer = ObserverOf({.deleted = [&](int64_t step, std::string_view) {
    std::lock_guard lock(mutex);
    told.push_back(step);
  }});
  auto checkpointer = OpenWithSteps({1, 2, 3, 4}, {.observer = observer});
  const std::string shard = ShardPath(store_, 4);
  ASSERT_THAT(checkpointer->Restore(2, trainer_.state), IsOk());
  EXPECT_FALSE(checkpointer->ShouldSave(3)) << "it is there";
  const auto discarded = checkpointer->DiscardAfter(2, "the rate was too high");
  ASSERT_THAT(discarded, IsOk());
  EXPECT_THAT(*discarded, ElementsAre(4, 3));
  {
    std::lock_guard lock(mutex);
    EXPECT_THAT(told, ElementsAre(4, 3));
  }
  EXPECT_EQ(checkpointer->LatestStep()->step, 2);
  EXPECT_EQ(Info(*checkpointer, 4).reason, "the rate was too high");
  EXPECT_EQ(checkpointer->statistics().steps_deleted, 2u);
  EXPECT_TRUE(checkpointer->ShouldSave(3));
  ASSERT_THAT(checkpointer->Tidy(), IsOk());
  EXPECT_FALSE(std::filesystem::exists(shard));
  // The new step 3 refers to nothing that has gone.
  trainer_.SetTo(33);
  ASSERT_THAT(checkpointer->Save(3, trainer_.state)->committed().Wait(), IsOk());
  EXPECT_THAT(*checkpointer->DiscardAfter(3), testing::IsEmpty());
  ASSERT_THAT(checkpointer->Close(), IsOk());
  checkpointer = Open();
  trainer_.SetTo(0);
  const absl::StatusOr<int64_t> next = checkpointer->Resume(trainer_.state);
  ASSERT_THAT(next, IsOk());
  EXPECT_EQ(*next, 4);
  EXPECT_TRUE(trainer_.IsAt(33));
  ASSERT_THAT(checkpointer->Restore(2, trainer_.state), IsOk());
  EXPECT_TRUE(trainer_.IsAt(2));
}

// A save in flight is waited for: it is discarded as well, and refers to no file that goes.
TEST_F(CheckpointerStepsTest, DiscardsASaveInFlightToo) {
  auto checkpointer = OpenWithSteps({1, 2});
  ASSERT_THAT(checkpointer->Save(3, trainer_.state), IsOk());
  EXPECT_THAT(*checkpointer->DiscardAfter(1), ElementsAre(3, 2));
  EXPECT_EQ(checkpointer->LatestStep()->step, 1);
}

TEST_F(CheckpointerStepsTest, DiscardsNothingWhereALaterStepIsKeptOrNoneWouldRemain) {
  auto checkpointer = OpenWithSteps({2, 3, 4, 5});
  ASSERT_THAT(checkpointer->Tag(3, "release"), IsOk());
  ASSERT_THAT(checkpointer->Pin(5, "for the paper"), IsOk());
  EXPECT_THAT(
      checkpointer->DiscardAfter(2),
      StatusIs(StatusCode::kFailedPrecondition, testing::AllOf(HasSubstr("step 3 is kept: tagged release"),
                                                               HasSubstr("step 5 is kept: pinned (for the paper)"))));
  EXPECT_THAT(checkpointer->DiscardAfter(1),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("no committed step would remain")));
  EXPECT_EQ(checkpointer->LatestStep()->step, 5);
  ASSERT_THAT(checkpointer->Unpin(5), IsOk());
  EXPECT_THAT(*checkpointer->DiscardAfter(3), ElementsAre(5, 4));
  ASSERT_THAT(checkpointer->Close(), IsOk());
  EXPECT_THAT(checkpointer->DiscardAfter(3), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("closed")));
}

TEST_F(CheckpointerStepsTest, DiscardsNothingThatAnEvaluatorHasYetToRead) {
  absl::Notification gate;  // outlives the evaluator's thread
  auto checkpointer = OpenWithSteps({1});
  ASSERT_THAT(checkpointer->AddEvaluator({.name = "validation", .max_pending = 1, .when_lagging = WhenLagging::kQueue},
                                         [&](const Snapshot&) -> absl::StatusOr<Verdict> {
                                           gate.WaitForNotification();
                                           return Verdict();
                                         }),
              IsOk());
  for (const int64_t step : {2, 3, 4, 5}) ASSERT_THAT(checkpointer->Save(step, trainer_.state), IsOk());
  const auto discarded = checkpointer->DiscardAfter(1);
  gate.Notify();
  EXPECT_THAT(discarded, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("'validation' has not read it yet")));
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  EXPECT_THAT(*checkpointer->DiscardAfter(1), ElementsAre(5, 4, 3, 2));
}

TEST_F(CheckpointerStepsTest, DiscardsNothingDuringARestore) {
  auto checkpointer = OpenWithSteps({1, 2});
  absl::Status meanwhile;
  const auto accept = [&](const StepInfo&) {
    meanwhile = checkpointer->DiscardAfter(1).status();
    return true;
  };
  ASSERT_THAT(checkpointer->RestoreLatest(trainer_.state, {.accept = accept}), IsOk());
  EXPECT_THAT(meanwhile, StatusIs(StatusCode::kUnavailable, HasSubstr("restore")));
  EXPECT_EQ(checkpointer->LatestStep()->step, 2);
}

TEST_F(CheckpointerStepsTest, ATagNamesAStepUntilItIsTaken) {
  auto checkpointer = OpenWithSteps({1, 2});
  ASSERT_THAT(checkpointer->Tag(1, "paper/v1"), IsOk());
  ASSERT_THAT(checkpointer->Tag(1, "paper/v1"), IsOk()) << "again changes nothing";
  EXPECT_THAT(Info(*checkpointer, 1).tags, ElementsAre("paper/v1"));
  EXPECT_TRUE(Info(*checkpointer, 1).pinned);
  auto report = checkpointer->Restore(StepSelector::Tag("paper/v1"), trainer_.state);
  ASSERT_THAT(report, IsOk());
  EXPECT_EQ(report->step, 1);
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ((*reader)->Load(StepSelector::Tag("paper/v1"), {"epoch"}).value()->step(), 1);
  ASSERT_THAT(checkpointer->Untag("paper/v1"), IsOk());
  EXPECT_THAT(Info(*checkpointer, 1).tags, testing::IsEmpty());
  EXPECT_TRUE(Info(*checkpointer, 1).pinned);
}

TEST_F(CheckpointerStepsTest, RefusesATagThatIsTakenWrongOrOfNoStep) {
  auto checkpointer = OpenWithSteps({1, 2});
  ASSERT_THAT(checkpointer->Tag(1, "paper"), IsOk());
  EXPECT_THAT(checkpointer->Tag(2, "paper"), StatusIs(StatusCode::kAlreadyExists, HasSubstr("step 1")));
  EXPECT_THAT(checkpointer->Tag(2, "a tag"), StatusIs(StatusCode::kInvalidArgument, HasSubstr("a tag")));
  EXPECT_THAT(checkpointer->Tag(7, "x"), StatusIs(StatusCode::kNotFound, HasSubstr("step 7")));
  EXPECT_THAT(checkpointer->Untag("x"), StatusIs(StatusCode::kNotFound, HasSubstr("'x'")));
  ASSERT_THAT(checkpointer->Close(), IsOk());
  EXPECT_THAT(checkpointer->Tag(2, "x"), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("closed")));
}

// The checkpointer has not looked at the journal since.
TEST_F(CheckpointerStepsTest, HearsOfATagThatAnotherProcessHasJustGiven) {
  auto checkpointer = OpenWithSteps({1, 2, 3});
  const OtherProcess other(store_);
  ASSERT_THAT(other.Tag(1, "paper"), IsOk());
  EXPECT_THAT(checkpointer->Tag(2, "paper"), StatusIs(StatusCode::kAlreadyExists, HasSubstr("step 1")));
  EXPECT_THAT(Info(*checkpointer, 2).tags, testing::IsEmpty());
  ASSERT_THAT(other.Tag(3, "paper", storage::TakenTag::kMove), IsOk());
  ASSERT_THAT(checkpointer->Untag("paper"), IsOk());
  for (const int64_t step : {1, 3}) EXPECT_THAT(Info(*checkpointer, step).tags, testing::IsEmpty()) << step;
}

}  // namespace
}  // namespace tidemark
