#include "tools/checkpoint_inspect/tensors/tensor_change.h"

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

template <typename A, typename B>
TensorChange ChangeOf(Dtype dtype_a, const std::vector<A>& a, Dtype dtype_b, const std::vector<B>& b) {
  TensorChange change;
  change.Add(dtype_a, std::as_bytes(std::span(a)), dtype_b, std::as_bytes(std::span(b)), 0);
  return change;
}

TensorChange ChangeOf(const std::vector<double>& a, const std::vector<double>& b) {
  return ChangeOf(Dtype::kFloat64, a, Dtype::kFloat64, b);
}

TEST(TensorChange, IsThatOfAFewNumbers) {
  const TensorChange change = ChangeOf({3, 4, 0}, {3, 1, 4});
  EXPECT_EQ(change.numbers, 3u);
  EXPECT_DOUBLE_EQ(change.Norm(), 5);
  EXPECT_DOUBLE_EQ(change.Relative(), 1);
  EXPECT_DOUBLE_EQ(change.Cosine().value(), 13 / (5 * std::sqrt(26.0)));
  EXPECT_EQ(change.largest, 4);
  EXPECT_EQ(change.largest_element, 2u);
}

TEST(TensorChange, IsAsDefinedForEveryLengthAroundABlock) {
  const uint32_t seed = storage::SeedOfCases();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 1);
  for (const size_t length : {1u, 3u, 4u, 5u, 2047u, 2048u, 2049u, 10'007u}) {
    SCOPED_TRACE(length);
    std::vector<float> a(length);
    std::vector<float> b(length);
    long double squares_a = 0, squares_b = 0, squares = 0, product = 0, largest = -1;
    size_t largest_element = 0;
    for (size_t i = 0; i < length; ++i) {
      a[i] = normal(random);
      b[i] = a[i] + 1e-3F * normal(random);
      const long double difference = static_cast<long double>(b[i]) - a[i];
      squares_a += static_cast<long double>(a[i]) * a[i];
      squares_b += static_cast<long double>(b[i]) * b[i];
      squares += difference * difference;
      product += static_cast<long double>(a[i]) * b[i];
      if (std::abs(difference) > largest) {
        largest = std::abs(difference);
        largest_element = i;
      }
    }
    const TensorChange change = ChangeOf(Dtype::kFloat32, a, Dtype::kFloat32, b);
    const auto relative = static_cast<double>(std::sqrt(squares / squares_a));
    EXPECT_NEAR(change.Relative(), relative, 1e-15 * std::max(1.0, relative));
    EXPECT_NEAR(change.Cosine().value(), static_cast<double>(product / std::sqrt(squares_a * squares_b)), 1e-14);
    EXPECT_EQ(change.largest, largest);
    EXPECT_EQ(change.largest_element, largest_element);
  }
}

TEST(TensorChange, OfTheSameNumbersIsNone) {
  const TensorChange change = ChangeOf({1, -2, kNan, kInfinity}, {1, -2, kNan, kInfinity});
  EXPECT_EQ(change.Relative(), 0);
  EXPECT_DOUBLE_EQ(change.Cosine().value(), 1);
  EXPECT_EQ(change.not_finite, 0u);
  EXPECT_EQ(change.largest, 0);
  EXPECT_EQ(change.largest_element, 0u);
}

TEST(TensorChange, CountsWhatIsNotFiniteOnOneSideAndLeavesItOut) {
  std::vector<double> a(5000, 1);
  std::vector<double> b(5000, 1);
  b[4000] = 3;
  a[4001] = kNan;
  b[4002] = kInfinity;
  a[4003] = kInfinity;
  b[4003] = -kInfinity;
  const TensorChange change = ChangeOf(a, b);
  EXPECT_EQ(change.not_finite, 3u);
  EXPECT_EQ(change.numbers, 5000u);
  EXPECT_EQ(change.largest, 2);
  EXPECT_EQ(change.largest_element, 4000u);
  EXPECT_DOUBLE_EQ(change.Relative(), 2 / std::sqrt(4997.0));
}

TEST(TensorChange, FromNothingButZerosIsInfinite) {
  const TensorChange change = ChangeOf({0, 0}, {0, 1});
  EXPECT_EQ(change.Relative(), kInfinity);
  EXPECT_EQ(change.Cosine(), std::nullopt);
  const TensorChange none = ChangeOf({0, 0}, {0, -0.0});
  EXPECT_EQ(none.Relative(), 0);
  EXPECT_EQ(none.Cosine(), std::nullopt);
}

