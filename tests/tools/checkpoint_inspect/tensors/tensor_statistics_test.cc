#include "tools/checkpoint_inspect/tensors/tensor_statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "tests/non_finite.h"
#include "tests/storage/io/drawn_cases.h"

namespace tidemark::inspect {
namespace {

template <typename T>
TensorStatistics StatisticsOf(Dtype dtype, const std::vector<T>& values) {
  TensorStatistics statistics;
  statistics.Add(dtype, std::as_bytes(std::span(values)));
  return statistics;
}

// By the definitions, in two passes and long doubles.
template <typename T>
void ExpectAsDefined(const TensorStatistics& statistics, const std::vector<T>& values, long double tolerance) {
  uint64_t zeros = 0;
  uint64_t nan = 0;
  uint64_t inf = 0;
  std::vector<long double> finite;
  for (const T value : values) {
    const auto wide = static_cast<long double>(value);
    zeros += wide == 0 ? 1 : 0;
    nan += std::isnan(wide) ? 1 : 0;
    inf += std::isinf(wide) ? 1 : 0;
    if (std::isfinite(wide)) finite.push_back(wide);
  }
  EXPECT_EQ(statistics.numbers, values.size());
  EXPECT_EQ(statistics.zeros, zeros);
  EXPECT_EQ(statistics.nan, nan);
  EXPECT_EQ(statistics.inf, inf);
  ASSERT_EQ(statistics.finite(), finite.size());
  if (finite.empty()) return;
  // Distances from the first number: a sum of numbers far from zero would not be exact here either.
  long double sum = 0;
  long double squares = 0;
  for (const long double value : finite) {
    sum += value - finite[0];
    squares += value * value;
  }
  const long double mean_distance = sum / static_cast<long double>(finite.size());
  const long double mean = finite[0] + mean_distance;
  long double deviations = 0;
  for (const long double value : finite) {
    const long double deviation = value - finite[0] - mean_distance;
    deviations += deviation * deviation;
  }
  const auto near = [&](long double found, long double expected) {
    EXPECT_LE(std::abs(found - expected), tolerance * std::abs(expected)) << found << " is not " << expected;
  };
  EXPECT_EQ(statistics.min, *std::min_element(finite.begin(), finite.end()));
  EXPECT_EQ(statistics.max, *std::max_element(finite.begin(), finite.end()));
  // A sum of numbers that cancel each other out has no more digits than the numbers.
  EXPECT_LE(std::abs(statistics.mean - mean), tolerance * std::sqrt(squares / static_cast<long double>(finite.size())));
  near(statistics.StandardDeviation(), std::sqrt(deviations / static_cast<long double>(finite.size())));
  near(statistics.Norm(), std::sqrt(squares));
}

TEST(TensorStatistics, AreThoseOfAFewNumbers) {
  const TensorStatistics statistics = StatisticsOf<float>(Dtype::kFloat32, {3, -4, 0, -0.0F, 5});
  EXPECT_EQ(statistics.numbers, 5u);
  EXPECT_EQ(statistics.zeros, 2u);
  EXPECT_EQ(statistics.min, -4);
  EXPECT_EQ(statistics.max, 5);
  EXPECT_NEAR(static_cast<double>(statistics.mean), 0.8, 1e-15);
  EXPECT_DOUBLE_EQ(statistics.StandardDeviation(), std::sqrt(46.8 / 5));
  EXPECT_DOUBLE_EQ(statistics.Norm(), std::sqrt(50.0));
}

TEST(TensorStatistics, AreAsDefinedForEveryLengthAroundABlock) {
  const uint32_t seed = storage::SeedOfCases();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.5F, 2.0F);
  for (const size_t length : {1u, 2u, 7u, 8u, 9u, 15u, 16u, 2047u, 2048u, 2049u, 4096u, 10007u}) {
    std::vector<float> values(length);
    for (float& value : values) value = normal(random);
    SCOPED_TRACE(length);
    ExpectAsDefined(StatisticsOf(Dtype::kFloat32, values), values, 1e-14L);
  }
}

TEST(TensorStatistics, KeepTheirDigitsFarFromZero) {
  // The sum of squares less the square of the sum would have none left.
  std::vector<double> values(100'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1e9 + static_cast<double>(i % 7) * 1e-3;
  ExpectAsDefined(StatisticsOf(Dtype::kFloat64, values), values, 1e-12L);
  // Numbers that a double can hardly tell apart.
  for (size_t i = 0; i < values.size(); ++i) values[i] = i % 2 == 0 ? 1e8 : std::nextafter(1e8, 2e8);
  ExpectAsDefined(StatisticsOf(Dtype::kFloat64, values), values, 1e-9L);
}

TEST(TensorStatistics, AreRightForTheLargestAndTheSmallestDoubles) {
  const double max = std::numeric_limits<double>::max();
  const std::vector<double> huge = {max / 4, -max / 2, max / 8, max / 2};
  ExpectAsDefined(StatisticsOf(Dtype::kFloat64, huge), huge, 1e-15L);
  const std::vector<double> tiny = {1e-200, -3e-200, 5e-324, 0};
  ExpectAsDefined(StatisticsOf(Dtype::kFloat64, tiny), tiny, 1e-15L);
  EXPECT_EQ(StatisticsOf<double>(Dtype::kFloat64, {max, max, max, max}).Norm(), kInfinity);
}

TEST(TensorStatistics, LeaveOutWhatIsNotFinite) {
  std::vector<double> values(5000, 2);
  values[0] = kNan;
  values[1] = -kInfinity;
  values[2500] = kInfinity;
  values[2501] = 7;
  values[4999] = kNan;
  ExpectAsDefined(StatisticsOf(Dtype::kFloat64, values), values, 1e-14L);
  const TensorStatistics none = StatisticsOf<float>(Dtype::kFloat32, {NAN, INFINITY, -INFINITY});
  EXPECT_EQ(none.finite(), 0u);
  EXPECT_EQ(none.nan, 1u);
  EXPECT_EQ(none.inf, 2u);
  EXPECT_EQ(none.Norm(), 0);
  EXPECT_EQ(none.StandardDeviation(), 0);
}

TEST(TensorStatistics, OfNothingAreEmpty) {
  const TensorStatistics statistics = StatisticsOf<float>(Dtype::kFloat32, {});
  EXPECT_EQ(statistics.numbers, 0u);
  EXPECT_EQ(statistics.finite(), 0u);
  EXPECT_EQ(statistics.Norm(), 0);
  EXPECT_EQ(statistics.StandardDeviation(), 0);
}

TEST(TensorStatistics, AreExactForIntegersThatADoubleRounds) {
  const int64_t far = (int64_t{1} << 62) + 1;
  const std::vector<int64_t> values = {far, far + 2, far + 4};
  const TensorStatistics statistics = StatisticsOf(Dtype::kInt64, values);
  EXPECT_EQ(static_cast<int64_t>(statistics.min), far);
  EXPECT_EQ(static_cast<int64_t>(statistics.max), far + 4);
  EXPECT_NEAR(statistics.StandardDeviation(), std::sqrt(8.0 / 3), 1e-9);
  const std::vector<uint64_t> largest = {UINT64_MAX};
  EXPECT_EQ(static_cast<uint64_t>(StatisticsOf(Dtype::kUint64, largest).max), UINT64_MAX);
  std::vector<int32_t> small(3000);
  for (size_t i = 0; i < small.size(); ++i) small[i] = static_cast<int32_t>(i) - 1000;
  ExpectAsDefined(StatisticsOf(Dtype::kInt32, small), small, 1e-14L);
}

TEST(TensorStatistics, CountNumbersAndNotElements) {
  const TensorStatistics complex = StatisticsOf<float>(Dtype::kComplex64, {3, 4, 0, 0});
  EXPECT_EQ(complex.numbers, 4u);
  EXPECT_EQ(complex.zeros, 2u);
  EXPECT_DOUBLE_EQ(complex.Norm(), 5);
  const TensorStatistics paired = StatisticsOf<uint8_t>(Dtype::kFloat4E2M1FnX2, {0x71, 0x00});
  EXPECT_EQ(paired.numbers, 4u);
  EXPECT_EQ(paired.max, 6);
  const TensorStatistics narrow = StatisticsOf<uint8_t>(Dtype::kInt4, {0x0f, 0x07});
  EXPECT_EQ(narrow.min, -1);
  EXPECT_EQ(narrow.max, 7);
}

TEST(TensorStatistics, AreTheSameInPieces) {
  const uint32_t seed = storage::SeedOfCases();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(-3, 0.01);
  std::vector<double> values(20'000);
  for (double& value : values) value = normal(random);
  values[17] = kNan;
  TensorStatistics merged;
  for (size_t begin = 0; begin < values.size();) {
    const size_t count = std::min<size_t>(random() % 5000, values.size() - begin);
    TensorStatistics part;
    part.Add(Dtype::kFloat64, std::as_bytes(std::span(values).subspan(begin, count)));
    merged.Merge(part);
    begin += count;
  }
  ExpectAsDefined(merged, values, 1e-12L);
}

}  // namespace
}  // namespace tidemark::inspect
