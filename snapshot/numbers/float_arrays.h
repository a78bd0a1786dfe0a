// Arithmetic on arrays of floating-point numbers of every width. Pure, and the same bits on every x86 machine.

#ifndef TIDEMARK_SNAPSHOT_NUMBERS_FLOAT_ARRAYS_H_
#define TIDEMARK_SNAPSHOT_NUMBERS_FLOAT_ARRAYS_H_

#include <cstddef>
#include <cstdint>

#include "tidemark/entry.h"

namespace tidemark {

// What a dtype's elements consist of.
struct FloatLayout {
  enum class Width {
    kNone,    // no numbers that can be added: integers, packed ones, exponents alone
    kNarrow,  // 16 bits or fewer; DecodeFloats makes float32 of them
    kSingle,
    kDouble,
  };
  Width width = Width::kNone;
  size_t numbers = 0;  // in an element: 2 where it is complex
  Dtype number = Dtype::kFloat32;
};
FloatLayout FloatLayoutOf(Dtype dtype);

// Makes float32 of `count` numbers of a kNarrow dtype that is not complex; exact.
void DecodeFloats(Dtype dtype, const std::byte* from, size_t count, float* to);

// average[i] += weight * (values[i] - average[i]), each operation rounded.
void MoveTowards(float* average, const float* values, size_t count, float weight);
void MoveTowards(double* average, const double* values, size_t count, double weight);

// What a reader of an array wants to know of it.
struct FloatSummary {
  uint64_t nan = 0;
  uint64_t inf = 0;
  // The sum of the squares of those that are finite. Wider than the numbers, for the square of a double beyond 1e154 is
  // none; of 80 bits on every x86 machine.
  long double squares = 0;

  void Add(const FloatSummary& other) {
    nan += other.nan;
    inf += other.inf;
    squares += other.squares;
  }
};
// `bytes` are `count` numbers of `number`, which is not complex and has a width.
FloatSummary Summarize(Dtype number, const std::byte* bytes, size_t count);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_NUMBERS_FLOAT_ARRAYS_H_
