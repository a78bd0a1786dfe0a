// Ranks that disagree, that share no store, or that cannot open it: one error on every rank. And what becomes of a job
// whose ranks cannot talk to each other any more.

#include <atomic>
#include <stdexcept>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/stopwatch.h"
#include "tests/snapshot/ranks/trainer_ranks.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

using RanksOpeningTest = TrainerRanksTest;

TEST_F(RanksOpeningTest, RanksThatDisagreeAboutTheWorldCannotOpen) {
  TrainerRanks job(store_, 2);
  job.ChangeOptions([](int32_t rank, CheckpointerOptions& options) {
    if (rank == 1) options.ranks.world_size = 3;
  });
  EXPECT_THAT(job.Open(),
              ElementsAre(StatusIs(StatusCode::kFailedPrecondition, HasSubstr("says that it is rank 1 of 3")),
                          StatusIs(StatusCode::kInternal, HasSubstr("2 texts for 3 ranks"))));
}

TEST_F(RanksOpeningTest, RanksWithOneNumberCannotOpen) {
  TrainerRanks job(store_, 3);
  job.ChangeOptions([](int32_t rank, CheckpointerOptions& options) {
    if (rank == 2) options.ranks.rank = 1;
  });
  EXPECT_THAT(job.Open(), Each(StatusIs(StatusCode::kFailedPrecondition, HasSubstr("says that it is rank 1"))));
}

TEST_F(RanksOpeningTest, RanksThatShareNoDirectoryCannotOpen) {
  TrainerRanks job(store_, 3);
  job.ChangeOptions([](int32_t rank, CheckpointerOptions& options) {
    if (rank == 1) options.directory += "-elsewhere";
  });
  EXPECT_THAT(job.Open(), Each(StatusIs(StatusCode::kNotFound, HasSubstr("rank 1"))));
  {
    TrainerRanks other(store_ + "-elsewhere", 1);
    ASSERT_THAT(other.Open(), Each(IsOk()));
  }
  EXPECT_THAT(job.Open(),
              Each(StatusIs(StatusCode::kNotFound, AllOf(HasSubstr("rank 1"), HasSubstr("rank 0 has opened store")))));
}

TEST_F(RanksOpeningTest, AStoreThatRank0CannotOpenIsAnErrorOfAll) {
  TrainerRanks holder(store_, 1);
  ASSERT_THAT(holder.Open(), Each(IsOk()));
  TrainerRanks job(store_, 2);
  EXPECT_THAT(job.Open(), Each(StatusIs(StatusCode::kUnavailable, HasSubstr("is open for writing elsewhere"))));
}

