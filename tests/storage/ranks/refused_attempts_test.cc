// A rank that cannot save goes on to the next step, and rank 0 hears of each save that it refused.

#include <atomic>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/ranks/rank_board.h"
#include "tests/storage/ranks/ranked_job.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// It fails at once, votes on what it saves next, and rank 0 still writes.
TEST(RefusedAttemptsTest, ANoIsHeardThoughLaterVotesHaveTakenItsPlace) {
  RankedJob job(2);
  job.OpenRanks({.vote_timeout = absl::Minutes(5)});
  ASSERT_THAT(job.Save(5), Each(IsOk()));
  absl::Notification go_on;
  job.files(0).SetGate([&](const std::string& operation, const std::string&) {
    if (operation == "QueueWrite") go_on.WaitForNotification();
  });
  absl::Status of_rank_0;
  std::thread rank_0([&] { of_rank_0 = job.SaveOne(0, 10); });
  job.files(1).SetRule([](const FailingFileSystem::Call& call) {
    return call.operation == "QueueWrite" ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT(job.SaveOne(1, 10), StatusIs(StatusCode::kAborted, HasSubstr("EIO")));
  EXPECT_THAT(job.SaveOne(1, 20), StatusIs(StatusCode::kAborted, HasSubstr("EIO")));
  job.files(1).SetRule(nullptr);
  absl::Status of_rank_1;
  std::thread rank_1([&] { of_rank_1 = job.SaveOne(1, 30); });
  const RankBoard board(job.disk(), job.layout(), job.store().Held().session, 0);
  const auto voted_on = [&] {
    const auto vote = board.ReadVote(1);
    return vote.ok() && vote->has_value() ? (*vote)->part.step : -1;
  };
  while (voted_on() != 30) std::this_thread::yield();
  go_on.Notify();
  rank_0.join();
  EXPECT_THAT(of_rank_0, StatusIs(StatusCode::kAborted, AllOf(HasSubstr("rank 1"), HasSubstr("EIO"))));
  EXPECT_THAT(job.SaveOne(0, 20), StatusIs(StatusCode::kAborted, AllOf(HasSubstr("rank 1"), HasSubstr("EIO"))));
  EXPECT_THAT(job.SaveOne(0, 30), IsOk());
  rank_1.join();
  EXPECT_THAT(of_rank_1, IsOk());
  EXPECT_THAT(job.Check(30), IsOk());
}

// Rank 0 reads the list only for a vote that is new, and one that it cannot read is no refusal.
TEST(RefusedAttemptsTest, AListThatCannotBeReadIsReadAgain) {
  RankedJob job(2);
  job.OpenRanks({.vote_timeout = absl::Minutes(5)});
  job.files(1).SetRule([](const FailingFileSystem::Call& call) {
    return call.operation == "QueueWrite" ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT(job.SaveOne(1, 10), StatusIs(StatusCode::kAborted, HasSubstr("EIO")));
  EXPECT_THAT(job.SaveOne(1, 20), StatusIs(StatusCode::kAborted, HasSubstr("EIO")));
  std::atomic<int> refused = 0;
  job.files(0).SetRule([&](const FailingFileSystem::Call& call) {
    const bool fails = absl::StrContains(call.path, "/refused-") && ++refused <= 3;
    return fails ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT(job.SaveOne(0, 10), StatusIs(StatusCode::kAborted, AllOf(HasSubstr("rank 1"), HasSubstr("EIO"))));
  EXPECT_GT(refused, 3);
}

}  // namespace
}  // namespace tidemark::storage
