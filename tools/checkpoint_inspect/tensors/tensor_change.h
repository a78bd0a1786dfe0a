// TensorChange: how far one tensor's numbers are from another's, in one pass and piece by piece.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_CHANGE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_CHANGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tidemark/entry.h"

namespace tidemark::inspect {

// Whether their numbers can be held against each other: both have some, and as many in an element.
bool AreComparable(const EntrySpec& a, const EntrySpec& b);

// Plain data. Summed up as TensorStatistics are. A pair of numbers of which one is NaN or infinite is in none of the
// sums, and the two count as the same if both are NaN or both the same infinity.
struct TensorChange {
  uint64_t numbers = 0;
  uint64_t not_finite = 0;  // pairs that are not the same, and have no finite difference

  long double squares_a = 0;  // ||A||^2
  long double squares_b = 0;
  long double squares_change = 0;  // ||B - A||^2
  long double product = 0;         // A * B

  long double largest = 0;       // the largest |b - a|
  uint64_t largest_element = 0;  // the first element that has it; 0 where `largest` is

  // ||B - A||, infinite where a double cannot hold it, and its RelativeChange to ||A||.
  double Norm() const;
  double Relative() const;
  // The cosine of the angle between A and B; nullopt where one of them is nothing but zeros.
  std::optional<double> Cosine() const;

  // Takes in elements of both, as many of one as of the other, which begin at `first_element`. The bytes may lie
  // anywhere. Precondition: AreComparable.
  void Add(Dtype dtype_a, std::span<const std::byte> a, Dtype dtype_b, std::span<const std::byte> b,
           uint64_t first_element);
};

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_CHANGE_H_
