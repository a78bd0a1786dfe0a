// Floating-point numbers of one width to those of another, rounded to nearest, halves to even, in one rounding.

#ifndef TIDEMARK_SNAPSHOT_EXCHANGE_FLOAT_CONVERSION_H_
#define TIDEMARK_SNAPSHOT_EXCHANGE_FLOAT_CONVERSION_H_

#include <cstddef>
#include <span>

#include "tidemark/entry.h"

namespace tidemark {

// Whether ConvertFloats can: from real numbers of 8 bits (but for exponents alone), 16, 32 or 64, to kFloat16,
// kBfloat16, kFloat32 or kFloat64. Complex numbers stay what they are.
bool CanConvertFloats(Dtype from, Dtype to);

// `destination` has as many elements of `to` as `source` has of `from`; neither needs to be aligned. The same dtype is
// copied bit by bit. Preconditions: CanConvertFloats, and that they do not overlap.
void ConvertFloats(Dtype from, std::span<const std::byte> source, Dtype to, std::span<std::byte> destination);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EXCHANGE_FLOAT_CONVERSION_H_
