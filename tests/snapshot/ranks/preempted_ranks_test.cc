// Ranks of a job that is about to be ended: whichever of them hears of it, all save the same step once more.

#include <atomic>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/ranks/trainer_ranks.h"
#include "tests/storage/io/status_matchers.h"
#include "tidemark/preemption_guard.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// Time enough for any machine, in tests that do not wait for its end.
constexpr absl::Duration kLong = absl::Minutes(5);

class PreemptedRanksTest : public TrainerRanksTest {
 protected:
  // Without a signal: preempted from now on if it has so much time left.
  static std::unique_ptr<PreemptionGuard> GuardWith(absl::Duration left) {
    const bool is_preempted = left != absl::InfiniteDuration();
    auto guard = PreemptionGuard::Install({.signals = {},
                                           .grace = is_preempted ? left : kLong,
                                           .end = is_preempted ? absl::Now() + left : absl::InfiniteFuture()});
    EXPECT_THAT(guard, IsOk());
    return *std::move(guard);
  }

  static std::vector<bool> Ask(TrainerRanks& job, std::vector<std::unique_ptr<PreemptionGuard>>& guards) {
    const std::vector<int> answers = OnEachRank(job.world_size(), [&](int32_t rank) -> int {
      return guards[static_cast<size_t>(rank)]->PreemptedOnAnyRank(job.rank_at(rank));
    });
    return {answers.begin(), answers.end()};
  }

  static PreemptionReport SaveLast(TrainerRanks& job, int32_t rank, PreemptionGuard& guard, int64_t step) {
    job.trainer(rank).TrainTo(step);
    return guard.SaveAndClose(job.rank_at(rank), step, job.trainer(rank).state, {});
  }
};

TEST_F(PreemptedRanksTest, ASignalToOneRankHasAllSaveTheSameStep) {
  constexpr int64_t kSignalAfter = 3;
  TrainerRanks job(store_, 3);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  std::vector<std::unique_ptr<PreemptionGuard>> guards;
  guards.push_back(GuardWith(absl::InfiniteDuration()));
  guards.push_back(GuardWith(absl::InfiniteDuration()));
  guards.push_back(*PreemptionGuard::Install({.signals = {SIGUSR1}, .grace = kLong}));
  const std::vector<int64_t> last = OnEachRank(3, [&](int32_t rank) -> int64_t {
    PreemptionGuard& guard = *guards[static_cast<size_t>(rank)];
    for (int64_t step = 0; step < 100; ++step) {
      if (guard.PreemptedOnAnyRank(job.rank_at(rank))) {
        EXPECT_TRUE(guard.preempted());
        const PreemptionReport report = SaveLast(job, rank, guard, step);
        EXPECT_THAT(report.save, IsOk());
        EXPECT_THAT(report.close, IsOk());
        return step;
      }
      if (rank == 2 && step == kSignalAfter) raise(SIGUSR1);
    }
    return -1;
  });
  EXPECT_THAT(last, Each(kSignalAfter + 1));
  TrainerRanks next(store_, 2);
  ASSERT_THAT(next.Open(), Each(IsOk()));
  EXPECT_THAT(next.Restore(), Each(IsOk()));
  EXPECT_TRUE(next.AllAreAt(kSignalAfter + 1, false));
}

TEST_F(PreemptedRanksTest, AllHaveTheTimeOfTheOneThatHasLeast) {
  TrainerRanks job(store_, 3);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  std::vector<std::unique_ptr<PreemptionGuard>> guards;
  for (int i = 0; i < 3; ++i) guards.push_back(GuardWith(absl::InfiniteDuration()));
  EXPECT_THAT(Ask(job, guards), Each(false));
  for (const auto& guard : guards) EXPECT_EQ(guard->deadline(), absl::InfiniteFuture());
  guards[0] = GuardWith(2 * kLong);
  guards[1] = GuardWith(kLong);
  const absl::Time end = guards[1]->deadline();
  const auto answers = OnEachRank(3, [&](int32_t rank) -> int {
    if (rank == 0) absl::SleepFor(absl::Seconds(6));  // the others wait for it, and their time runs
    return guards[static_cast<size_t>(rank)]->PreemptedOnAnyRank(job.rank_at(rank));
  });
  EXPECT_THAT(answers, Each(1));
  EXPECT_TRUE(guards[2]->PreemptedOnAnyRank(job.rank_at(2)));  // asks nobody any more
  for (const auto& guard : guards) {
    EXPECT_TRUE(guard->preempted());
    EXPECT_LT(guard->deadline(), end + absl::Seconds(5));
    EXPECT_GT(guard->deadline(), end - absl::Seconds(5));
  }
}

