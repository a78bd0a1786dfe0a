#include "snapshot/numbers/float_arrays.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "storage/io/check.h"

namespace tidemark {
namespace {

// Numbers that are looked at as one; their decoded form stays in the first cache.
constexpr size_t kBlock = 2048;
// Sums that run side by side, so that they fill vectors and no addition waits for the last.
constexpr size_t kLanes = 16;

float DecodeBfloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Written without branches, for vectors.
float DecodeFloat16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = bits & 0x7c00;
  const uint32_t mantissa = bits & 0x03ff;
  const uint32_t normal = (static_cast<uint32_t>(bits & 0x7fff) << 13) + ((127 - 15) << 23);
  const uint32_t special = 0x7f800000 | mantissa << 13;
  const uint32_t tiny = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(mantissa)) * 0x1p-24F);
  const uint32_t magnitude = exponent == 0 ? tiny : (exponent == 0x7c00 ? special : normal);
  return std::bit_cast<float>(sign | magnitude);
}

// The formats of 8 bits: sign, exponent, mantissa.
struct Float8Format {
  int mantissa_bits;
  int bias;
  bool ieee_specials;  // the highest exponent is infinity and NaN
  int nan;             // else: the one magnitude that is NaN, or -1: only the byte 0x80 is
};

constexpr Float8Format kE4M3Fn = {3, 7, false, 0x7f};
constexpr Float8Format kE5M2 = {2, 15, true, 0};
constexpr Float8Format kE4M3Fnuz = {3, 8, false, -1};
constexpr Float8Format kE5M2Fnuz = {2, 16, false, -1};

float DecodeFloat8(const Float8Format& format, int byte) {
  const int magnitude = byte & 0x7f;
  const int exponent = magnitude >> format.mantissa_bits;
  const int mantissa = magnitude & ((1 << format.mantissa_bits) - 1);
  const float sign = byte < 0x80 ? 1.0F : -1.0F;
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  if (format.ieee_specials && exponent == (0x7f >> format.mantissa_bits)) {
    return mantissa == 0 ? sign * std::numeric_limits<float>::infinity() : kNan;
  }
  if (!format.ieee_specials && (format.nan >= 0 ? magnitude == format.nan : byte == 0x80)) return kNan;
  if (exponent == 0) {
    return sign * std::ldexp(static_cast<float>(mantissa), 1 - format.bias - format.mantissa_bits);
  }
  return sign * std::ldexp(static_cast<float>(mantissa | 1 << format.mantissa_bits),
                           exponent - format.bias - format.mantissa_bits);
}

using Float8Table = std::array<float, 256>;

Float8Table MakeTable(const Float8Format& format) {
  Float8Table table;
  for (int byte = 0; byte < 256; ++byte) table[static_cast<size_t>(byte)] = DecodeFloat8(format, byte);
  return table;
}

const Float8Table& TableOf(Dtype dtype) {
  static const Float8Table e4m3fn = MakeTable(kE4M3Fn);
  static const Float8Table e5m2 = MakeTable(kE5M2);
  static const Float8Table e4m3fnuz = MakeTable(kE4M3Fnuz);
  static const Float8Table e5m2fnuz = MakeTable(kE5M2Fnuz);
  switch (dtype) {
    case Dtype::kFloat8E4M3Fn:
      return e4m3fn;
    case Dtype::kFloat8E5M2:
      return e5m2;
    case Dtype::kFloat8E4M3Fnuz:
      return e4m3fnuz;
    default:
      return e5m2fnuz;
  }
}

