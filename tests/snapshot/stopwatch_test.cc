#include "snapshot/stopwatch.h"

#include <vector>

#include "gtest/gtest.h"

namespace tidemark {
namespace {

TEST(WaitFor, GoesOnWhereTheWallClockSaysThatItsTimeIsUpAndItIsNot) {
  std::vector<absl::Time> deadlines;
  const absl::Time before = absl::Now();
  EXPECT_TRUE(WaitFor(absl::Hours(1), [&](absl::Time deadline) {
    deadlines.push_back(deadline);
    return deadlines.size() == 3;  // until then it was as if the clock had been set forward by an hour
  }));
  ASSERT_EQ(deadlines.size(), 3u);
  for (absl::Time deadline : deadlines) EXPECT_GT(deadline, before + absl::Minutes(59));
}

TEST(WaitFor, LooksOnceWhereThereIsNoTime) {
  for (absl::Duration timeout : {absl::ZeroDuration(), -absl::Hours(1), -absl::InfiniteDuration()}) {
    int looks = 0;
    EXPECT_FALSE(WaitFor(timeout, [&](absl::Time deadline) {
      EXPECT_LE(deadline, absl::Now());
      ++looks;
      return false;
    }));
    EXPECT_EQ(looks, 1);
    EXPECT_TRUE(WaitFor(timeout, [](absl::Time) { return true; }));
  }
}

TEST(WaitFor, HasNoDeadlineWhereItMayTakeForEver) {
  EXPECT_TRUE(
      WaitFor(absl::InfiniteDuration(), [](absl::Time deadline) { return deadline == absl::InfiniteFuture(); }));
}

TEST(WaitFor, GivesUpWhenItsTimeHasPassed) {
  const Stopwatch watch;
  EXPECT_FALSE(WaitFor(absl::Milliseconds(1), [](absl::Time) { return false; }));
  EXPECT_GE(watch.elapsed(), absl::Milliseconds(1));
}

}  // namespace
}  // namespace tidemark
