#include "tools/checkpoint_inspect/tensors/float_histogram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "gmock/gmock.h"
#include "tests/non_finite.h"
#include "tests/storage/io/drawn_cases.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;

uint64_t Sum(const HistogramBins& bins) { return std::accumulate(bins.counts.begin(), bins.counts.end(), uint64_t{0}); }

// Holds each bin's count against the numbers themselves.
void ExpectExact(const HistogramBins& bins, const std::vector<double>& values) {
  ASSERT_EQ(bins.edges.size(), bins.counts.size() + 1);
  EXPECT_TRUE(std::is_sorted(bins.edges.begin(), bins.edges.end()));
  uint64_t total = 0;
  for (size_t i = 0; i < bins.counts.size(); ++i) {
    const bool last = i + 1 == bins.counts.size();
    const auto count = static_cast<uint64_t>(std::count_if(values.begin(), values.end(), [&](double value) {
      return value >= bins.edges[i] && (value < bins.edges[i + 1] || (last && value == bins.edges[i + 1]));
    }));
    EXPECT_EQ(bins.counts[i], count) << "[" << bins.edges[i] << ", " << bins.edges[i + 1] << ")";
    total += bins.counts[i];
  }
  EXPECT_EQ(total, values.size());
}

TEST(FloatHistogram, CountsEveryNumberInTheBinInWhichItLies) {
  const auto seed = storage::SeedOfCases();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (const double scale : {1e-20, 0.02, 1.0, 3e7}) {
    std::normal_distribution<double> normal(scale / 3, scale);
    std::vector<double> values;
    for (int i = 0; i < 3000; ++i) values.push_back(normal(random));
    FloatHistogram histogram;
    histogram.Add(std::span<const double>(values));
    const HistogramBins bins = histogram.Linear(64);
    EXPECT_LE(bins.counts.size(), 64);
    EXPECT_GE(bins.counts.size(), 32);
    ExpectExact(bins, values);
    EXPECT_EQ(histogram.count(), 3000);
    EXPECT_EQ(histogram.min(), *std::min_element(values.begin(), values.end()));
    EXPECT_EQ(histogram.max(), *std::max_element(values.begin(), values.end()));
    EXPECT_FALSE(histogram.IsHeavyTailed());
  }
}

TEST(FloatHistogram, WidensWithoutMovingWhatItHasCounted) {
  std::vector<double> values = {0, 0.1, -0.1};
  for (double value = 1; value < 1e12; value *= -7) values.push_back(value);
  FloatHistogram histogram;
  histogram.Add(std::span<const double>(values));
  ExpectExact(histogram.Linear(64), values);
}

TEST(FloatHistogram, ShowsNumbersOfManyMagnitudesByTheirRatio) {
  std::vector<double> values;
  for (int power = -30; power <= 0; ++power) values.insert(values.end(), 50, 3 * std::pow(10, power));
  FloatHistogram squares;
  squares.Add(std::span<const double>(values));
  EXPECT_TRUE(squares.IsHeavyTailed());
  const HistogramBins bins = squares.SymmetricLog(64);
  EXPECT_LE(bins.counts.size(), 64);
  EXPECT_EQ(bins.edges.front(), 0);
  EXPECT_EQ(Sum(bins), values.size());
  EXPECT_GE(std::count_if(bins.counts.begin(), bins.counts.end(), [](uint64_t count) { return count > 0; }), 30);
}

TEST(FloatHistogram, MirrorsItsBinsAtZero) {
  std::vector<double> values = {-8, -2, -0.5, 0, 0, 0.5, 2, 8};
  FloatHistogram histogram;
  histogram.Add(std::span<const double>(values));
  const HistogramBins bins = histogram.SymmetricLog(64);
  EXPECT_EQ(bins.counts.size() % 2, 1);
  EXPECT_EQ(bins.counts[bins.counts.size() / 2], 2);
  EXPECT_EQ(histogram.zeros(), 2);
  for (size_t i = 0; i < bins.edges.size(); ++i) EXPECT_EQ(bins.edges[i], -bins.edges[bins.edges.size() - 1 - i]);
  EXPECT_EQ(Sum(bins), values.size());
}

