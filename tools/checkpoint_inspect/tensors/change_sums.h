// ChangeSums: how far one array of floating-point numbers lies from another, in one pass.
//
// TensorChange tells `diff` more, of pairs whose numbers are both finite. A report spreads the sum of one side to other
// steps with the same bytes, so here each side is summed up by itself, and what is not finite stays visible.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_CHANGE_SUMS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_CHANGE_SUMS_H_

#include <cstddef>
#include <span>

#include "tidemark/entry.h"

namespace tidemark::inspect {

// Sums of squares; NaN or infinite where a number is and nowhere else, 0 where all numbers are and nowhere else. A
// long double has the exponents for that, be it that of x86 or the one of 128 bits.
struct ChangeSums {
  long double difference = 0;  // of b - a
  long double before = 0;      // of a
  long double after = 0;       // of b

  // Precondition: as many bytes each, whole elements of a floating-point dtype.
  void Add(Dtype dtype, std::span<const std::byte> a, std::span<const std::byte> b);
};

// The same of one side.
long double SumOfSquares(Dtype dtype, std::span<const std::byte> bytes);

// The norm of a change over the norm before, from the squares of both, which are finite. Infinite where only the one
// before is 0, and 0 where that of the change is; else the nearest double that is neither.
double RelativeChange(long double squares_change, long double squares_before);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_CHANGE_SUMS_H_
