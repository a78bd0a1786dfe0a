#include "tools/checkpoint_inspect/output/chart_axis.h"

#include <cmath>
#include <random>

#include "gmock/gmock.h"
#include "tests/storage/io/drawn_cases.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;

TEST(LinearAxis, HasRoundTicksAndEndsAtThem) {
  const Axis axis = LinearAxis(0.13, 0.97, AxisUnit::kNumber, 6, /*rounded=*/true);
  EXPECT_THAT(axis.labels, ElementsAre("0", "0.2", "0.4", "0.6", "0.8", "1.0"));
  EXPECT_DOUBLE_EQ(axis.low, 0);
  EXPECT_DOUBLE_EQ(axis.high, 1);
  EXPECT_DOUBLE_EQ(axis.Position(0.5), 0.5);
}

TEST(LinearAxis, EndsWhereTheNumbersDoUnlessItIsRounded) {
  const Axis axis = LinearAxis(130, 970, AxisUnit::kInteger, 6, /*rounded=*/false);
  EXPECT_THAT(axis.labels, ElementsAre("200", "400", "600", "800"));
  EXPECT_DOUBLE_EQ(axis.low, 130);
  EXPECT_DOUBLE_EQ(axis.high, 970);
}

TEST(LinearAxis, WritesEachUnitAsPeopleDo) {
  EXPECT_THAT(LinearAxis(0, 3e6, AxisUnit::kBytes, 5, true).labels, ElementsAre("0 MiB", "1 MiB", "2 MiB", "3 MiB"));
  EXPECT_THAT(LinearAxis(0, 1500, AxisUnit::kBytes, 5, true).labels,
              ElementsAre("0 KiB", "0.5 KiB", "1 KiB", "1.5 KiB"));
  EXPECT_THAT(LinearAxis(0, 0.03, AxisUnit::kSeconds, 5, true).labels, ElementsAre("0 ms", "10 ms", "20 ms", "30 ms"));
  EXPECT_THAT(LinearAxis(0, 2.5, AxisUnit::kSeconds, 4, true).labels, ElementsAre("0 s", "1 s", "2 s", "3 s"));
  EXPECT_THAT(LinearAxis(0, 30000, AxisUnit::kInteger, 4, true).labels, ElementsAre("0", "10k", "20k", "30k"));
  EXPECT_THAT(LinearAxis(0, 3e7, AxisUnit::kInteger, 4, true).labels, ElementsAre("0", "10M", "20M", "30M"));
  EXPECT_THAT(LinearAxis(0, 2e-5, AxisUnit::kNumber, 3, true).labels, ElementsAre("0", "1e-5", "2e-5"));
  EXPECT_THAT(LinearAxis(0, 1, AxisUnit::kInteger, 5, true).labels, ElementsAre("0", "1"));
}

TEST(LinearAxis, WidensARangeOfNothing) {
  for (const double value : {0.0, 5.0, -5.0, 1e-30, 1e30}) {
    const Axis axis = LinearAxis(value, value, AxisUnit::kNumber, 5, true);
    EXPECT_LT(axis.low, axis.high) << value;
    EXPECT_LE(axis.low, value);
    EXPECT_GE(axis.high, value);
    EXPECT_GE(axis.ticks.size(), 2) << value;
  }
}

TEST(LinearAxis, TakesWhateverADoubleCanBe) {
  const auto seed = storage::SeedOfCases();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> exponent(-300, 308);
  for (int i = 0; i < 2000; ++i) {
    double low = std::pow(10, exponent(random)) * (random() % 2 == 0 ? 1 : -1);
    double high = i % 3 == 0 ? low * (1 + 1e-14) : std::pow(10, exponent(random));
    if (low > high) std::swap(low, high);
    const auto unit = static_cast<AxisUnit>(random() % 2);
    const Axis axis = LinearAxis(low, high, unit, 7, random() % 2 == 0);
    ASSERT_LT(axis.low, axis.high) << low << " " << high;
    ASSERT_TRUE(std::isfinite(axis.low) && std::isfinite(axis.high)) << low << " " << high;
    ASSERT_LE(axis.ticks.size(), 7);
    ASSERT_EQ(axis.ticks.size(), axis.labels.size());
    for (const double tick : axis.ticks) {
      ASSERT_GE(axis.Position(tick), -1e-9) << low << " " << high;
      ASSERT_LE(axis.Position(tick), 1 + 1e-9) << low << " " << high;
    }
  }
}

TEST(LogAxis, HasPowersOfTenAndWhereTheyAreFewPartsOfThem) {
  EXPECT_THAT(LogAxis(0.003, 40, 8).labels, ElementsAre("0.001", "0.01", "0.1", "1", "10", "100"));
  EXPECT_THAT(LogAxis(0.3, 4, 8).labels, ElementsAre("0.2", "0.5", "1", "2", "5"));
  EXPECT_THAT(LogAxis(1, 1, 8).labels, ElementsAre("1", "2"));
  EXPECT_LE(LogAxis(1e-300, 1e300, 7).ticks.size(), 8);
  EXPECT_THAT(LogAxis(1e307, 1.5e308, 8).labels, ElementsAre("1e307", "2e307", "5e307", "1e308"));
  EXPECT_DOUBLE_EQ(LogAxis(0.01, 100, 8).Position(1), 0.5);
}

}  // namespace
}  // namespace tidemark::inspect
