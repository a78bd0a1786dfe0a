#include "snapshot/numbers/half_precision.h"

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace tidemark {
namespace {

constexpr uint32_t kSign32 = 0x80000000;
constexpr uint32_t kInfinity32 = 0x7f800000;

uint16_t ToBfloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  // Rounding could carry the lower bits of a NaN over into the sign; quiet, it stays a NaN without them.
  if ((bits & ~kSign32) > kInfinity32) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

uint16_t ToFloat16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits & kSign32) >> 16);
  const uint32_t magnitude = bits & ~kSign32;
  if (magnitude > kInfinity32) return static_cast<uint16_t>(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x47800000) return static_cast<uint16_t>(sign | 0x7c00);  // 65536 and more
  if (magnitude < 0x38800000) {                                              // below 2^-14: subnormal, or zero
    // The sum is a float whose last place is that of a subnormal, so that the addition rounds.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000));
  }
  // From one exponent's bias to the other's; what rounds up beyond the largest becomes infinity by itself.
  return static_cast<uint16_t>(sign | ((magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13));
}

void ToBfloat16Portable(uint16_t* destination, const float* source, size_t count) {
  for (size_t i = 0; i < count; ++i) destination[i] = ToBfloat16(source[i]);
}

void ToFloat16Portable(uint16_t* destination, const float* source, size_t count) {
  for (size_t i = 0; i < count; ++i) destination[i] = ToFloat16(source[i]);
}

#if defined(__x86_64__)

// Clang 14 does not know it by name.
bool HasF16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

// Eight numbers, each in the lower half of its lane.
__attribute__((target("avx2"))) inline __m256i Bfloat16Lanes(const float* source) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(source));
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
  const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(static_cast<int>(kInfinity32)));
  const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  return _mm256_blendv_epi8(rounded, quiet, is_nan);
}

__attribute__((target("avx2"))) void ToBfloat16Avx2(uint16_t* destination, const float* source, size_t count) {
  size_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m256i packed = _mm256_packus_epi32(Bfloat16Lanes(source + i), Bfloat16Lanes(source + i + 8));
    // Packing goes by halves of the registers: put its quarters in order.
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(destination + i), _mm256_permute4x64_epi64(packed, 0xd8));
  }
  ToBfloat16Portable(destination + i, source + i, count - i);
}

__attribute__((target("avx2,f16c"))) void ToFloat16Avx2(uint16_t* destination, const float* source, size_t count) {
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(source + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(destination + i), halves);
  }
  ToFloat16Portable(destination + i, source + i, count - i);
}

#endif

std::vector<HalfConversion> Runnable() {
  std::vector<HalfConversion> conversions;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && HasF16c()) {
    conversions.push_back({"avx2", ToBfloat16Avx2, ToFloat16Avx2});
  }
#endif
  conversions.push_back({"portable", ToBfloat16Portable, ToFloat16Portable});
  return conversions;
}

// Rounded to odd: what is not exact becomes the one of its two neighbours whose last bit is set. With that, rounding
// once more, to the few bits of a half, comes to what one rounding would have.
float NarrowToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  const auto exact = static_cast<double>(nearest);
  const auto bits = std::bit_cast<uint32_t>(nearest);
  if (exact == value || value != value || (bits & 1) != 0) return nearest;
  const bool was_rounded_down = (exact < value) == ((bits & kSign32) == 0);  // towards zero
  return std::bit_cast<float>(was_rounded_down ? bits + 1 : bits - 1);
}

using Conversion = void (*)(uint16_t* destination, const float* source, size_t count);

void ConvertDoubles(Conversion convert, uint16_t* destination, const double* source, size_t count) {
  std::array<float, 1024> narrow;
  for (size_t begin = 0; begin < count; begin += narrow.size()) {
    const size_t some = std::min(narrow.size(), count - begin);
    for (size_t i = 0; i < some; ++i) narrow[i] = NarrowToOdd(source[begin + i]);
    convert(destination + begin, narrow.data(), some);
  }
}

}  // namespace

std::span<const HalfConversion> RunnableHalfConversions() {
  static const auto* conversions = new std::vector<HalfConversion>(Runnable());
  return *conversions;
}

bool IsHalved(const EntrySpec& spec, HalfPrecision half) {
  return half != HalfPrecision::kNone && spec.kind == EntryKind::kTensor &&
         (spec.dtype == Dtype::kFloat32 || spec.dtype == Dtype::kFloat64);
}

EntrySpec HalvedSpec(EntrySpec spec, HalfPrecision half) {
  if (IsHalved(spec, half)) spec.dtype = half == HalfPrecision::kBfloat16 ? Dtype::kBfloat16 : Dtype::kFloat16;
  return spec;
}

void ConvertToHalf(const EntrySpec& spec, HalfPrecision half, std::span<const std::byte> source,
                   std::span<std::byte> destination) {
  const HalfConversion& fastest = RunnableHalfConversions().front();
  const Conversion convert = half == HalfPrecision::kBfloat16 ? fastest.to_bfloat16 : fastest.to_float16;
  auto* const halves = reinterpret_cast<uint16_t*>(destination.data());
  const size_t count = destination.size() / sizeof(uint16_t);
  if (spec.dtype == Dtype::kFloat64) {
    ConvertDoubles(convert, halves, reinterpret_cast<const double*>(source.data()), count);
  } else {
    convert(halves, reinterpret_cast<const float*>(source.data()), count);
  }
}

}  // namespace tidemark
