#include "snapshot/numbers/float_arrays.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tests/non_finite.h"

namespace tidemark {
namespace {

// From the definition of the format, one number at a time.
float NaiveFloat16(uint16_t bits) {
  const float sign = (bits & 0x8000) != 0 ? -1.0F : 1.0F;
  const int exponent = bits >> 10 & 31;
  const auto mantissa = static_cast<float>(bits & 1023);
  if (exponent == 31) return mantissa == 0 ? sign * kInfinity : std::nanf("");
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

template <typename T>
std::vector<float> Decode(Dtype dtype, const std::vector<T>& from) {
  std::vector<float> to(from.size());
  DecodeFloats(dtype, reinterpret_cast<const std::byte*>(from.data()), from.size(), to.data());
  return to;
}

template <typename T>
FloatSummary SummaryOf(Dtype dtype, const std::vector<T>& values) {
  return Summarize(dtype, reinterpret_cast<const std::byte*>(values.data()), values.size());
}

TEST(FloatArrays, DecodesEveryFloat16) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  const std::vector<float> decoded = Decode(Dtype::kFloat16, all);
  for (size_t i = 0; i < all.size(); ++i) {
    const float expected = NaiveFloat16(all[i]);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(decoded[i])) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(decoded[i]), std::bit_cast<uint32_t>(expected)) << i;
    }
  }
}

TEST(FloatArrays, DecodesBfloat16AsTheUpperHalfOfFloat32) {
  const std::vector<float> decoded = Decode<uint16_t>(Dtype::kBfloat16, {0x3f80, 0xc000, 0x7f80, 0x0001, 0x7fc0});
  EXPECT_EQ(decoded[0], 1.0F);
  EXPECT_EQ(decoded[1], -2.0F);
  EXPECT_EQ(decoded[2], kInfinity);
  EXPECT_EQ(decoded[3], 0x1p-133F);
  EXPECT_TRUE(std::isnan(decoded[4]));
}

// The numbers are those of the formats' definitions: largest, one, least normal, least.
TEST(FloatArrays, DecodesTheFormatsOfEightBits) {
  const auto e4m3fn = Decode<uint8_t>(Dtype::kFloat8E4M3Fn, {0x7e, 0x38, 0x08, 0x01, 0xb8, 0x80, 0x7f});
  EXPECT_EQ(std::vector<float>(e4m3fn.begin(), e4m3fn.end() - 1),
            (std::vector<float>{448, 1, 0x1p-6F, 0x1p-9F, -1, 0}));
  EXPECT_TRUE(std::signbit(e4m3fn[5]));
  EXPECT_TRUE(std::isnan(e4m3fn[6]));
  const auto e5m2 = Decode<uint8_t>(Dtype::kFloat8E5M2, {0x7b, 0x3c, 0x04, 0x01, 0xfc, 0x7c, 0x7d});
  EXPECT_EQ(std::vector<float>(e5m2.begin(), e5m2.end() - 1),
            (std::vector<float>{57344, 1, 0x1p-14F, 0x1p-16F, -kInfinity, kInfinity}));
  EXPECT_TRUE(std::isnan(e5m2[6]));
  const auto e4m3fnuz = Decode<uint8_t>(Dtype::kFloat8E4M3Fnuz, {0x7f, 0x40, 0x08, 0x01, 0xc0, 0x80});
  EXPECT_EQ(std::vector<float>(e4m3fnuz.begin(), e4m3fnuz.end() - 1),
            (std::vector<float>{240, 1, 0x1p-7F, 0x1p-10F, -1}));
  EXPECT_TRUE(std::isnan(e4m3fnuz[5]));
  const auto e5m2fnuz = Decode<uint8_t>(Dtype::kFloat8E5M2Fnuz, {0x7f, 0x40, 0x04, 0x01, 0xc0, 0x80});
  EXPECT_EQ(std::vector<float>(e5m2fnuz.begin(), e5m2fnuz.end() - 1),
            (std::vector<float>{57344, 1, 0x1p-15F, 0x1p-17F, -1}));
  EXPECT_TRUE(std::isnan(e5m2fnuz[5]));
}

TEST(FloatArrays, SummarizesEveryWidth) {
  for (const size_t count : {size_t{0}, size_t{1}, size_t{15}, size_t{2049}, size_t{10'000}}) {
    SCOPED_TRACE(count);
    std::vector<float> single(count, 2.0F);
    std::vector<double> twice(count, 2.0);
    const std::vector<uint16_t> half(count, 0x4000);
    const std::vector<uint8_t> quarter(count, 0x40);
    for (const FloatSummary& summary :
         {SummaryOf(Dtype::kFloat32, single), SummaryOf(Dtype::kFloat64, twice), SummaryOf(Dtype::kFloat16, half),
          SummaryOf(Dtype::kBfloat16, half), SummaryOf(Dtype::kFloat8E4M3Fn, quarter),
          SummaryOf(Dtype::kFloat8E5M2, quarter)}) {
      EXPECT_EQ(summary.squares, 4.0 * static_cast<double>(count));
      EXPECT_EQ(summary.nan + summary.inf, 0u);
    }
  }
}

TEST(FloatArrays, CountsWhatIsNotFiniteWhereverItLies) {
  constexpr uint32_t kSeed = 20240611;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 50; ++round) {
    std::vector<float> values(1 + random() % 6000, 1.0F);
    FloatSummary expected;
    for (float& value : values) {
      const uint32_t draw = random() % 1000;
      if (draw == 0) value = std::nanf("");
      if (draw == 1) value = round % 2 == 0 ? kInfinity : -kInfinity;
      expected.nan += std::isnan(value) ? 1 : 0;
      expected.inf += std::isinf(value) ? 1 : 0;
      expected.squares += std::isfinite(value) ? 1 : 0;
    }
    const FloatSummary summary = SummaryOf(Dtype::kFloat32, values);
    EXPECT_EQ(summary.nan, expected.nan);
    EXPECT_EQ(summary.inf, expected.inf);
    EXPECT_EQ(summary.squares, expected.squares);
  }
}

TEST(FloatArrays, AddsSquaresThatFloat32CannotHold) {
  EXPECT_EQ(SummaryOf(Dtype::kFloat32, std::vector<float>(3, 0x1p100F)).squares, 3 * 0x1p200);
}

TEST(FloatArrays, TakesLargeDoublesForWhatTheyAre) {
  const FloatSummary summary = SummaryOf(Dtype::kFloat64, std::vector<double>{1e200, 1.0});
  EXPECT_EQ(summary.nan + summary.inf, 0u);
  EXPECT_NEAR(static_cast<double>(std::sqrt(summary.squares) / 1e200L), 1, 1e-15);
}

TEST(FloatArrays, KnowsWhichDtypesAreNumbers) {
  EXPECT_EQ(FloatLayoutOf(Dtype::kInt64).width, FloatLayout::Width::kNone);
  EXPECT_EQ(FloatLayoutOf(Dtype::kFloat8E8M0Fnu).width, FloatLayout::Width::kNone);
  EXPECT_EQ(FloatLayoutOf(Dtype::kComplex128).numbers, 2u);
  EXPECT_EQ(FloatLayoutOf(Dtype::kBcomplex32).number, Dtype::kBfloat16);
}

}  // namespace
}  // namespace tidemark
