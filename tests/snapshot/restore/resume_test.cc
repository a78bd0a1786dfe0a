// AsyncCheckpointer::Resume: the step to go on with, and when a training must not be begun anew.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/checkpointer_on_file_system.h"
#include "tests/snapshot/journal_calls.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/step_deletion.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::HasSubstr;

// A StatusOr that holds the step to go on with.
MATCHER_P(Resumes, step, "resumes at that step") {
  *result_listener << arg.status().ToString();
  return arg.ok() && *arg == step;
}

class ResumeTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open() {
    auto checkpointer = CheckpointerOnFileSystem::Open(files_, {.directory = store_, .observer = NoWarnings()});
    EXPECT_THAT(checkpointer, IsOk());
    return *std::move(checkpointer);
  }

  void SaveSteps(std::initializer_list<int64_t> steps) {
    auto checkpointer = Open();
    for (const int64_t step : steps) {
      trainer_.SetTo(step);
      ASSERT_THAT(checkpointer->Save(step, trainer_.state), IsOk());
    }
    ASSERT_THAT(checkpointer->Close(), IsOk());
    trainer_.SetTo(1000);
  }

  storage::TestDirectory directory_;
  const std::string store_ = directory_ / "store";
  storage::FailingFileSystem files_{storage::PosixFileSystem()};
  TestTrainer trainer_;
};

TEST_F(ResumeTest, AFreshRunStartsAtZeroAndKeepsItsState) {
  trainer_.SetTo(1000);
  EXPECT_THAT(Open()->Resume(trainer_.state), Resumes(0));
  EXPECT_TRUE(trainer_.IsAt(1000));
}

TEST_F(ResumeTest, GoesOnBehindTheLatestCommittedStep) {
  SaveSteps({10, 20});
  EXPECT_THAT(Open()->Resume(trainer_.state), Resumes(21));
  EXPECT_TRUE(trainer_.IsAt(20));
}

TEST_F(ResumeTest, TakesTheMemoryOfTheFirstSave) {
  for (const int64_t first : {0, 21}) {
    if (first > 0) SaveSteps({20});
    const auto checkpointer = Open();
    ASSERT_EQ(checkpointer->statistics().staging_bytes_max, 0u);
    ASSERT_THAT(checkpointer->Resume(trainer_.state), Resumes(first));
    const uint64_t room = checkpointer->statistics().staging_bytes_max;
    EXPECT_GT(room, 0u);
    EXPECT_EQ(checkpointer->statistics().staging_bytes_in_use, 0u);
    ASSERT_THAT(checkpointer->Save(first + 1, trainer_.state), IsOk());
    EXPECT_EQ(checkpointer->statistics().staging_bytes_max, room);
    EXPECT_THAT(checkpointer->WaitUntilCommitted(), IsOk());
  }
}

// What is wrong with the state is the business of the save.
TEST_F(ResumeTest, StartsAFreshRunWithAStateThatCannotBeSaved) {
  State state;
  state.AddObject(
      "object", []() -> absl::StatusOr<std::vector<std::byte>> { return absl::InternalError("no state yet"); },
      [](std::span<const std::byte>) { return absl::OkStatus(); });
  EXPECT_THAT(Open()->Resume(state), Resumes(0));
}

