#include "snapshot/numbers/half_precision.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark {
namespace {

using testing::ElementsAre;

EntrySpec TensorOf(Dtype dtype, size_t count) {
  return {.name = "t", .dtype = dtype, .shape = {static_cast<int64_t>(count)}};
}

template <typename T>
std::vector<uint16_t> Converted(HalfPrecision half, const std::vector<T>& source) {
  std::vector<uint16_t> halves(source.size());
  ConvertToHalf(TensorOf(sizeof(T) == 8 ? Dtype::kFloat64 : Dtype::kFloat32, source.size()), half,
                std::as_bytes(std::span(source)), std::as_writable_bytes(std::span(halves)));
  return halves;
}

// The value of 16 bits: a float of `mantissa_bits` behind the point and `bias`.
double ValueOf(uint16_t bits, int mantissa_bits, int bias) {
  const int exponent_max = (1 << (15 - mantissa_bits)) - 1;
  const int exponent = bits >> mantissa_bits & exponent_max;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == exponent_max) {
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  }
  return sign * std::ldexp(exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits),
                           std::max(exponent, 1) - bias - mantissa_bits);
}

double ValueOf(HalfPrecision half, uint16_t bits) {
  return half == HalfPrecision::kBfloat16 ? ValueOf(bits, 7, 127) : ValueOf(bits, 10, 15);
}

// Of two neighbours, the numbers between them are checked against what rounding to nearest even is, by definition.
// `T` must hold a number in the middle of two halves, and those beside it.
template <typename T>
void ExpectRoundedBetweenAllNeighbours(HalfPrecision half) {
  const uint16_t infinity = half == HalfPrecision::kBfloat16 ? 0x7f80 : 0x7c00;
  for (uint16_t sign : {0, 0x8000}) {
    std::vector<T> sources;
    std::vector<uint16_t> expected;
    const auto expect = [&](double source, uint16_t bits) {
      sources.push_back(static_cast<T>(sign == 0 ? source : -source));
      expected.push_back(static_cast<uint16_t>(bits | sign));
    };
    for (uint16_t bits = 0; bits < infinity; ++bits) {
      const double low = ValueOf(half, bits);
      const bool last = bits + 1 == infinity;
      // Beyond the largest number the next would be as far away as the one before.
      const double high = last ? low + (low - ValueOf(half, static_cast<uint16_t>(bits - 1)))
                               : ValueOf(half, static_cast<uint16_t>(bits + 1));
      const auto middle = static_cast<T>((low + high) / 2);
      const auto above = static_cast<uint16_t>(bits + 1);
      expect(low, bits);
      expect(std::nextafter(middle, T{0}), bits);
      expect(middle, bits % 2 == 0 ? bits : above);
      expect(std::nextafter(middle, std::numeric_limits<T>::infinity()), above);
    }
    EXPECT_EQ(Converted(half, sources), expected);
  }
}

TEST(HalfPrecision, RoundsFloatsToTheNearestAndHalvesToEven) {
  ExpectRoundedBetweenAllNeighbours<float>(HalfPrecision::kBfloat16);
  ExpectRoundedBetweenAllNeighbours<float>(HalfPrecision::kFloat16);
}

TEST(HalfPrecision, RoundsDoublesOnce) {
  ExpectRoundedBetweenAllNeighbours<double>(HalfPrecision::kBfloat16);
  ExpectRoundedBetweenAllNeighbours<double>(HalfPrecision::kFloat16);
}

