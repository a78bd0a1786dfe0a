#include "tools/checkpoint_inspect/tensors/tensor_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "snapshot/numbers/float_arrays.h"

namespace tidemark::inspect {
namespace {

// Sign, two bits of exponent and one of mantissa: the numbers of OCP Microscaling Formats 1.0, section 5.3.3.
constexpr std::array<float, 16> kFloat4 = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                           -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

// Integers that take a byte each and fewer bits than it has; 0: another dtype.
int NarrowBits(Dtype dtype) {
  const int number = static_cast<int>(dtype);
  const int first_signed = static_cast<int>(Dtype::kInt1);
  const int first_unsigned = static_cast<int>(Dtype::kUint1);
  if (number >= first_signed && number <= static_cast<int>(Dtype::kInt7)) return number - first_signed + 1;
  if (number >= first_unsigned && number <= static_cast<int>(Dtype::kUint7)) return number - first_unsigned + 1;
  return 0;
}

bool IsSignedNarrow(Dtype dtype) { return dtype <= Dtype::kInt7; }

template <typename T, typename Real>
void Widen(const std::byte* from, size_t count, Real* to) {
  // What lies elsewhere than the type may is moved first, and no further than within the cache.
  alignas(T) std::byte moved[kNumbersMax * sizeof(T)];
  if (reinterpret_cast<uintptr_t>(from) % alignof(T) != 0) {
    std::memcpy(moved, from, count * sizeof(T));
    from = moved;
  }
  const auto* values = reinterpret_cast<const T*>(from);
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<Real>(values[i]);
}

template <typename Real>
void WidenNarrowFloats(Dtype dtype, const std::byte* from, size_t count, Real* to) {
  alignas(uint16_t) std::byte moved[kNumbersMax * sizeof(uint16_t)];
  if (reinterpret_cast<uintptr_t>(from) % alignof(uint16_t) != 0) {
    std::memcpy(moved, from, count * GetDtypeInfo(dtype).element_bytes);
    from = moved;
  }
  float decoded[kNumbersMax];
  DecodeFloats(dtype, from, count, decoded);
  for (size_t i = 0; i < count; ++i) to[i] = static_cast<Real>(decoded[i]);
}

template <typename Real>
void WidenNarrowIntegers(Dtype dtype, const std::byte* from, size_t count, Real* to) {
  const int bits = NarrowBits(dtype);
  const int sign = IsSignedNarrow(dtype) ? 1 << (bits - 1) : 0;
  const int mask = (1 << bits) - 1;
  for (size_t i = 0; i < count; ++i) {
    const int value = std::to_integer<int>(from[i]) & mask;
    to[i] = static_cast<Real>((value ^ sign) - sign);
  }
}

template <typename Real>
void Decode(Dtype dtype, const std::byte* from, size_t elements, Real* to) {
  if (const FloatLayout layout = FloatLayoutOf(dtype); layout.width != FloatLayout::Width::kNone) {
    const size_t count = elements * layout.numbers;
    if (layout.width == FloatLayout::Width::kSingle) return Widen<float>(from, count, to);
    if (layout.width == FloatLayout::Width::kDouble) return Widen<double>(from, count, to);
    return WidenNarrowFloats(layout.number, from, count, to);
  }
  if (NarrowBits(dtype) > 0) return WidenNarrowIntegers(dtype, from, elements, to);
  switch (dtype) {
    case Dtype::kBool:
      for (size_t i = 0; i < elements; ++i) to[i] = from[i] == std::byte{0} ? 0 : 1;
      return;
    case Dtype::kUint8:
      return Widen<uint8_t>(from, elements, to);
    case Dtype::kInt8:
      return Widen<int8_t>(from, elements, to);
    case Dtype::kUint16:
      return Widen<uint16_t>(from, elements, to);
    case Dtype::kInt16:
      return Widen<int16_t>(from, elements, to);
    case Dtype::kUint32:
      return Widen<uint32_t>(from, elements, to);
    case Dtype::kInt32:
      return Widen<int32_t>(from, elements, to);
    case Dtype::kUint64:
      return Widen<uint64_t>(from, elements, to);
    case Dtype::kInt64:
      return Widen<int64_t>(from, elements, to);
    case Dtype::kFloat8E8M0Fnu:
      for (size_t i = 0; i < elements; ++i) {
        const int exponent = std::to_integer<int>(from[i]);
        to[i] = exponent == 255 ? std::numeric_limits<Real>::quiet_NaN() : std::ldexp(Real{1}, exponent - 127);
      }
      return;
    case Dtype::kFloat4E2M1FnX2:
      for (size_t i = 0; i < elements; ++i) {
        const auto byte = std::to_integer<size_t>(from[i]);
        to[2 * i] = kFloat4[byte & 15];
        to[2 * i + 1] = kFloat4[byte >> 4];
      }
      return;
    default:
      return;
  }
}

}  // namespace

size_t NumbersPerElement(Dtype dtype) {
  if (const FloatLayout layout = FloatLayoutOf(dtype); layout.width != FloatLayout::Width::kNone) {
    return layout.numbers;
  }
  if (dtype == Dtype::kFloat4E2M1FnX2) return 2;
  return IsInteger(dtype) || dtype == Dtype::kFloat8E8M0Fnu ? 1 : 0;
}

size_t NumbersPerElement(const EntrySpec& spec) {
  if (spec.kind == EntryKind::kBytes || spec.kind == EntryKind::kString) return 0;
  return NumbersPerElement(spec.dtype);
}

bool IsInteger(Dtype dtype) { return dtype <= Dtype::kInt64 || NarrowBits(dtype) > 0; }

bool IsFloat(Dtype dtype) { return NumbersPerElement(dtype) > 0 && !IsInteger(dtype); }

bool ExceedsDouble(Dtype dtype) { return dtype == Dtype::kInt64 || dtype == Dtype::kUint64; }

void DecodeNumbers(Dtype dtype, const std::byte* from, size_t elements, double* to) {
  Decode(dtype, from, elements, to);
}

void DecodeNumbers(Dtype dtype, const std::byte* from, size_t elements, long double* to) {
  Decode(dtype, from, elements, to);
}

void VisitNumbers(Dtype dtype, std::span<const std::byte> bytes,
                  absl::FunctionRef<void(std::span<const double>)> visit) {
  const size_t element_bytes = GetDtypeInfo(dtype).element_bytes;
  const size_t numbers_each = NumbersPerElement(dtype);
  double numbers[kNumbersMax];
  while (!bytes.empty()) {
    const size_t elements = std::min(bytes.size() / element_bytes, kNumbersMax / numbers_each);
    DecodeNumbers(dtype, bytes.data(), elements, numbers);
    visit({numbers, elements * numbers_each});
    bytes = bytes.subspan(elements * element_bytes);
  }
}

}  // namespace tidemark::inspect