TEST(TensorChange, IsRightForTheLargestAndTheSmallestDoubles) {
  const double max = std::numeric_limits<double>::max();
  const TensorChange huge = ChangeOf({max / 2, 0}, {max / 4, 0});
  EXPECT_DOUBLE_EQ(huge.Relative(), 0.5);
  EXPECT_DOUBLE_EQ(huge.Cosine().value(), 1);
  const TensorChange tiny = ChangeOf({4e-200, 3e-200}, {4e-200, 8e-200});
  EXPECT_DOUBLE_EQ(tiny.Relative(), 1);
  // Only the change is tiny.
  const TensorChange small_change = ChangeOf({1, 1e-170}, {1, 3e-170});
  EXPECT_DOUBLE_EQ(small_change.Norm(), 2e-170);
  // No double is as large, or as small, as these.
  EXPECT_EQ(ChangeOf({1e-300}, {1e300}).Relative(), max);
  EXPECT_EQ(ChangeOf({1e300, 1e-300}, {1e300, 2e-300}).Relative(), std::numeric_limits<double>::denorm_min());
}

TEST(TensorChange, HoldsDtypesAgainstEachOther) {
  const TensorChange change =
      ChangeOf<float, uint16_t>(Dtype::kFloat32, {1.0F, -2.5F}, Dtype::kBfloat16, {0x3f80, 0xc000});
  EXPECT_EQ(change.largest, 0.5);
  EXPECT_EQ(change.largest_element, 1u);
  const int64_t far = int64_t{1} << 60;
  const TensorChange integers =
      ChangeOf<int64_t, int64_t>(Dtype::kInt64, {far, far + 1}, Dtype::kInt64, {far, far + 2});
  EXPECT_EQ(integers.largest, 1);
  EXPECT_EQ(integers.largest_element, 1u);
}

TEST(TensorChange, TellsTheElementOfAComplexNumber) {
  TensorChange change;
  const std::vector<float> a = {1, 1, 1, 1};
  const std::vector<float> b = {1, 1, 1, 3};
  change.Add(Dtype::kComplex64, std::as_bytes(std::span(a)), Dtype::kComplex64, std::as_bytes(std::span(b)), 100);
  EXPECT_EQ(change.largest_element, 101u);
  EXPECT_EQ(change.numbers, 4u);
}

TEST(TensorChange, IsTheSameInPieces) {
  std::vector<double> a(9000), b(9000);
  for (size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<double>(i % 13);
    b[i] = a[i] + (i == 7777 ? 2.0 : 0.5);
  }
  TensorChange pieces;
  for (const auto& [begin, end] : {std::pair<size_t, size_t>{0, 10}, {10, 5000}, {5000, 9000}}) {
    pieces.Add(Dtype::kFloat64, std::as_bytes(std::span(a).subspan(begin, end - begin)), Dtype::kFloat64,
               std::as_bytes(std::span(b).subspan(begin, end - begin)), begin);
  }
  const TensorChange whole = ChangeOf(a, b);
  EXPECT_DOUBLE_EQ(pieces.Relative(), whole.Relative());
  EXPECT_EQ(pieces.largest, 2);
  EXPECT_EQ(pieces.largest_element, 7777u);
  EXPECT_EQ(pieces.numbers, 9000u);
}

TEST(AreComparable, NeedsNumbersOnBothSidesAndAsManyOfThem) {
  const auto spec = [](EntryKind kind, Dtype dtype) {
    EntrySpec made;
    made.kind = kind;
    made.dtype = dtype;
    return made;
  };
  const EntrySpec single = spec(EntryKind::kTensor, Dtype::kFloat32);
  EXPECT_TRUE(AreComparable(single, spec(EntryKind::kInt64, Dtype::kInt64)));
  EXPECT_FALSE(AreComparable(single, spec(EntryKind::kTensor, Dtype::kComplex64)));
  EXPECT_FALSE(AreComparable(single, spec(EntryKind::kTensor, Dtype::kBits8)));
  EXPECT_FALSE(AreComparable(spec(EntryKind::kBytes, Dtype::kUint8), spec(EntryKind::kBytes, Dtype::kUint8)));
}

}  // namespace
}  // namespace tidemark::inspect