TEST_F(PreemptedRanksTest, AStepThatIsBeingSavedIsNotSavedAgain) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  std::vector<std::unique_ptr<PreemptionGuard>> guards;
  for (int i = 0; i < 2; ++i) guards.push_back(GuardWith(kLong));
  const std::vector<PreemptionReport> reports = OnEachRank(2, [&](int32_t rank) {
    job.trainer(rank).TrainTo(7);
    EXPECT_THAT(job.rank_at(rank).Save(7, job.trainer(rank).state), IsOk());
    EXPECT_TRUE(guards[static_cast<size_t>(rank)]->PreemptedOnAnyRank(job.rank_at(rank)));
    return SaveLast(job, rank, *guards[static_cast<size_t>(rank)], 7);
  });
  for (const PreemptionReport& report : reports) EXPECT_THAT(report.save, IsOk());
}

// Rank 1 knows at once that its part has failed. Rank 0 hears of it while it waits for the save in SaveAndClose.
TEST_F(PreemptedRanksTest, AStepThatIsBeingSavedAndFailsIsSavedAnew) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  const auto is_write = [](const std::string& operation, const std::string& path) {
    return operation == "QueueWrite" && absl::StrContains(path, "/shard-");
  };
  absl::Notification rank_0_ends;
  std::atomic<bool> has_failed = false;
  job.files(1).SetGate([&](const std::string& operation, const std::string& path) {
    if (is_write(operation, path)) rank_0_ends.WaitForNotification();
  });
  job.files(1).SetRule([&](const storage::FailingFileSystem::Call& call) {
    const bool fails = is_write(call.operation, call.path) && !has_failed.exchange(true);
    return fails ? absl::InternalError("EIO") : absl::OkStatus();
  });
  std::vector<std::unique_ptr<PreemptionGuard>> guards;
  for (int i = 0; i < 2; ++i) guards.push_back(GuardWith(kLong));
  const std::vector<PreemptionReport> reports = OnEachRank(2, [&](int32_t rank) {
    job.trainer(rank).TrainTo(7);
    auto save = job.rank_at(rank).Save(7, job.trainer(rank).state);
    EXPECT_THAT(save, IsOk());
    if (rank == 0) {
      rank_0_ends.Notify();
    } else {
      EXPECT_FALSE(save->committed().Wait().ok());
    }
    return SaveLast(job, rank, *guards[static_cast<size_t>(rank)], 7);
  });
  EXPECT_TRUE(has_failed);
  for (const PreemptionReport& report : reports) EXPECT_THAT(report.save, IsOk());
}

// Its vote_timeout is ten minutes.
TEST_F(PreemptedRanksTest, ARankThatDoesNotComeIsGivenUpInTime) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  const absl::Time begin = absl::Now();
  const std::unique_ptr<PreemptionGuard> guard = GuardWith(absl::Seconds(10));
  const PreemptionReport report = SaveLast(job, 0, *guard, 20);
  EXPECT_THAT(report.save, StatusIs(StatusCode::kAborted, HasSubstr("no vote of rank 1")));
  EXPECT_THAT(report.close, IsOk());
  EXPECT_LT(absl::Now() - begin, absl::Minutes(1));
}

TEST_F(PreemptedRanksTest, RanksThatCannotAgreeGoByTheirOwnSignals) {
  TrainerRanks job(store_, 2);
  bool fails = false;
  job.ChangeOptions([&](int32_t, CheckpointerOptions& options) {
    options.ranks.all_gather = [gather = options.ranks.all_gather,
                                &fails](const std::string& bytes) -> absl::StatusOr<std::vector<std::string>> {
      if (fails) return absl::UnavailableError("the network is gone");
      return gather(bytes);
    };
  });
  ASSERT_THAT(job.Open(), Each(IsOk()));
  fails = true;
  std::vector<std::unique_ptr<PreemptionGuard>> guards;
  guards.push_back(GuardWith(kLong));
  guards.push_back(GuardWith(absl::InfiniteDuration()));
  EXPECT_EQ(Ask(job, guards), (std::vector<bool>{true, false}));
  EXPECT_THAT(job.warnings(), AllOf(HasSubstr("by its own rules and signals"), HasSubstr("the network is gone")));
  EXPECT_EQ(guards[1]->deadline(), absl::InfiniteFuture());
}

TEST_F(PreemptedRanksTest, OneProcessAsksNobody) {
  auto checkpointer = AsyncCheckpointer::Open({.directory = store_});
  ASSERT_THAT(checkpointer, IsOk());
  EXPECT_FALSE(GuardWith(absl::InfiniteDuration())->PreemptedOnAnyRank(**checkpointer));
  EXPECT_TRUE(GuardWith(kLong)->PreemptedOnAnyRank(**checkpointer));
  ASSERT_THAT((*checkpointer)->Close(), IsOk());
  EXPECT_TRUE(GuardWith(kLong)->PreemptedOnAnyRank(**checkpointer));
}

}  // namespace
}  // namespace tidemark