TEST_F(ResumeTest, GoesOnBehindAnOlderStepWhereTheLatestIsDamaged) {
  SaveSteps({10, 20});
  FlipBit(ShardPath(store_, 20), 100'000);
  EXPECT_THAT(Open()->Resume(trainer_.state), Resumes(11));
  EXPECT_TRUE(trainer_.IsAt(10));
}

TEST_F(ResumeTest, RefusesWhereEveryStepIsDamaged) {
  SaveSteps({10});
  FlipBit(ShardPath(store_, 10), 100'000);
  auto checkpointer = Open();
  EXPECT_THAT(checkpointer->Resume(trainer_.state), StatusIs(StatusCode::kDataLoss, HasSubstr("step 10")));
  // Also where a rule passes over the step before its damage is looked at.
  EXPECT_THAT(checkpointer->Resume(trainer_.state, {.accept = [](const StepInfo&) { return false; }}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("step 10 is damaged")));
}

TEST_F(ResumeTest, RefusesWhereTheStateIsAnotherOne) {
  SaveSteps({10});
  TestTrainer wider(7);
  EXPECT_THAT(Open()->Resume(wider.state), StatusIs(StatusCode::kInvalidArgument, HasSubstr("model.weight")));
}

// kNotFound would be taken for a fresh run.
TEST_F(ResumeTest, RefusesWhereTheOptionsWantNoneOfTheSteps) {
  SaveSteps({10, 20});
  EXPECT_THAT(
      Open()->Resume(trainer_.state, {.accept = [](const StepInfo&) { return false; }}),
      StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr("not accepted"), HasSubstr("step 10 is committed"))));
  EXPECT_TRUE(trainer_.IsAt(1000));
}

TEST_F(ResumeTest, RefusesWhereNoStepIsHealthy) {
  auto checkpointer = Open();
  ASSERT_THAT(
      checkpointer->AddEvaluator({.name = "health"},
                                 [](const Snapshot&) -> absl::StatusOr<Verdict> { return Verdict({}, "diverged"); }),
      IsOk());
  ASSERT_THAT(checkpointer->Save(1, trainer_.state), IsOk());
  ASSERT_THAT(checkpointer->WaitUntilEvaluated(), IsOk());
  EXPECT_THAT(checkpointer->Resume(trainer_.state, {.healthy_only = true}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("diverged")));
  EXPECT_THAT(checkpointer->Resume(trainer_.state), Resumes(2));
}

TEST_F(ResumeTest, RefusesWhereEveryStepWasDeletedOrLost) {
  SaveSteps({10, 20});
  StepInfo first;
  {
    auto checkpointer = Open();
    first = checkpointer->Steps()->front();
  }
  DeleteStep(store_, first);
  std::filesystem::remove_all(std::filesystem::path(ShardPath(store_, 20)).parent_path());
  auto checkpointer = Open();
  EXPECT_THAT(checkpointer->Resume(trainer_.state), StatusIs(StatusCode::kDataLoss, HasSubstr("step 20")));
}

// Neither record nor step is left, but the store was not always empty.
TEST_F(ResumeTest, RefusesWhereARebuildHasMovedEveryStepToQuarantine) {
  SaveSteps({10});
  FlipBit(ShardPath(store_, 10), 100'000);
  LoseJournalAndIndex(store_);
  EXPECT_THAT(Open()->Resume(trainer_.state),
              StatusIs(StatusCode::kFailedPrecondition, AllOf(HasSubstr("quarantine"), HasSubstr("0000000010-"))));
}

TEST_F(ResumeTest, FailedSavesLeaveARunFresh) {
  auto checkpointer = Open();
  files_.SetRule([](const storage::FailingFileSystem::Call& call) {
    return call.path.find("/steps/") != std::string::npos && call.operation != "ListDirectory"
               ? absl::ResourceExhaustedError("No space left on device (ENOSPC)")
               : absl::OkStatus();
  });
  auto save = checkpointer->Save(1, trainer_.state);
  ASSERT_THAT(save, IsOk());
  EXPECT_THAT(save->committed().Wait(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("ENOSPC")));
  files_.SetRule(nullptr);
  EXPECT_THAT(checkpointer->Resume(trainer_.state), Resumes(0));
}

TEST_F(ResumeTest, GoesOnAtTheLastNumberThereIs) {
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  SaveSteps({kLast - 1});
  EXPECT_THAT(Open()->Resume(trainer_.state), Resumes(kLast));
  EXPECT_TRUE(trainer_.IsAt(kLast - 1));
}

TEST_F(ResumeTest, IsRefusedAfterClose) {
  auto checkpointer = Open();
  ASSERT_THAT(checkpointer->Close(), IsOk());
  EXPECT_THAT(checkpointer->Resume(trainer_.state), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("closed")));
}

}  // namespace
}  // namespace tidemark
