// ChangeSums: how far one array of floating-point numbers lies from another, in one pass.
//
// TensorChange tells `diff` more, of pairs whose numbers are both finite. A report spreads the sum of one side to other
// steps with the same bytes, so here each side is summed up by itself, and what is not finite stays visible.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHANGE_SUMS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHANGE_SUMS_H_

#include <cstddef>
#include <span>

#include "tidemark/entry.h"

namespace tidemark::inspect {

// Sums of squares; NaN or infinite where a number is.
struct ChangeSums {
  double difference = 0;  // of b - a
  double before = 0;      // of a
  double after = 0;       // of b

  // Precondition: as many bytes each, whole elements of a dtype that has numbers.
  void Add(Dtype dtype, std::span<const std::byte> a, std::span<const std::byte> b);
};

double SumOfSquares(Dtype dtype, std::span<const std::byte> bytes);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHANGE_SUMS_H_
