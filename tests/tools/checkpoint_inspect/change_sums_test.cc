#include "tools/checkpoint_inspect/change_sums.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gmock/gmock.h"

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

}  // namespace
}  // namespace tidemark::inspect