TEST(HalfPrecision, GivesInfinityForWhatIsTooLarge) {
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_THAT(Converted<float>(HalfPrecision::kFloat16, {65504, 65519, 65520, -1e9F, infinity, -infinity}),
              ElementsAre(0x7bff, 0x7bff, 0x7c00, 0xfc00, 0x7c00, 0xfc00));
  EXPECT_THAT(Converted<float>(HalfPrecision::kBfloat16, {infinity, -infinity, 3.4e38F}),
              ElementsAre(0x7f80, 0xff80, 0x7f80));
  EXPECT_THAT(Converted<double>(HalfPrecision::kBfloat16, {1e300, -1e300, double{infinity}, 3.3e38}),
              ElementsAre(0x7f80, 0xff80, 0x7f80, 0x7f78));
  EXPECT_THAT(Converted<double>(HalfPrecision::kFloat16, {1e300, 1e-300, -1e-300, -double{infinity}}),
              ElementsAre(0x7c00, 0x0000, 0x8000, 0xfc00));
}

TEST(HalfPrecision, KeepsNanNanWhateverItsBits) {
  std::vector<float> floats;
  for (uint32_t bits : {0x7f800001u, 0x7fffffffu, 0xff800001u, 0xffffffffu, 0x7fc00000u, 0x7f80ffffu}) {
    floats.push_back(std::bit_cast<float>(bits));
  }
  std::vector<double> doubles;
  for (uint64_t bits : {0x7ff0000000000001u, 0xffffffffffffffffu}) doubles.push_back(std::bit_cast<double>(bits));
  for (HalfPrecision half : {HalfPrecision::kBfloat16, HalfPrecision::kFloat16}) {
    for (uint16_t bits : Converted(half, floats)) EXPECT_TRUE(std::isnan(ValueOf(half, bits))) << bits;
    for (uint16_t bits : Converted(half, doubles)) EXPECT_TRUE(std::isnan(ValueOf(half, bits))) << bits;
    EXPECT_EQ(Converted(half, floats)[2] >> 15, 1) << "the sign stays";
  }
}

TEST(HalfPrecision, GivesTheSameBitsInEveryWayAndAtEveryLength) {
  std::mt19937 random(20261121);
  std::vector<float> source(100'003);
  for (float& value : source) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  const HalfConversion& portable = RunnableHalfConversions().back();
  EXPECT_EQ(portable.name, "portable");
  for (const HalfConversion& way : RunnableHalfConversions()) {
    SCOPED_TRACE(way.name);
    for (size_t count :
         {size_t{0}, size_t{1}, size_t{7}, size_t{8}, size_t{15}, size_t{16}, size_t{33}, source.size()}) {
      std::vector<uint16_t> expected(count + 1, 0xeeee);
      std::vector<uint16_t> halves(count + 1, 0xeeee);
      portable.to_bfloat16(expected.data(), source.data(), count);
      way.to_bfloat16(halves.data(), source.data(), count);
      ASSERT_EQ(halves, expected);
      portable.to_float16(expected.data(), source.data(), count);
      way.to_float16(halves.data(), source.data(), count);
      ASSERT_EQ(halves, expected);
    }
  }
}

TEST(HalfPrecision, IsForTensorsOfFloatsOnly) {
  EXPECT_TRUE(IsHalved(TensorOf(Dtype::kFloat32, 1), HalfPrecision::kFloat16));
  EXPECT_TRUE(IsHalved(TensorOf(Dtype::kFloat64, 1), HalfPrecision::kBfloat16));
  EXPECT_FALSE(IsHalved(TensorOf(Dtype::kFloat32, 1), HalfPrecision::kNone));
  EXPECT_FALSE(IsHalved(TensorOf(Dtype::kInt32, 1), HalfPrecision::kFloat16));
  EXPECT_FALSE(IsHalved(TensorOf(Dtype::kBfloat16, 1), HalfPrecision::kFloat16));
  const EntrySpec number{.name = "lr", .kind = EntryKind::kDouble, .dtype = Dtype::kFloat64};
  EXPECT_FALSE(IsHalved(number, HalfPrecision::kFloat16));
  EXPECT_EQ(HalvedSpec(number, HalfPrecision::kFloat16), number);
  EXPECT_EQ(HalvedSpec(TensorOf(Dtype::kFloat64, 1), HalfPrecision::kFloat16), TensorOf(Dtype::kFloat16, 1));
}

}  // namespace
}  // namespace tidemark
