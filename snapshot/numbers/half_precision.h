// Numbers of 32 and 64 bits to those of 16: rounded to nearest, halves to even, in one rounding. What is too large for
// float16 becomes an infinity; NaN stays NaN, quiet, with its sign and its upper bits.

#ifndef TIDEMARK_SNAPSHOT_NUMBERS_HALF_PRECISION_H_
#define TIDEMARK_SNAPSHOT_NUMBERS_HALF_PRECISION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "tidemark/entry.h"
#include "tidemark/evaluator.h"

namespace tidemark {

struct HalfConversion {
  std::string_view name;  // "avx2", "portable"

  // `count` numbers each; source and destination do not overlap.
  void (*to_bfloat16)(uint16_t* destination, const float* source, size_t count);
  void (*to_float16)(uint16_t* destination, const float* source, size_t count);
};

// Those that this CPU can run, fastest first; all give the same bits.
std::span<const HalfConversion> RunnableHalfConversions();

// Whether the entry is a tensor that `half` asks to convert, and what the entry is then.
bool IsHalved(const EntrySpec& spec, HalfPrecision half);
EntrySpec HalvedSpec(EntrySpec spec, HalfPrecision half);

// Converts the bytes of such an entry by the fastest way. `destination` has 2 bytes for each number and is aligned to
// them, as `source` is to its own. Precondition: IsHalved.
void ConvertToHalf(const EntrySpec& spec, HalfPrecision half, std::span<const std::byte> source,
                   std::span<std::byte> destination);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_NUMBERS_HALF_PRECISION_H_
