#include "tools/checkpoint_inspect/tensors/change_sums.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tools/checkpoint_inspect/tensors/tensor_numbers.h"

namespace tidemark::inspect {
namespace {

// A sum of squares of doubles that is smaller than this may have lost some: they were too small for a double.
constexpr double kFewSquares = 1e-200;

template <typename Real>
struct PieceSums {
  Real difference = 0;
  Real before = 0;
  Real after = 0;
};

template <typename Real>
PieceSums<Real> SumSquares(std::span<const double> a, std::span<const double> b) {
  PieceSums<Real> sums;
  for (size_t i = 0; i < a.size(); ++i) {
    const Real old_value = a[i];
    const Real new_value = b[i];
    const Real change = new_value - old_value;
    sums.difference += change * change;
    sums.before += old_value * old_value;
    sums.after += new_value * new_value;
  }
  return sums;
}

template <typename Real>
Real SumSquares(std::span<const double> numbers) {
  Real sum = 0;
  for (const Real number : numbers) sum += number * number;
  return sum;
}

bool AreZeros(std::span<const double> numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](double number) { return number == 0; });
}

// Both are false where a number is not finite, or where a double is too narrow for the squares.
bool AreSquaresRight(double sum, std::span<const double> numbers) {
  return std::isfinite(sum) && (sum >= kFewSquares || AreZeros(numbers));
}
bool AreSquaresRight(const PieceSums<double>& sums, std::span<const double> a, std::span<const double> b) {
  if (!std::isfinite(sums.difference)) return false;
  if (sums.difference < kFewSquares && !std::equal(a.begin(), a.end(), b.begin())) return false;
  return AreSquaresRight(sums.before, a) && AreSquaresRight(sums.after, b);
}

template <typename Real>
void TakePiece(const PieceSums<Real>& sums, ChangeSums* total) {
  total->difference += sums.difference;
  total->before += sums.before;
  total->after += sums.after;
}

}  // namespace

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
    const std::span<const double> old_values(piece_a, count * numbers_each);
    const std::span<const double> new_values(piece_b, count * numbers_each);
    // In doubles, which are faster, unless these are too narrow. Sums of a piece first: long sums lose what is small.
    const auto sums = SumSquares<double>(old_values, new_values);
    if (AreSquaresRight(sums, old_values, new_values)) {
      TakePiece(sums, this);
    } else {
      TakePiece(SumSquares<long double>(old_values, new_values), this);
    }
  }
}

long double SumOfSquares(Dtype dtype, std::span<const std::byte> bytes) {
  long double total = 0;
  VisitNumbers(dtype, bytes, [&](std::span<const double> numbers) {
    const auto sum = SumSquares<double>(numbers);
    total += AreSquaresRight(sum, numbers) ? sum : SumSquares<long double>(numbers);
  });
  return total;
}

double RelativeChange(long double squares_change, long double squares_before) {
  using Limits = std::numeric_limits<double>;
  if (squares_change == 0) return 0;
  if (squares_before == 0) return Limits::infinity();
  const long double ratio = std::sqrt(squares_change / squares_before);
  return static_cast<double>(std::clamp<long double>(ratio, Limits::denorm_min(), Limits::max()));
}

}  // namespace tidemark::inspect
