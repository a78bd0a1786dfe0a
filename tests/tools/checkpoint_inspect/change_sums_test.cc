#include "tools/checkpoint_inspect/change_sums.h"

#include <cmath>
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
  EXPECT_TRUE(IsFloat(Dtype::kFloat8E4M3Fn));
  EXPECT_FALSE(IsFloat(Dtype::kInt32));
}

TEST(ChangeSums, IsNotFiniteWhereANumberIsNot) {
  const std::vector<float> a = {1, 1};
  const std::vector<float> b = {1, std::numeric_limits<float>::quiet_NaN()};
  ChangeSums sums;
  sums.Add(Dtype::kFloat32, Bytes(a), Bytes(b));
  EXPECT_TRUE(std::isnan(sums.difference));
  EXPECT_DOUBLE_EQ(sums.before, 2);
}

TEST(VisitNumbers, GivesAllOfThemInOrderFromWhereverTheyLie) {
  std::vector<float> values(10'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  std::vector<std::byte> shifted(values.size() * sizeof(float) + 1);
  std::copy(Bytes(values).begin(), Bytes(values).end(), shifted.begin() + 1);
  size_t next = 0;
  VisitNumbers(Dtype::kFloat32, std::span<const std::byte>(shifted).subspan(1), [&](std::span<const double> numbers) {
    for (const double number : numbers) ASSERT_EQ(number, static_cast<double>(next++));
  });
  EXPECT_EQ(next, values.size());
}

}  // namespace
}  // namespace tidemark::inspect