TEST(FloatHistogram, CountsWhatIsNotFiniteApart) {
  const std::vector<float> values = {1, kNan, 2, kInfinity, -kInfinity};
  FloatHistogram histogram;
  histogram.Add(std::span<const float>(values));
  EXPECT_EQ(histogram.count(), 5);
  EXPECT_EQ(histogram.nan(), 1);
  EXPECT_EQ(histogram.infinite(), 2);
  EXPECT_EQ(histogram.max(), 2);
  EXPECT_EQ(Sum(histogram.Linear(64)), 2);
}

TEST(FloatHistogram, HasNoBinsWhereNothingIsFinite) {
  FloatHistogram histogram;
  EXPECT_TRUE(histogram.Linear(64).counts.empty());
  EXPECT_TRUE(histogram.SymmetricLog(64).counts.empty());
  histogram.Add(kInfinity);
  EXPECT_TRUE(histogram.Linear(64).edges.empty());
  EXPECT_FALSE(histogram.IsHeavyTailed());
}

TEST(FloatHistogram, TakesTheWidestAndTheNarrowestNumbers) {
  const double huge = std::numeric_limits<double>::max();
  const double tiny = std::numeric_limits<double>::denorm_min();
  FloatHistogram histogram;
  for (const double value : {0.0, tiny, -tiny, huge, -huge, 1.0}) histogram.Add(value);
  for (const HistogramBins& bins : {histogram.Linear(64), histogram.SymmetricLog(64)}) {
    EXPECT_EQ(Sum(bins), 6);
    EXPECT_TRUE(std::is_sorted(bins.edges.begin(), bins.edges.end()));
    for (const double edge : bins.edges) EXPECT_TRUE(std::isfinite(edge)) << edge;
  }
  ExpectExact(histogram.Linear(64), {0.0, tiny, -tiny, huge, -huge, 1.0});
}

TEST(FloatHistogram, HasBinsAsFarAsDoublesReach) {
  const auto seed = storage::SeedOfCases();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const double max = std::numeric_limits<double>::max();
  std::uniform_real_distribution<double> uniform(-1, 1);
  std::vector<double> values = {max, -max};
  for (int i = 0; i < 3000; ++i) values.push_back(max * uniform(random));
  FloatHistogram histogram;
  histogram.Add(std::span<const double>(values));
  const HistogramBins bins = histogram.Linear(64);
  EXPECT_EQ(bins.counts.size(), 64);
  EXPECT_EQ(bins.edges.front(), -max);
  EXPECT_EQ(bins.edges.back(), max);
  ExpectExact(bins, values);
  EXPECT_FALSE(histogram.IsHeavyTailed());
}

TEST(FloatHistogram, HasOneBinOfNoWidthWhereAllNumbersAreTheSame) {
  const double max = std::numeric_limits<double>::max();
  const double min = std::numeric_limits<double>::denorm_min();
  for (const double value : {0.0, 1.0, -0.3, min, -max, max}) {
    SCOPED_TRACE(value);
    FloatHistogram histogram;
    for (int i = 0; i < 5; ++i) histogram.Add(value);
    histogram.Add(kNan);
    const HistogramBins bins = histogram.Linear(64);
    EXPECT_THAT(bins.edges, ElementsAre(value, value));
    EXPECT_THAT(bins.counts, ElementsAre(5));
    EXPECT_FALSE(histogram.IsHeavyTailed());
    EXPECT_EQ(Sum(histogram.SymmetricLog(64)), 5);
  }
  FloatHistogram zeros;
  for (const double zero : {-0.0, 0.0}) zeros.Add(zero);
  EXPECT_THAT(zeros.Linear(64).edges, ElementsAre(0, 0));
  EXPECT_THAT(zeros.SymmetricLog(64).edges, ElementsAre(0, 0));
  for (const double zero : {zeros.min(), zeros.max(), zeros.Linear(64).edges[0]}) EXPECT_FALSE(std::signbit(zero));
}

TEST(FloatHistogram, TakesZerosBeforeItKnowsTheRange) {
  const std::vector<double> values = {0, -0.0, 0, 3, -1e-310, 0, 5e-300, 1e100};
  for (size_t count = 4; count <= values.size(); ++count) {
    const std::vector<double> taken(values.begin(), values.begin() + static_cast<ptrdiff_t>(count));
    FloatHistogram histogram;
    histogram.Add(std::span<const double>(taken));
    ExpectExact(histogram.Linear(64), taken);
  }
}

}  // namespace
}  // namespace tidemark::inspect
