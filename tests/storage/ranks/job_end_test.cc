// Ranks of a job that is about to be ended wait no longer than that, though their options let them wait for minutes.

#include <atomic>
#include <chrono>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/ranks/ranked_job.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

class JobEndTest : public testing::Test {
 protected:
  void SetUp() override {
    job_.OpenRanks({.vote_timeout = absl::Minutes(5)});
    ASSERT_THAT(job_.Save(10), Each(IsOk()));
  }
  void TearDown() override {
    EXPECT_LT(std::chrono::steady_clock::now() - begin_, std::chrono::minutes(1));
    job_.EndWithin(absl::InfiniteDuration());
    EXPECT_THAT(job_.Save(50), Each(IsOk()));
    EXPECT_THAT(job_.Check(50), IsOk());
  }
  absl::Status SaveAlone(uint32_t rank, int64_t step) {
    return job_.Save(step, [rank](uint32_t one) { return one == rank; })[rank];
  }

  RankedJob job_{2};
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

TEST_F(JobEndTest, LaterAttemptsEndWithTheJob) {
  job_.EndWithin(absl::Seconds(2));
  EXPECT_THAT(SaveAlone(0, 20),
              StatusIs(StatusCode::kAborted, AllOf(HasSubstr("no vote of rank 1"), HasSubstr("before the deadline"))));
  job_.EndWithin(absl::Seconds(2));  // the first took most of it, and the shard must be durable in time
  EXPECT_THAT(SaveAlone(1, 30), StatusIs(StatusCode::kUnknown, HasSubstr("deadline")));
}

// EndWithin is called by another thread than the one that saves.
TEST_F(JobEndTest, TheOpenAttemptEndsWithTheJob) {
  for (const uint32_t rank : {0u, 1u}) {
    absl::Notification writes;
    std::atomic<bool> has_written = false;
    job_.files(rank).SetGate([&](const std::string& operation, const std::string&) {
      if (operation == "QueueWrite" && !has_written.exchange(true)) writes.Notify();
    });
    std::thread ending([&] {
      writes.WaitForNotification();
      job_.EndWithin(absl::Seconds(5));
    });
    const absl::Status told = SaveAlone(rank, 20 + rank);
    ending.join();
    job_.files(rank).SetGate(nullptr);
    EXPECT_THAT(told, StatusIs(rank == 0 ? StatusCode::kAborted : StatusCode::kUnknown, HasSubstr("deadline")));
    job_.EndWithin(absl::InfiniteDuration());
  }
}

}  // namespace
}  // namespace tidemark::storage
