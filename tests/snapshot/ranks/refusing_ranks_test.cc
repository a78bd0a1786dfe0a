// A rank that refuses what the others do: a save or a restore that it cannot begin fails on all of them.

#include <span>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/ranks/trainer_ranks.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

class RefusingRanksTest : public TrainerRanksTest {};

// The others are told at once, and not at their deadline.
TEST_F(RefusingRanksTest, ASaveThatOneRankRefusesFailsOnAll) {
  TrainerRanks job(store_, 3);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  const std::vector<absl::Status> told = OnEachRank(
      3, [&](int32_t rank) { return job.SaveOne(rank, 10, {.user_metadata = rank == 1 ? "no JSON" : "{}"}); });
  EXPECT_THAT(told[1], StatusIs(StatusCode::kInvalidArgument, HasSubstr("not a JSON object")));
  for (const int32_t rank : {0, 2}) {
    EXPECT_THAT(told[static_cast<size_t>(rank)],
                StatusIs(StatusCode::kAborted, AllOf(HasSubstr("rank 1"), HasSubstr("not a JSON object"))));
  }
  EXPECT_THAT(job.Save(20), Each(IsOk()));
}

// Rank 0 replaces the step, and rank 1 does not want to.
TEST_F(RefusingRanksTest, AStepThatOneRankRefusesToReplaceIsKept) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  const auto told = OnEachRank(2, [&](int32_t rank) { return job.SaveOne(rank, 10, {.overwrite = rank == 0}); });
  EXPECT_THAT(told[0], StatusIs(StatusCode::kAborted, AllOf(HasSubstr("rank 1"), HasSubstr("overwrite"))));
  EXPECT_THAT(told[1], StatusIs(StatusCode::kAlreadyExists, HasSubstr("step 10 is committed")));
  EXPECT_THAT(job.Restore(), Each(IsOk()));
  EXPECT_THAT(job.Save(20), Each(IsOk()));
}

// It has a folder to make, and a vote to state.
TEST_F(RefusingRanksTest, ACloseSaysThatARefusalIsNotToldYet) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  absl::Notification go_on;
  job.files(1).SetGate([&](const std::string& operation, const std::string&) {
    if (operation == "CreateDirectory") go_on.WaitForNotification();
  });
  EXPECT_THAT(job.SaveOne(1, 10), StatusIs(StatusCode::kAlreadyExists, HasSubstr("step 10")));
  EXPECT_THAT(job.rank_at(1).Close(absl::Now()),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("still running: the save of step 10")));
  go_on.Notify();
  EXPECT_THAT(job.rank_at(1).Close(), IsOk());
}

TEST_F(RefusingRanksTest, AStateThatDoesNotFitFailsTheRestoreOfAll) {
  TrainerRanks job(store_, 3);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  int64_t more = 0;
  job.trainer(2).state.AddValue("more", &more);
  EXPECT_THAT(job.Restore(),
              Each(StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("rank 2"), HasSubstr("more")))));
  EXPECT_THAT(job.Restore({.allow_missing = true}), Each(IsOk()));
}

// Also where there is no step that could tell.
TEST_F(RefusingRanksTest, AStateThatCannotBeRestoredIntoFailsTheRestoreOfAll) {
  class BrokenState final : public State {
    absl::Status PrepareRestore(std::span<const EntrySpec>) override { return absl::InternalError("no such module"); }
  };
  TrainerRanks job(store_, 3);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  for (const bool has_step : {false, true}) {
    if (has_step) {
      ASSERT_THAT(job.Save(10), Each(IsOk()));
    }
    BrokenState broken;
    const auto resumed = OnEachRank(
        3, [&](int32_t rank) { return job.rank_at(rank).Resume(rank == 1 ? broken : job.trainer(rank).state); });
    EXPECT_THAT(resumed, Each(StatusIs(StatusCode::kInternal, "rank 1: no such module")));
  }
}

}  // namespace
}  // namespace tidemark