template <typename T>
double SumOfSquares(const T* values, size_t count) {
  double lanes[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      const auto value = static_cast<double>(values[i + lane]);
      lanes[lane] += value * value;
    }
  }
  for (size_t lane = 0; i < count; ++i, ++lane) {
    const auto value = static_cast<double>(values[i]);
    lanes[lane] += value * value;
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

template <typename T>
FloatSummary SummarizeBlock(const T* values, size_t count) {
  FloatSummary summary{.squares = SumOfSquares(values, count)};
  // NaN and infinity make the sum the same, and nothing else does, but for doubles near the end of their range.
  if (std::isfinite(summary.squares)) return summary;
  summary.squares = 0;
  for (size_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(values[i]);
    if (std::isnan(value)) {
      ++summary.nan;
    } else if (std::isinf(value)) {
      ++summary.inf;
    } else {
      summary.squares += static_cast<long double>(value) * value;
    }
  }
  return summary;
}

template <typename T>
void MoveTowardsImpl(T* __restrict average, const T* __restrict values, size_t count, T weight) {
  for (size_t i = 0; i < count; ++i) {
    const T difference = values[i] - average[i];
    average[i] += weight * difference;
  }
}

}  // namespace

FloatLayout FloatLayoutOf(Dtype dtype) {
  using Width = FloatLayout::Width;
  switch (dtype) {
    case Dtype::kFloat16:
    case Dtype::kBfloat16:
    case Dtype::kFloat8E4M3Fn:
    case Dtype::kFloat8E5M2:
    case Dtype::kFloat8E4M3Fnuz:
    case Dtype::kFloat8E5M2Fnuz:
      return {Width::kNarrow, 1, dtype};
    case Dtype::kComplex32:
      return {Width::kNarrow, 2, Dtype::kFloat16};
    case Dtype::kBcomplex32:
      return {Width::kNarrow, 2, Dtype::kBfloat16};
    case Dtype::kFloat32:
      return {Width::kSingle, 1, dtype};
    case Dtype::kComplex64:
      return {Width::kSingle, 2, Dtype::kFloat32};
    case Dtype::kFloat64:
      return {Width::kDouble, 1, dtype};
    case Dtype::kComplex128:
      return {Width::kDouble, 2, Dtype::kFloat64};
    default:
      return {};
  }
}

void DecodeFloats(Dtype dtype, const std::byte* from, size_t count, float* to) {
  if (GetDtypeInfo(dtype).element_bytes == 1) {
    const Float8Table& table = TableOf(dtype);
    for (size_t i = 0; i < count; ++i) to[i] = table[std::to_integer<size_t>(from[i])];
    return;
  }
  storage::Check(dtype == Dtype::kFloat16 || dtype == Dtype::kBfloat16, "DecodeFloats: not a narrow dtype");
  const auto* bits = reinterpret_cast<const uint16_t*>(from);
  if (dtype == Dtype::kBfloat16) {
    for (size_t i = 0; i < count; ++i) to[i] = DecodeBfloat16(bits[i]);
  } else {
    for (size_t i = 0; i < count; ++i) to[i] = DecodeFloat16(bits[i]);
  }
}

void MoveTowards(float* average, const float* values, size_t count, float weight) {
  MoveTowardsImpl(average, values, count, weight);
}

void MoveTowards(double* average, const double* values, size_t count, double weight) {
  MoveTowardsImpl(average, values, count, weight);
}

FloatSummary Summarize(Dtype number, const std::byte* bytes, size_t count) {
  FloatSummary summary;
  const FloatLayout::Width width = FloatLayoutOf(number).width;
  const size_t number_bytes = GetDtypeInfo(number).element_bytes;
  float decoded[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t block = std::min(kBlock, count - begin);
    const std::byte* from = bytes + begin * number_bytes;
    switch (width) {
      case FloatLayout::Width::kDouble:
        summary.Add(SummarizeBlock(reinterpret_cast<const double*>(from), block));
        break;
      case FloatLayout::Width::kSingle:
        summary.Add(SummarizeBlock(reinterpret_cast<const float*>(from), block));
        break;
      default:
        DecodeFloats(number, from, block, decoded);
        summary.Add(SummarizeBlock(decoded, block));
    }
  }
  return summary;
}

}  // namespace tidemark
