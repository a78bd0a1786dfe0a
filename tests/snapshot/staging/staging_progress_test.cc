#include "snapshot/staging/staging_progress.h"

#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;

TEST(StagingProgress, HasWhatLiesBeforeTheFirstRunFromTheBeginning) {
  const StagingProgress progress({100}, 200);
  EXPECT_THAT(progress.WaitFor(100), IsOk());
}

TEST(StagingProgress, HasARunOnceAllBeforeItAreThere) {
  StagingProgress progress({0, 100, 200}, 300);
  progress.FinishRun(1);
  std::thread waiter([&] { EXPECT_THAT(progress.WaitFor(150), IsOk()); });
  progress.FinishRun(0);
  waiter.join();
  EXPECT_THAT(progress.WaitFor(200), IsOk());
  // What is not there shows as the failure that comes instead.
  StagingProgress gap({0, 100, 200}, 300);
  gap.FinishRun(1);
  gap.End(absl::InternalError("no more"));
  EXPECT_THAT(gap.WaitFor(150), StatusIs(absl::StatusCode::kInternal, testing::_));
}

TEST(StagingProgress, HoldsTheLastRunBackUntilStagingEnds) {
  StagingProgress progress({0, 100}, 200);
  progress.FinishRun(0);
  progress.FinishRun(1);
  progress.End(absl::InternalError("the last one was not told"));
  EXPECT_THAT(progress.WaitFor(100), IsOk());
  EXPECT_THAT(progress.WaitFor(200), StatusIs(absl::StatusCode::kInternal, testing::_));
  StagingProgress whole({0, 100}, 200);
  std::thread waiter([&] { EXPECT_THAT(whole.WaitFor(200), IsOk()); });
  whole.FinishRun(0);
  whole.FinishRun(1);
  whole.End(absl::OkStatus());
  waiter.join();
  EXPECT_THAT(whole.WaitUntilEnded(), IsOk());
}

TEST(StagingProgress, GivesTheFailureToWhoeverWaitsForMoreThanIsThere) {
  StagingProgress progress({0, 100}, 200);
  progress.FinishRun(0);
  std::thread waiter([&] {
    EXPECT_THAT(progress.WaitFor(200),
                StatusIs(absl::StatusCode::kInternal, testing::HasSubstr("the device fell off")));
  });
  progress.End(absl::InternalError("the device fell off"));
  waiter.join();
  EXPECT_THAT(progress.WaitFor(100), IsOk());
  EXPECT_THAT(progress.WaitUntilEnded(), StatusIs(absl::StatusCode::kInternal, testing::_));
}

TEST(StagingProgress, OfNothingWaitsForTheEnd) {
  StagingProgress progress({}, 0);
  EXPECT_THAT(progress.WaitFor(0), IsOk());
  progress.End(absl::OkStatus());
  EXPECT_THAT(progress.WaitUntilEnded(), IsOk());
}

TEST(StagingProgress, KnowsHowStagingEndedOnceItHas) {
  StagingProgress well({0}, 10);
  EXPECT_EQ(well.outcome(), std::nullopt);
  well.FinishRun(0);
  EXPECT_EQ(well.outcome(), std::nullopt);
  well.End(absl::OkStatus());
  EXPECT_EQ(well.outcome(), absl::OkStatus());
  StagingProgress badly({0}, 10);
  badly.End(absl::InternalError("the device fell off"));
  EXPECT_EQ(badly.outcome(), absl::InternalError("the device fell off"));
}

TEST(StagingProgress, IsWaitedForUntilADeadlineHoweverItEnds) {
  for (const absl::Status& end : {absl::OkStatus(), absl::InternalError("no copy")}) {
    StagingProgress progress({0}, 100);
    progress.FinishRun(0);
    EXPECT_FALSE(progress.WaitUntilEndedBy(Deadline::Passed()));
    EXPECT_FALSE(progress.WaitUntilEndedBy(Deadline::After(absl::Milliseconds(1))));
    std::thread waiter([&] { EXPECT_TRUE(progress.WaitUntilEndedBy(Deadline::After(absl::Hours(1)))); });
    progress.End(end);
    waiter.join();
    EXPECT_TRUE(progress.WaitUntilEndedBy(Deadline::Passed()));
  }
}

}  // namespace
}  // namespace tidemark
