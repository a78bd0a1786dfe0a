#include "bench/measure.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;
using ::tidemark::storage::IsOk;

TEST(Median, IsTheMiddleOneOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({9, 1, 4}), 4);
  EXPECT_EQ(Median({9, 1, 4, 6}), 5);
}

TEST(Summarise, TakesTheMedianOfTheRatiosNotTheRatioOfTheMedians) {
  const Pairs<double> pairs = {{10, 1}, {2, 4}, {6, 3}};
  const Measurement measurement = Summarise(pairs, Unit::kBytes);
  EXPECT_THAT(measurement.ratios, ElementsAre(10, 0.5, 2));
  EXPECT_EQ(measurement.ratio, 2);
  EXPECT_EQ(measurement.numerator, 6);
  EXPECT_EQ(measurement.denominator, 3);
  EXPECT_EQ(measurement.unit, Unit::kBytes);
}

TEST(MeasurePairs, TakesTurnsAtBeginningAndKeepsTheSidesApart) {
  std::string order;
  const auto pairs = MeasurePairs<int>(
      3, [&](int pair) { order += std::to_string(pair); },
      [&]() -> absl::StatusOr<int> {
        order += "n";
        return 1;
      },
      [&]() -> absl::StatusOr<int> {
        order += "d";
        return 2;
      });
  ASSERT_THAT(pairs, IsOk());
  EXPECT_EQ(order, "1nd2dn3nd");
  EXPECT_THAT(*pairs, ElementsAre(Pair(1, 2), Pair(1, 2), Pair(1, 2)));
}

TEST(MeasurePairs, StopsAtTheFirstError) {
  int measured = 0;
  const auto pairs = MeasurePairs<int>(
      3, [](int) {}, [&]() -> absl::StatusOr<int> { return ++measured; },
      []() -> absl::StatusOr<int> { return absl::InternalError("the disk is gone"); });
  EXPECT_EQ(pairs.status(), absl::InternalError("the disk is gone"));
  EXPECT_EQ(measured, 1);
}

TEST(CpuSeconds, GrowsWithWork) {
  const double before = CpuSeconds();
  volatile uint64_t sum = 0;
  while (CpuSeconds() == before) sum = sum + 1;
  EXPECT_GT(CpuSeconds(), before);
}

}  // namespace
}  // namespace tidemark::bench
