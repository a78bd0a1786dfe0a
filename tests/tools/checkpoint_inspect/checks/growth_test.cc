#include "tools/checkpoint_inspect/checks/growth.h"

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::DoubleNear;
using testing::Optional;

const absl::Time kStart = absl::FromUnixSeconds(1'700'000'000);

// A save every hour, of 1000 bytes.
std::vector<StepInfo> Hourly(size_t count) {
  std::vector<StepInfo> steps;
  for (size_t i = 0; i < count; ++i) {
    steps.push_back({.step = static_cast<int64_t>(i),
                     .sequence = i + 1,
                     .created = kStart + static_cast<int64_t>(i) * absl::Hours(1),
                     .stored_bytes = 1000});
  }
  return steps;
}

TEST(Growth, IsWhatSavesWriteWhereAllOfThemStay) {
  const Growth growth = EstimateGrowth(Hourly(10));
  EXPECT_EQ(growth.saves, 10u);
  EXPECT_EQ(growth.between_saves, absl::Hours(1));
  EXPECT_THAT(growth.written_per_day(), Optional(DoubleNear(24000, 1e-6)));
  EXPECT_EQ(growth.kept_share, 1.0);
  EXPECT_THAT(growth.kept_per_day(), Optional(DoubleNear(24000, 1e-6)));
}

TEST(Growth, DoesNotCountWhatRetentionDeletes) {
  std::vector<StepInfo> steps = Hourly(40);
  // The latest three stay, and every tenth.
  for (size_t i = 0; i < 37; ++i) {
    if (i % 10 != 0) steps[i].state = StepState::kDeleted;
  }
  EXPECT_EQ(EstimateGrowth(steps).kept_share, 0.1);
  EXPECT_THAT(EstimateGrowth(steps).kept_per_day(), Optional(DoubleNear(2400, 1e-6)));
  for (size_t i = 0; i < 37; ++i) steps[i].state = StepState::kDeleted;
  EXPECT_EQ(EstimateGrowth(steps).kept_per_day(), 0.0);
}

TEST(Growth, IsThatOfTheLastSaves) {
  std::vector<StepInfo> steps = Hourly(kGrowthSavesMax + 50);
  for (size_t i = 0; i < 50; ++i) steps[i].stored_bytes = 1'000'000;
  const Growth growth = EstimateGrowth(steps);
  EXPECT_EQ(growth.saves, kGrowthSavesMax);
  EXPECT_NEAR(growth.bytes_per_save, 1000, 1e-6);
}

TEST(Growth, IsNoneOfAClockThatJumpedOrARunThatStoodStill) {
  std::vector<StepInfo> steps = Hourly(20);
  for (size_t i = 5; i < 20; ++i) steps[i].created -= absl::Hours(1000);
  for (size_t i = 12; i < 20; ++i) steps[i].created += absl::Hours(5000);
  EXPECT_EQ(EstimateGrowth(steps).between_saves, absl::Hours(1));
  // A clock that only ever goes back tells nothing.
  for (size_t i = 0; i < 20; ++i) steps[i].created = kStart - static_cast<int64_t>(i) * absl::Hours(1);
  EXPECT_EQ(EstimateGrowth(steps).written_per_day(), std::nullopt);
  EXPECT_EQ(EstimateGrowth(steps).kept_per_day(), std::nullopt);
}

TEST(Growth, GoesByTheOrderOfTheCommitsAndLeavesOutWhatNeverWas) {
  std::vector<StepInfo> steps = Hourly(4);
  std::swap(steps[1].step, steps[2].step);
  std::swap(steps[1], steps[2]);
  steps.push_back({.step = 90, .state = StepState::kFailed, .sequence = 0, .stored_bytes = 1 << 30});
  steps.push_back({.step = 91, .state = StepState::kUnsaved});
  const Growth growth = EstimateGrowth(steps);
  EXPECT_EQ(growth.saves, 4u);
  EXPECT_EQ(growth.between_saves, absl::Hours(1));
}

TEST(Growth, IsNotKnownOfFewerThanTwoSaves) {
  EXPECT_EQ(EstimateGrowth({}).saves, 0u);
  EXPECT_EQ(EstimateGrowth({}).written_per_day(), std::nullopt);
  EXPECT_EQ(EstimateGrowth(Hourly(1)).written_per_day(), std::nullopt);
  EXPECT_EQ(EstimateGrowth(Hourly(1)).kept_share, std::nullopt);
}

TEST(Growth, IsNotToldFromLessThanAMinute) {
  std::vector<StepInfo> steps = Hourly(31);
  for (size_t i = 0; i < steps.size(); ++i) steps[i].created = kStart + static_cast<int64_t>(i) * absl::Seconds(2);
  EXPECT_EQ(EstimateGrowth(steps).span, absl::Minutes(1));
  EXPECT_NE(EstimateGrowth(steps).written_per_day(), std::nullopt);
  steps.pop_back();
  EXPECT_EQ(EstimateGrowth(steps).between_saves, absl::Seconds(2));
  EXPECT_EQ(EstimateGrowth(steps).written_per_day(), std::nullopt);
  EXPECT_EQ(EstimateGrowth(steps).kept_per_day(), std::nullopt);
}

TEST(Growth, IsIdleWhereTheLastSaveIsTenTimesAsLongAgoAsSavesWereApart) {
  std::vector<StepInfo> steps = Hourly(4);
  const absl::Time last = steps.back().created;
  EXPECT_EQ(EstimateGrowth(steps).last_save, last);
  EXPECT_FALSE(EstimateGrowth(steps).IsIdle(last + absl::Hours(10)));
  EXPECT_TRUE(EstimateGrowth(steps).IsIdle(last + absl::Hours(10) + absl::Seconds(1)));
  EXPECT_FALSE(EstimateGrowth(steps).IsIdle(last - absl::Hours(100)));
  EXPECT_FALSE(EstimateGrowth(Hourly(1)).IsIdle(last + absl::Hours(1000)));
  steps.back().created = absl::UnixEpoch();
  EXPECT_EQ(EstimateGrowth(steps).last_save, std::nullopt);
  EXPECT_FALSE(EstimateGrowth(steps).IsIdle(last + absl::Hours(1000)));
}

TEST(TimeUntilFull, IsTheRoomByTheRate) {
  EXPECT_EQ(TimeUntilFull(1000, 500), absl::Hours(48));
  EXPECT_EQ(TimeUntilFull(0, 500), absl::ZeroDuration());
  EXPECT_EQ(TimeUntilFull(1000, std::nullopt), std::nullopt);
  EXPECT_EQ(TimeUntilFull(1000, 0), std::nullopt);
  EXPECT_EQ(TimeUntilFull(UINT64_MAX, 1e-300), std::nullopt);
}

}  // namespace
}  // namespace tidemark::inspect
