// The numbers that the elements of a tensor are, or are made of, as floating-point numbers. Pure functions.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_NUMBERS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_NUMBERS_H_

#include <cstddef>
#include <span>

#include "absl/functional/function_ref.h"
#include "tidemark/entry.h"

namespace tidemark::inspect {

// In an element: 2 where it is complex (real part, imaginary part) or a byte that two numbers share (the lower half
// first), 0 where it is bits that stand for no number.
size_t NumbersPerElement(Dtype dtype);

// The same of an entry: text and blobs have none.
size_t NumbersPerElement(const EntrySpec& spec);

// Whether all numbers of the dtype are whole ones; a bool is 0 or 1.
bool IsInteger(Dtype dtype);

// Whether they are floating-point numbers, or complex ones that are made of these.
bool IsFloat(Dtype dtype);

// Whether there are numbers of the dtype that a double rounds. Each of them is exact in the long double of x86.
bool ExceedsDouble(Dtype dtype);

// Numbers that are looked at as one. As doubles they fit into the first cache.
inline constexpr size_t kNumbersMax = 2048;

// Writes NumbersPerElement(dtype) * elements numbers, at least one element and at most kNumbersMax numbers. `from` may
// lie anywhere. Of integers of fewer than 8 bits, each in a byte of its own, the upper bits say nothing.
void DecodeNumbers(Dtype dtype, const std::byte* from, size_t elements, double* to);
void DecodeNumbers(Dtype dtype, const std::byte* from, size_t elements, long double* to);

// Calls `visit` with all numbers of `bytes`, whole elements of a dtype that has numbers, at most kNumbersMax at a time.
void VisitNumbers(Dtype dtype, std::span<const std::byte> bytes,
                  absl::FunctionRef<void(std::span<const double>)> visit);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_TENSOR_NUMBERS_H_
