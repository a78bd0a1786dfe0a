#include "tools/checkpoint_inspect/tensors/tensor_change.h"

#include <algorithm>
#include <cmath>

#include "tools/checkpoint_inspect/tensors/change_sums.h"
#include "tools/checkpoint_inspect/tensors/tensor_numbers.h"

namespace tidemark::inspect {
namespace {

// Sums that run side by side, so that they fill vectors and no addition waits for the last.
constexpr size_t kLanes = 4;

// Squares of doubles that are smaller than this may be smaller than a double can be.
constexpr double kTinySquare = 1e-200;

template <typename Real>
struct BlockSums {
  Real squares_a = 0;
  Real squares_b = 0;
  Real squares_change = 0;
  Real product = 0;
  Real largest = 0;
};

template <typename Real>
BlockSums<Real> SumUp(const Real* a, const Real* b, size_t count) {
  Real squares_a[kLanes] = {};
  Real squares_b[kLanes] = {};
  Real squares_change[kLanes] = {};
  Real products[kLanes] = {};
  Real largest[kLanes] = {};
  const auto take = [&](size_t lane, Real old_value, Real new_value) {
    const Real change = new_value - old_value;
    const Real distance = change < 0 ? -change : change;
    squares_a[lane] += old_value * old_value;
    squares_b[lane] += new_value * new_value;
    squares_change[lane] += change * change;
    products[lane] += old_value * new_value;
    largest[lane] = distance > largest[lane] ? distance : largest[lane];
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) take(lane, a[i + lane], b[i + lane]);
  }
  for (size_t lane = 0; i < count; ++i, ++lane) take(lane, a[i], b[i]);
  BlockSums<Real> sums;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    sums.squares_a += squares_a[lane];
    sums.squares_b += squares_b[lane];
    sums.squares_change += squares_change[lane];
    sums.product += products[lane];
    sums.largest = std::max(sums.largest, largest[lane]);
  }
  return sums;
}

// False where a number is not finite, or where doubles are too narrow for the sums.
bool IsRight(const BlockSums<double>& sums, Dtype dtype_a, Dtype dtype_b) {
  if (!std::isfinite(sums.squares_a + sums.squares_b + sums.squares_change + sums.product)) return false;
  if (ExceedsDouble(dtype_a) || ExceedsDouble(dtype_b)) return false;
  // Of narrower numbers no square is that small.
  const auto is_wide = [](Dtype dtype) { return GetDtypeInfo(dtype).float_bytes == 8; };
  if (!is_wide(dtype_a) && !is_wide(dtype_b)) return true;
  const bool is_change_right = sums.largest == 0 || sums.squares_change >= kTinySquare;
  return is_change_right && sums.squares_a >= kTinySquare && sums.squares_b >= kTinySquare;
}

// Puts the pairs of finite numbers in front, where the first was before goes into `places`, and returns how many they
// are. Counts those of the others that differ.
size_t KeepFinite(long double* a, long double* b, size_t* places, size_t count, uint64_t* not_finite) {
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    if (std::isfinite(a[i]) && std::isfinite(b[i])) {
      a[kept] = a[i];
      b[kept] = b[i];
      places[kept++] = i;
    } else if (a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i]))) {
      ++*not_finite;
    }
  }
  return kept;
}

template <typename Real>
void TakeSums(const BlockSums<Real>& sums, TensorChange* total) {
  total->squares_a += sums.squares_a;
  total->squares_b += sums.squares_b;
  total->squares_change += sums.squares_change;
  total->product += sums.product;
}

template <typename Real>
size_t FindLargest(const Real* a, const Real* b, size_t count, Real largest) {
  for (size_t i = 0; i < count; ++i) {
    if (std::abs(b[i] - a[i]) == largest) return i;
  }
  return 0;
}

struct Block {
  Dtype dtype_a;
  const std::byte* a;
  Dtype dtype_b;
  const std::byte* b;
  size_t elements;
  uint64_t first_element;
};

void AddWidely(const Block& block, size_t numbers_each, TensorChange* total) {
  long double a[kNumbersMax];
  long double b[kNumbersMax];
  size_t places[kNumbersMax];
  DecodeNumbers(block.dtype_a, block.a, block.elements, a);
  DecodeNumbers(block.dtype_b, block.b, block.elements, b);
  const size_t kept = KeepFinite(a, b, places, block.elements * numbers_each, &total->not_finite);
  const BlockSums<long double> sums = SumUp(a, b, kept);
  if (sums.largest > total->largest) {
    total->largest = sums.largest;
    total->largest_element = block.first_element + places[FindLargest(a, b, kept, sums.largest)] / numbers_each;
  }
  TakeSums(sums, total);
}

void AddBlock(const Block& block, size_t numbers_each, TensorChange* total) {
  double a[kNumbersMax];
  double b[kNumbersMax];
  DecodeNumbers(block.dtype_a, block.a, block.elements, a);
  DecodeNumbers(block.dtype_b, block.b, block.elements, b);
  const size_t count = block.elements * numbers_each;
  const BlockSums<double> sums = SumUp(a, b, count);
  if (!IsRight(sums, block.dtype_a, block.dtype_b)) return AddWidely(block, numbers_each, total);
  if (sums.largest > total->largest) {
    total->largest = sums.largest;
    total->largest_element = block.first_element + FindLargest(a, b, count, sums.largest) / numbers_each;
  }
  TakeSums(sums, total);
}

}  // namespace

bool AreComparable(const EntrySpec& a, const EntrySpec& b) {
  return NumbersPerElement(a) > 0 && NumbersPerElement(a) == NumbersPerElement(b);
}

double TensorChange::Norm() const { return static_cast<double>(std::sqrt(squares_change)); }

double TensorChange::Relative() const { return RelativeChange(squares_change, squares_a); }

std::optional<double> TensorChange::Cosine() const {
  if (squares_a == 0 || squares_b == 0) return std::nullopt;
  const long double cosine = product / (std::sqrt(squares_a) * std::sqrt(squares_b));
  return static_cast<double>(std::clamp<long double>(cosine, -1, 1));
}

void TensorChange::Add(Dtype dtype_a, std::span<const std::byte> a, Dtype dtype_b, std::span<const std::byte> b,
                       uint64_t first_element) {
  const size_t bytes_a = GetDtypeInfo(dtype_a).element_bytes;
  const size_t bytes_b = GetDtypeInfo(dtype_b).element_bytes;
  const size_t numbers_each = NumbersPerElement(dtype_a);
  const size_t elements = a.size() / bytes_a;
  const size_t step = kNumbersMax / numbers_each;
  for (size_t begin = 0; begin < elements; begin += step) {
    const Block block = {.dtype_a = dtype_a,
                         .a = a.data() + begin * bytes_a,
                         .dtype_b = dtype_b,
                         .b = b.data() + begin * bytes_b,
                         .elements = std::min(step, elements - begin),
                         .first_element = first_element + begin};
    AddBlock(block, numbers_each, this);
  }
  numbers += elements * numbers_each;
}

}  // namespace tidemark::inspect
