#include "tools/checkpoint_inspect/change_sums.h"

#include <algorithm>
#include <cstring>

#include "eval/float_arrays.h"

namespace tidemark::inspect {
namespace {

constexpr size_t kPiece = 2048;  // numbers that are made doubles at a time

// Makes doubles of `count` <= kPiece numbers, which may lie unaligned.
void Decode(const FloatLayout& layout, const std::byte* from, size_t count, double* to) {
  float single[kPiece];
  switch (layout.width) {
    case FloatLayout::Width::kDouble:
      std::memcpy(to, from, count * sizeof(double));
      return;
    case FloatLayout::Width::kSingle:
      std::memcpy(single, from, count * sizeof(float));
      break;
    default:
      DecodeFloats(layout.number, from, count, single);
  }
  std::copy(single, single + count, to);
}

}  // namespace

bool IsFloat(Dtype dtype) { return FloatLayoutOf(dtype).width != FloatLayout::Width::kNone; }

void VisitNumbers(Dtype dtype, std::span<const std::byte> bytes,
                  absl::FunctionRef<void(std::span<const double>)> visit) {
  const FloatLayout layout = FloatLayoutOf(dtype);
  const size_t number_bytes = GetDtypeInfo(layout.number).element_bytes;
  double piece[kPiece];
  for (size_t count = bytes.size() / number_bytes; count > 0;) {
    const size_t now = std::min(count, kPiece);
    Decode(layout, bytes.data(), now, piece);
    visit({piece, now});
    bytes = bytes.subspan(now * number_bytes);
    count -= now;
  }
}

void ChangeSums::Add(Dtype dtype, std::span<const std::byte> a, std::span<const std::byte> b) {
  const FloatLayout layout = FloatLayoutOf(dtype);
  const size_t number_bytes = GetDtypeInfo(layout.number).element_bytes;
  double piece_a[kPiece];
  double piece_b[kPiece];
  const size_t count = a.size() / number_bytes;
  for (size_t begin = 0; begin < count; begin += kPiece) {
    const size_t now = std::min(kPiece, count - begin);
    Decode(layout, a.data() + begin * number_bytes, now, piece_a);
    Decode(layout, b.data() + begin * number_bytes, now, piece_b);
    // Sums of a piece first: long sums lose what is small.
    ChangeSums sums;
    for (size_t i = 0; i < now; ++i) {
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
