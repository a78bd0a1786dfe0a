// ChangeSums: how far one array of floating-point numbers lies from another, in one pass.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHANGE_SUMS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHANGE_SUMS_H_

#include <cstddef>
#include <span>

#include "absl/functional/function_ref.h"
#include "tidemark/entry.h"

namespace tidemark::inspect {

// Whether elements of the dtype are, or are made of, floating-point numbers that can be reckoned with.
bool IsFloat(Dtype dtype);

// Calls `visit` with the numbers of `bytes`, whole elements of a float dtype, in pieces; both parts of complex ones.
void VisitNumbers(Dtype dtype, std::span<const std::byte> bytes,
                  absl::FunctionRef<void(std::span<const double>)> visit);

// Sums of squares; NaN or infinite where a number is.
struct ChangeSums {
  double difference = 0;  // of b - a
  double before = 0;      // of a
  double after = 0;       // of b

  // Precondition: as many bytes each, whole elements of a float dtype.
  void Add(Dtype dtype, std::span<const std::byte> a, std::span<const std::byte> b);
};

double SumOfSquares(Dtype dtype, std::span<const std::byte> bytes);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHANGE_SUMS_H_
