#include "tools/checkpoint_inspect/change_sums.h"

#include <algorithm>

#include "tools/checkpoint_inspect/tensor_numbers.h"

namespace tidemark::inspect {

void ChangeSums::Add(Dtype dtype, std::span<const std::byte> a, std::span<const std::byte> b) {
  const size_t element_bytes = GetDtypeInfo(dtype).element_bytes;
  const size_t numbers_each = NumbersPerElement(dtype);
  const size_t elements = a.size() / element_bytes;
  const size_t step = kNumbersMax / numbers_each;
  double piece_a[kNumbersMax];
  double piece_b[kNumbersMax];
  for (size_t begin = 0; begin < elements; begin += step) {
    const size_t count = std::min(step, elements - begin);
    DecodeNumbers(dtype, a.data() + begin * element_bytes, count, piece_a);
    DecodeNumbers(dtype, b.data() + begin * element_bytes, count, piece_b);
    // Sums of a piece first: long sums lose what is small.
    ChangeSums sums;
    for (size_t i = 0; i < count * numbers_each; ++i) {
      const double change = piece_b[i] - piece_a[i];
      sums.difference += change * change;
      sums.before += piece_a[i] * piece_a[i];
      sums.after += piece_b[i] * piece_b[i];
    }
    difference += sums.difference;
    before += sums.before;
    after += sums.after;
  }
}

double SumOfSquares(Dtype dtype, std::span<const std::byte> bytes) {
  double total = 0;
  VisitNumbers(dtype, bytes, [&](std::span<const double> numbers) {
    double sum = 0;
    for (const double number : numbers) sum += number * number;
    total += sum;
  });
  return total;
}

}  // namespace tidemark::inspect
