#include "tools/checkpoint_inspect/tensors/change_sums.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "tests/storage/io/drawn_cases.h"
#include "tools/checkpoint_inspect/tensors/tensor_change.h"

namespace tidemark::inspect {
namespace {

template <typename T>
std::span<const std::byte> Bytes(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

TEST(ChangeSums, SumsSquaresOfBothAndOfTheDifference) {
  const std::vector<float> a = {3, 0, 4};
  const std::vector<float> b = {3, 2, 3};
  ChangeSums sums;
  sums.Add(Dtype::kFloat32, Bytes(a), Bytes(b));
  sums.Add(Dtype::kFloat32, Bytes(a), Bytes(a));
  EXPECT_DOUBLE_EQ(sums.difference, 5);
  EXPECT_DOUBLE_EQ(sums.before, 50);
  EXPECT_DOUBLE_EQ(sums.after, 22 + 25);
}

TEST(ChangeSums, TakesEveryWidthOfFloat) {
  const std::vector<double> wide = {1, 2};
  const std::vector<uint16_t> bfloat = {0x3F80, 0x4000};
  const std::vector<uint16_t> half = {0x3C00, 0x4000};
  EXPECT_DOUBLE_EQ(SumOfSquares(Dtype::kFloat64, Bytes(wide)), 5);
  EXPECT_DOUBLE_EQ(SumOfSquares(Dtype::kComplex128, Bytes(wide)), 5);
  EXPECT_DOUBLE_EQ(SumOfSquares(Dtype::kBfloat16, Bytes(bfloat)), 5);
  EXPECT_DOUBLE_EQ(SumOfSquares(Dtype::kFloat16, Bytes(half)), 5);
}

TEST(ChangeSums, IsTheSameOfBytesThatLieAnywhere) {
  const std::vector<uint16_t> bfloat = {0x3F80, 0x4000, 0xC040};
  std::vector<std::byte> shifted(7);
  std::copy(Bytes(bfloat).begin(), Bytes(bfloat).end(), shifted.begin() + 1);
  const auto unaligned = std::span<const std::byte>(shifted).subspan(1);
  EXPECT_DOUBLE_EQ(SumOfSquares(Dtype::kBfloat16, unaligned), 14);
  ChangeSums sums;
  sums.Add(Dtype::kBfloat16, Bytes(bfloat), unaligned);
  EXPECT_EQ(sums.difference, 0);
  EXPECT_DOUBLE_EQ(sums.after, 14);
}

TEST(ChangeSums, IsNotFiniteWhereANumberIsNot) {
  const std::vector<float> a = {1, 1};
  const std::vector<float> b = {1, std::numeric_limits<float>::quiet_NaN()};
  ChangeSums sums;
  sums.Add(Dtype::kFloat32, Bytes(a), Bytes(b));
  EXPECT_TRUE(std::isnan(sums.difference));
  EXPECT_DOUBLE_EQ(sums.before, 2);
}

ChangeSums SumsOf(const std::vector<double>& a, const std::vector<double>& b) {
  ChangeSums sums;
  sums.Add(Dtype::kFloat64, Bytes(a), Bytes(b));
  return sums;
}

TEST(ChangeSums, HoldsTheSquaresOfTheLargestAndTheSmallestDoubles) {
  const double max = std::numeric_limits<double>::max();
  const double min = std::numeric_limits<double>::denorm_min();
  const ChangeSums huge = SumsOf({max, -max}, {-max, max});
  EXPECT_TRUE(std::isfinite(huge.difference));
  EXPECT_DOUBLE_EQ(static_cast<double>(std::sqrt(huge.before) / max), std::sqrt(2));
  EXPECT_EQ(huge.after, huge.before);
  EXPECT_DOUBLE_EQ(static_cast<double>(huge.difference / huge.before), 4);
  const ChangeSums tiny = SumsOf({min, 0}, {2 * min, 0});
  EXPECT_EQ(std::sqrt(tiny.difference), min);
  EXPECT_EQ(std::sqrt(tiny.after), 2 * min);
  // Only the change is tiny, or only one side.
  EXPECT_DOUBLE_EQ(static_cast<double>(std::sqrt(SumsOf({1, 1e-170}, {1, 3e-170}).difference)), 2e-170);
  EXPECT_DOUBLE_EQ(static_cast<double>(std::sqrt(SumsOf({1, 1}, {0, 1e-170}).after)), 1e-170);
  EXPECT_DOUBLE_EQ(static_cast<double>(std::sqrt(SumOfSquares(Dtype::kFloat64, Bytes(std::vector{3e200, 4e200})))),
                   5e200);
  EXPECT_DOUBLE_EQ(static_cast<double>(std::sqrt(SumOfSquares(Dtype::kFloat64, Bytes(std::vector{3e-200, 4e-200})))),
                   5e-200);
}

TEST(ChangeSums, IsNothingOnlyWhereNoNumberChanged) {
  // Whole pieces of each kind.
  std::vector<double> a(3 * 2048, 0.0);
  std::fill(a.begin() + 2048, a.begin() + 2 * 2048, 1e-170);
  std::fill(a.begin() + 2 * 2048, a.end(), 1.0);
  EXPECT_EQ(SumsOf(a, a).difference, 0);
  std::vector<double> b = a;
  b[5] = -0.0;
  EXPECT_EQ(SumsOf(a, b).difference, 0);
  for (const size_t i : {5u, 3000u}) {
    b = a;
    b[i] += 1e-180;
    EXPECT_GT(SumsOf(a, b).difference, 0) << i;
  }
}

TEST(ChangeSums, IsWhatDiffTells) {
  const uint32_t seed = storage::SeedOfCases();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  for (const double scale : {1e-320, 1e-200, 1e-100, 1.0, 1e100, 1e200, 1e307}) {
    for (const double change : {1e-6, 1.0}) {
      std::vector<double> a(3000), b(3000);
      for (size_t i = 0; i < a.size(); ++i) {
        a[i] = scale * normal(random);
        b[i] = a[i] + scale * change * normal(random);
      }
      const ChangeSums sums = SumsOf(a, b);
      TensorChange told;
      told.Add(Dtype::kFloat64, Bytes(a), Dtype::kFloat64, Bytes(b), 0);
      const double relative = RelativeChange(sums.difference, sums.before);
      EXPECT_NEAR(relative, told.Relative(), 1e-12 * relative) << scale << " " << change;
    }
  }
}

TEST(RelativeChange, IsNothingOrInfiniteOnlyWhereItIsSo) {
  const long double huge = SumsOf({1e300}, {0}).before;
  const long double tiny = SumsOf({1e-300}, {0}).before;
  EXPECT_EQ(RelativeChange(9, 4), 1.5);
  EXPECT_EQ(RelativeChange(0, 4), 0);
  EXPECT_EQ(RelativeChange(0, 0), 0);
  EXPECT_EQ(RelativeChange(tiny, 0), std::numeric_limits<double>::infinity());
  EXPECT_EQ(RelativeChange(huge, tiny), std::numeric_limits<double>::max());
  EXPECT_EQ(RelativeChange(tiny, huge), std::numeric_limits<double>::denorm_min());
}

}  // namespace
}  // namespace tidemark::inspect
