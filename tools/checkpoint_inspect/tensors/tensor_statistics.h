// TensorStatistics: what a person wants to know of a tensor's numbers, in one pass and piece by piece.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_STATISTICS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_STATISTICS_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "tidemark/entry.h"

namespace tidemark::inspect {

// Plain data. A complex number counts as two numbers, its real and its imaginary part; the norm is the same either way.
//
// Blocks of numbers are summed up in doubles, deviations from the block's own mean and not from zero, and blocks are
// put together in the long double of x86: neither many numbers nor a mean far from zero costs digits, and the square of
// no double is too large or too small.
struct TensorStatistics {
  uint64_t numbers = 0;  // all of them
  uint64_t zeros = 0;    // negative ones too
  uint64_t nan = 0;
  uint64_t inf = 0;

  // Of those that are finite; 0 where none is.
  long double min = 0;
  long double max = 0;
  long double mean = 0;
  long double squared_deviations = 0;  // the sum of the squares of their distances from the mean

  uint64_t finite() const { return numbers - nan - inf; }
  // The square root of the mean squared deviation, divided by finite() and not by one less. 0 where there are none.
  double StandardDeviation() const;
  // The square root of the sum of squares. Infinite where a double cannot hold it.
  double Norm() const;

  // Takes in elements of a dtype that has numbers. `bytes` may lie anywhere.
  void Add(Dtype dtype, std::span<const std::byte> bytes);
  // Takes in what is known of other numbers.
  void Merge(const TensorStatistics& other);
};

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_STATISTICS_H_
