#include "tools/checkpoint_inspect/tensors/tensor_numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "gmock/gmock.h"

namespace tidemark::inspect {
namespace {

using testing::ElementsAre;

// As doubles and as long doubles, from an even and from an odd address: all must be the same.
template <typename T>
std::vector<double> Decode(Dtype dtype, const std::vector<T>& values) {
  const size_t bytes = values.size() * sizeof(T);
  const size_t elements = bytes / GetDtypeInfo(dtype).element_bytes;
  const size_t count = elements * NumbersPerElement(dtype);
  std::vector<double> aligned(count);
  DecodeNumbers(dtype, reinterpret_cast<const std::byte*>(values.data()), elements, aligned.data());
  std::vector<std::byte> moved(bytes + 1);
  std::memcpy(moved.data() + 1, values.data(), bytes);
  std::vector<long double> wide(count);
  DecodeNumbers(dtype, moved.data() + 1, elements, wide.data());
  for (size_t i = 0; i < count; ++i) {
    EXPECT_TRUE(wide[i] == aligned[i] || (std::isnan(wide[i]) && std::isnan(aligned[i]))) << i;
  }
  return aligned;
}

TEST(TensorNumbers, DecodesIntegersOfEveryWidth) {
  EXPECT_THAT(Decode<uint8_t>(Dtype::kBool, {0, 1, 255}), ElementsAre(0, 1, 1));
  EXPECT_THAT(Decode<uint8_t>(Dtype::kUint8, {0, 255}), ElementsAre(0, 255));
  EXPECT_THAT(Decode<int8_t>(Dtype::kInt8, {-128, 127}), ElementsAre(-128, 127));
  EXPECT_THAT(Decode<uint16_t>(Dtype::kUint16, {65535}), ElementsAre(65535));
  EXPECT_THAT(Decode<int16_t>(Dtype::kInt16, {-32768}), ElementsAre(-32768));
  EXPECT_THAT(Decode<uint32_t>(Dtype::kUint32, {4294967295U}), ElementsAre(4294967295.0));
  EXPECT_THAT(Decode<int32_t>(Dtype::kInt32, {-2147483647}), ElementsAre(-2147483647.0));
  EXPECT_THAT(Decode<uint64_t>(Dtype::kUint64, {uint64_t{1} << 63}), ElementsAre(0x1p63));
  EXPECT_THAT(Decode<int64_t>(Dtype::kInt64, {-(int64_t{1} << 53), 7}), ElementsAre(-0x1p53, 7));
}

TEST(TensorNumbers, KeepsEveryDigitOfLargeIntegersInLongDoubles) {
  const int64_t value = (int64_t{1} << 62) + 1;
  long double wide = 0;
  DecodeNumbers(Dtype::kInt64, reinterpret_cast<const std::byte*>(&value), 1, &wide);
  EXPECT_EQ(static_cast<int64_t>(wide), value);
  EXPECT_TRUE(ExceedsDouble(Dtype::kInt64) && ExceedsDouble(Dtype::kUint64));
  EXPECT_FALSE(ExceedsDouble(Dtype::kInt32) || ExceedsDouble(Dtype::kFloat64));
}

TEST(TensorNumbers, TakesTheLowerBitsOfNarrowIntegers) {
  // A store may have either of 0x0f and 0xff for the -1 of four bits.
  EXPECT_THAT(Decode<uint8_t>(Dtype::kInt4, {0x0f, 0xff, 0x08, 0x07}), ElementsAre(-1, -1, -8, 7));
  EXPECT_THAT(Decode<uint8_t>(Dtype::kUint4, {0x0f, 0xff, 0x08}), ElementsAre(15, 15, 8));
  EXPECT_THAT(Decode<uint8_t>(Dtype::kInt1, {0, 1}), ElementsAre(0, -1));
  EXPECT_THAT(Decode<uint8_t>(Dtype::kUint1, {0, 1}), ElementsAre(0, 1));
  EXPECT_THAT(Decode<uint8_t>(Dtype::kInt7, {0x40, 0x3f}), ElementsAre(-64, 63));
  EXPECT_THAT(Decode<uint8_t>(Dtype::kUint7, {0x7f}), ElementsAre(127));
}

TEST(TensorNumbers, DecodesFloatsOfEveryWidth) {
  EXPECT_THAT(Decode<float>(Dtype::kFloat32, {0.5F, -3}), ElementsAre(0.5, -3));
  EXPECT_THAT(Decode<double>(Dtype::kFloat64, {1e300}), ElementsAre(1e300));
  EXPECT_THAT(Decode<uint16_t>(Dtype::kFloat16, {0x3c00, 0xc000}), ElementsAre(1, -2));
  EXPECT_THAT(Decode<uint16_t>(Dtype::kBfloat16, {0x3f80, 0xc000}), ElementsAre(1, -2));
  EXPECT_THAT(Decode<uint8_t>(Dtype::kFloat8E4M3Fn, {0x38, 0x7e}), ElementsAre(1, 448));
  EXPECT_THAT(Decode<uint8_t>(Dtype::kFloat8E5M2, {0x3c}), ElementsAre(1));
  EXPECT_THAT(Decode<uint8_t>(Dtype::kFloat8E4M3Fnuz, {0x40}), ElementsAre(1));
  EXPECT_THAT(Decode<uint8_t>(Dtype::kFloat8E5M2Fnuz, {0x40}), ElementsAre(1));
  const auto exponents = Decode<uint8_t>(Dtype::kFloat8E8M0Fnu, {0, 127, 128, 255});
  EXPECT_THAT(std::vector<double>(exponents.begin(), exponents.end() - 1), ElementsAre(0x1p-127, 1, 2));
  EXPECT_TRUE(std::isnan(exponents.back()));
}

TEST(TensorNumbers, TakesComplexAndPairedNumbersApart) {
  EXPECT_THAT(Decode<float>(Dtype::kComplex64, {1, -2, 3, 4}), ElementsAre(1, -2, 3, 4));
  EXPECT_THAT(Decode<double>(Dtype::kComplex128, {1, -2}), ElementsAre(1, -2));
  EXPECT_THAT(Decode<uint16_t>(Dtype::kComplex32, {0x3c00, 0xc000}), ElementsAre(1, -2));
  EXPECT_THAT(Decode<uint16_t>(Dtype::kBcomplex32, {0x3f80, 0xc000}), ElementsAre(1, -2));
  EXPECT_THAT(Decode<uint8_t>(Dtype::kFloat4E2M1FnX2, {0x71, 0x2f}), ElementsAre(0.5, 6, -6, 1));
}

TEST(TensorNumbers, SaysWhichEntriesHaveNone) {
  for (const Dtype bits : {Dtype::kBits1x8, Dtype::kBits2x4, Dtype::kBits4x2, Dtype::kBits8, Dtype::kBits16}) {
    EXPECT_EQ(NumbersPerElement(bits), 0u);
    EXPECT_FALSE(IsInteger(bits));
  }
  EntrySpec spec;
  spec.dtype = Dtype::kUint8;
  EXPECT_EQ(NumbersPerElement(spec), 1u);
  for (const EntryKind kind : {EntryKind::kBytes, EntryKind::kString}) {
    spec.kind = kind;
    EXPECT_EQ(NumbersPerElement(spec), 0u);
  }
  EXPECT_TRUE(IsInteger(Dtype::kBool) && IsInteger(Dtype::kUint64) && IsInteger(Dtype::kInt1) &&
              IsInteger(Dtype::kUint7));
  EXPECT_FALSE(IsInteger(Dtype::kFloat16) || IsInteger(Dtype::kFloat8E8M0Fnu));
}

// Every number that a dtype can be is either decoded or has none: nothing is left as it was.
TEST(TensorNumbers, DecodesEveryDtypeThatHasNumbers) {
  for (uint16_t number = 0; number < 256; ++number) {
    const DtypeInfo* info = FindDtype(number);
    if (info == nullptr || NumbersPerElement(info->dtype) == 0) continue;
    const std::byte zeros[16] = {};
    double decoded[2] = {-5, -5};
    DecodeNumbers(info->dtype, zeros, 1, decoded);
    for (size_t i = 0; i < NumbersPerElement(info->dtype); ++i) EXPECT_GE(decoded[i], 0) << info->name;
  }
}

TEST(IsFloat, IsSoOfComplexAndNarrowOnesToo) {
  EXPECT_TRUE(IsFloat(Dtype::kFloat64));
  EXPECT_TRUE(IsFloat(Dtype::kComplex64));
  EXPECT_TRUE(IsFloat(Dtype::kFloat8E4M3Fn));
  EXPECT_TRUE(IsFloat(Dtype::kFloat4E2M1FnX2));
  EXPECT_FALSE(IsFloat(Dtype::kInt32));
  EXPECT_FALSE(IsFloat(Dtype::kBool));
  EXPECT_FALSE(IsFloat(Dtype::kBits8));
}

TEST(VisitNumbers, GivesAllOfThemInOrderFromWhereverTheyLie) {
  std::vector<float> values(10'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  std::vector<std::byte> shifted(values.size() * sizeof(float) + 1);
  const auto bytes = std::as_bytes(std::span(values));
  std::copy(bytes.begin(), bytes.end(), shifted.begin() + 1);
  size_t next = 0;
  VisitNumbers(Dtype::kFloat32, std::span<const std::byte>(shifted).subspan(1), [&](std::span<const double> numbers) {
    for (const double number : numbers) ASSERT_EQ(number, static_cast<double>(next++));
  });
  EXPECT_EQ(next, values.size());
}

}  // namespace
}  // namespace tidemark::inspect
