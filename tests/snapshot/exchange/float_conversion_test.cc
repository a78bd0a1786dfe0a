#include "snapshot/exchange/float_conversion.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gmock/gmock.h"

namespace tidemark {
namespace {

using testing::ElementsAre;

template <typename To, typename From>
std::vector<To> Convert(Dtype from, const std::vector<From>& values, Dtype to) {
  std::vector<To> converted(values.size());
  ConvertFloats(from, std::as_bytes(std::span(values)), to, std::as_writable_bytes(std::span(converted)));
  return converted;
}

TEST(ConvertFloats, DoublesAreRoundedOnce) {
  // Just above the middle of two neighbours of a half: by way of float32 it would be the middle, and go down.
  const std::vector<double> values = {1.0 + 0x1p-11 + 0x1p-40, 1.0 + 0x1p-11, 1.0 + 3 * 0x1p-11, 70000.0};
  EXPECT_THAT((Convert<uint16_t>(Dtype::kFloat64, values, Dtype::kFloat16)),
              ElementsAre(0x3c01, 0x3c00, 0x3c02, 0x7c00));
  const std::vector<double> wide = {1.0 + 0x1p-24, 1.0 + 3 * 0x1p-24, -1e300};
  EXPECT_THAT((Convert<float>(Dtype::kFloat64, wide, Dtype::kFloat32)),
              ElementsAre(1.0F, 1.0F + 0x1p-22F, -std::numeric_limits<float>::infinity()));
}

TEST(ConvertFloats, FloatsBecomeHalvesToNearestEven) {
  const std::vector<float> values = {1.0F + 0x1p-8F, 1.0F + 3 * 0x1p-8F, -0.0F};
  EXPECT_THAT((Convert<uint16_t>(Dtype::kFloat32, values, Dtype::kBfloat16)), ElementsAre(0x3f80, 0x3f82, 0x8000));
}

TEST(ConvertFloats, WideningIsExact) {
  const std::vector<uint16_t> halves = {0x3c01, 0x0001, 0xfc00};
  EXPECT_THAT((Convert<double>(Dtype::kFloat16, halves, Dtype::kFloat64)),
              ElementsAre(1.0 + 0x1p-10, 0x1p-24, -std::numeric_limits<double>::infinity()));
  EXPECT_THAT((Convert<float>(Dtype::kBfloat16, std::vector<uint16_t>{0x3f81}, Dtype::kFloat32)),
              ElementsAre(1.0F + 0x1p-7F));
  EXPECT_THAT((Convert<uint16_t>(Dtype::kFloat8E4M3Fn, std::vector<uint8_t>{0x38, 0xb8}, Dtype::kBfloat16)),
              ElementsAre(0x3f80, 0xbf80));
  EXPECT_THAT((Convert<double>(Dtype::kFloat32, std::vector<float>{0.1F}, Dtype::kFloat64)),
              ElementsAre(static_cast<double>(0.1F)));
}

TEST(ConvertFloats, NanStaysNan) {
  const std::vector<double> values = {std::nan("")};
  EXPECT_TRUE(std::isnan(Convert<float>(Dtype::kFloat64, values, Dtype::kFloat32)[0]));
  EXPECT_EQ(Convert<uint16_t>(Dtype::kFloat64, values, Dtype::kFloat16)[0] & 0x7e00, 0x7e00);
}

TEST(ConvertFloats, EveryNumberOfALongArrayThatIsNotAlignedIsConverted) {
  constexpr size_t kCount = 5000;
  std::vector<std::byte> source(kCount * 4 + 1);
  std::vector<std::byte> destination(kCount * 8 + 1);
  for (size_t i = 0; i < kCount; ++i) {
    const auto value = static_cast<float>(i);
    std::memcpy(source.data() + 1 + 4 * i, &value, 4);
  }
  ConvertFloats(Dtype::kFloat32, std::span(source).subspan(1), Dtype::kFloat64, std::span(destination).subspan(1));
  for (size_t i = 0; i < kCount; ++i) {
    double value = 0;
    std::memcpy(&value, destination.data() + 1 + 8 * i, 8);
    ASSERT_EQ(value, static_cast<double>(i));
  }
}

TEST(ConvertFloats, TheSameDtypeIsCopied) {
  const std::vector<uint16_t> halves = {0x7c01, 0xffff};  // NaNs that arithmetic would change
  EXPECT_EQ((Convert<uint16_t>(Dtype::kFloat16, halves, Dtype::kFloat16)), halves);
}

TEST(ConvertFloats, RealNumbersCanBeConverted) {
  for (const Dtype from : {Dtype::kFloat64, Dtype::kFloat32, Dtype::kFloat16, Dtype::kBfloat16, Dtype::kFloat8E4M3Fn,
                           Dtype::kFloat8E5M2, Dtype::kFloat8E4M3Fnuz, Dtype::kFloat8E5M2Fnuz}) {
    EXPECT_TRUE(CanConvertFloats(from, Dtype::kFloat32));
  }
  for (const Dtype from :
       {Dtype::kInt32, Dtype::kBool, Dtype::kComplex64, Dtype::kFloat8E8M0Fnu, Dtype::kFloat4E2M1FnX2}) {
    EXPECT_FALSE(CanConvertFloats(from, Dtype::kFloat32)) << GetDtypeInfo(from).name;
  }
  EXPECT_FALSE(CanConvertFloats(Dtype::kFloat32, Dtype::kInt32));
}

}  // namespace
}  // namespace tidemark