TEST_F(RanksOpeningTest, OptionsOfOneRankThatCannotBeAreAnErrorOfAll) {
  TrainerRanks job(store_, 3);
  job.ChangeOptions([](int32_t rank, CheckpointerOptions& options) {
    if (rank == 2) options.save_interval_steps = -1;
  });
  EXPECT_THAT(job.Open(), Each(StatusIs(StatusCode::kInvalidArgument, HasSubstr("save_interval_steps is -1"))));
  job.ChangeOptions([](int32_t rank, CheckpointerOptions& options) {
    if (rank == 1) options.ranks.outcome_margin = absl::InfiniteDuration();
  });
  EXPECT_THAT(job.Open(), Each(StatusIs(StatusCode::kInvalidArgument, HasSubstr("ranks.outcome_margin is inf"))));
  job.ChangeOptions([](int32_t, CheckpointerOptions& options) { options.save_timeout = absl::Minutes(11); });
  EXPECT_THAT(job.Open(), Each(StatusIs(StatusCode::kInvalidArgument, HasSubstr("save_timeout is 11m"))));
  // Each may be, and together they may not.
  job.ChangeOptions([](int32_t rank, CheckpointerOptions& options) {
    if (rank == 0) options.save_when = [](const SaveQuestion&) { return true; };
  });
  EXPECT_THAT(job.Open(), Each(StatusIs(StatusCode::kInvalidArgument,
                                        AllOf(HasSubstr("rank 1: options that must be the same on all ranks differ"),
                                              HasSubstr("save_when null"), HasSubstr("save_when set")))));
  // Which rank 0 alone finds, behind the opening of the store.
  job.ChangeOptions([](int32_t, CheckpointerOptions& options) { options.retention.keep_best = {{.metric = "x"}}; });
  EXPECT_THAT(job.Open(), Each(StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 0"))));
  job.ChangeOptions([](int32_t, CheckpointerOptions&) {});
  EXPECT_THAT(job.Open(), Each(IsOk()));
}

// The ranks cannot agree on anything any more, and still save.
TEST_F(RanksOpeningTest, SavesGoOnWithoutTheAllGather) {
  TrainerRanks job(store_, 2);
  std::atomic<bool> is_lost = false;
  job.ChangeOptions([&](int32_t, CheckpointerOptions& options) {
    options.save_when = [](const SaveQuestion& question) { return question.step % 10 == 0; };
    options.ranks.all_gather = [&is_lost, gather = options.ranks.all_gather](const std::string& bytes) {
      if (is_lost) return absl::StatusOr<std::vector<std::string>>(absl::UnavailableError("the network is gone"));
      return gather(bytes);
    };
  });
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  is_lost = true;
  for (int32_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(job.rank_at(rank).ShouldSave(20));
    EXPECT_FALSE(job.rank_at(rank).ShouldSave(21));
  }
  EXPECT_THAT(job.warnings(), HasSubstr("each goes by its own rules"));
  EXPECT_THAT(job.Save(20), Each(IsOk()));
  EXPECT_THAT(job.Restore(), Each(StatusIs(StatusCode::kUnavailable, HasSubstr("the network is gone"))));
  EXPECT_THAT(job.Save(30), Each(IsOk()));
}

TEST_F(RanksOpeningTest, OnlyRank0AsksAFunctionWhetherASaveIsDue) {
  TrainerRanks job(store_, 2);
  job.ChangeOptions([](int32_t, CheckpointerOptions& options) {
    options.save_when = [rank = options.ranks.rank](const SaveQuestion& question) -> bool {
      if (rank == 1 || question.step == 5) throw std::runtime_error("no schedule");
      return false;
    };
  });
  ASSERT_THAT(job.Open(), Each(IsOk()));
  for (const int64_t step : {4, 5, 6}) {
    const auto due = OnEachRank(2, [&](int32_t rank) { return job.rank_at(rank).ShouldSave(step) ? 1 : 0; });
    EXPECT_THAT(due, Each(step == 5 ? 1 : 0)) << step;
  }
}

TEST_F(RanksOpeningTest, CompanionsAreRefused) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  EXPECT_THAT(job.rank_at(0).AddCompanion(nullptr), StatusIs(StatusCode::kUnimplemented, HasSubstr("several ranks")));
}

TEST_F(RanksOpeningTest, ARankThatDoesNotComeIsAnError) {
  CheckpointerOptions options = {.directory = store_};
  options.ranks = {.rank = 0, .world_size = 2, .all_gather = [](const std::string&) {
                     return absl::StatusOr<std::vector<std::string>>(absl::DeadlineExceededError("rank 1 is away"));
                   }};
  EXPECT_THAT(AsyncCheckpointer::Open(options),
              StatusIs(StatusCode::kDeadlineExceeded, AllOf(HasSubstr("Open"), HasSubstr("rank 1 is away"))));
}

TEST_F(RanksOpeningTest, OptionsOfRanksHaveRanges) {
  const auto gather = [](const std::string&) { return absl::StatusOr<std::vector<std::string>>(); };
  const auto refuses = [&](RankOptions ranks, std::string_view what) {
    EXPECT_THAT(AsyncCheckpointer::Open({.directory = store_, .ranks = std::move(ranks)}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  refuses({.world_size = 0}, "ranks.world_size is 0");
  refuses({.world_size = (1 << 20) + 1, .all_gather = gather}, "ranks.world_size");
  refuses({.rank = 2, .world_size = 2, .all_gather = gather}, "ranks.rank is 2");
  refuses({.rank = -1, .world_size = 2, .all_gather = gather}, "ranks.rank is -1");
  refuses({.world_size = 2}, "all_gather is null");
  refuses({.world_size = 2, .all_gather = gather, .vote_timeout = absl::ZeroDuration()}, "ranks.vote_timeout");
  refuses({.world_size = 2, .all_gather = gather, .outcome_margin = absl::InfiniteDuration()}, "ranks.outcome_margin");
}

// A rank that never comes to the save: the others are told at the deadline, and not before.
TEST_F(RanksOpeningTest, ARankThatDoesNotSaveFailsTheSaveAtTheDeadline) {
  TrainerRanks job(store_, 3);
  job.ChangeOptions([](int32_t, CheckpointerOptions& options) {
    options.ranks.vote_timeout = absl::Seconds(1);
    options.ranks.outcome_margin = absl::Seconds(5);
  });
  ASSERT_THAT(job.Open(), Each(IsOk()));
  const Stopwatch watch;
  const auto told = OnEachRank(3, [&](int32_t rank) { return rank == 2 ? absl::OkStatus() : job.SaveOne(rank, 10); });
  EXPECT_GE(watch.elapsed(), absl::Seconds(1));
  for (const int32_t rank : {0, 1}) {
    EXPECT_THAT(told[static_cast<size_t>(rank)], StatusIs(StatusCode::kAborted, HasSubstr("rank 2")));
  }
  EXPECT_THAT(job.Save(20), Each(IsOk()));
}

}  // namespace
}  // namespace tidemark
