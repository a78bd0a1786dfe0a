#include "tools/checkpoint_inspect/tensors/tensor_statistics.h"

#include <algorithm>
#include <cmath>

#include "tools/checkpoint_inspect/tensors/tensor_numbers.h"

namespace tidemark::inspect {
namespace {

// Sums that run side by side, so that they fill vectors and no addition waits for the last.
constexpr size_t kLanes = 8;

// Of doubles that are all smaller than this the squares may be too small for a double.
constexpr double kTiny = 1e-120;
// Doubles of whole numbers up to this are exact.
constexpr double kExactMax = 0x1p53;

template <typename Real>
struct Lanes {
  Real value[kLanes];

  explicit Lanes(Real initial) { std::fill_n(value, kLanes, initial); }
  Real Sum() const {
    Real sum = 0;
    for (const Real lane : value) sum += lane;
    return sum;
  }
};

template <typename Real>
struct Extremes {
  Real sum = 0;
  Real low = 0;
  Real high = 0;
  Real zeros = 0;
};

// Precondition: `count` is at least 1. Where a number is NaN or infinite, so is the sum, and nothing else is right.
template <typename Real>
Extremes<Real> FindExtremes(const Real* values, size_t count) {
  Lanes<Real> sums(0);
  Lanes<Real> zeros(0);
  Lanes<Real> lows(values[0]);
  Lanes<Real> highs(values[0]);
  const auto take = [&](size_t lane, Real value) {
    sums.value[lane] += value;
    zeros.value[lane] += value == 0 ? Real{1} : Real{0};
    lows.value[lane] = value < lows.value[lane] ? value : lows.value[lane];
    highs.value[lane] = value > highs.value[lane] ? value : highs.value[lane];
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) take(lane, values[i + lane]);
  }
  for (size_t lane = 0; i < count; ++i, ++lane) take(lane, values[i]);
  return {.sum = sums.Sum(),
          .low = *std::min_element(lows.value, lows.value + kLanes),
          .high = *std::max_element(highs.value, highs.value + kLanes),
          .zeros = zeros.Sum()};
}

template <typename Real>
struct Deviations {
  Real sum = 0;
  Real squares = 0;
};

template <typename Real>
Deviations<Real> DeviationsFrom(Real centre, const Real* values, size_t count) {
  Lanes<Real> sums(0);
  Lanes<Real> squares(0);
  const auto take = [&](size_t lane, Real value) {
    const Real deviation = value - centre;
    sums.value[lane] += deviation;
    squares.value[lane] += deviation * deviation;
  };
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) take(lane, values[i + lane]);
  }
  for (size_t lane = 0; i < count; ++i, ++lane) take(lane, values[i]);
  return {.sum = sums.Sum(), .squares = squares.Sum()};
}

// Precondition: `count` is at least 1. Not finite where a number is not, or where `Real` is too narrow for the sums.
template <typename Real>
TensorStatistics OfBlock(const Real* values, size_t count) {
  const Extremes<Real> extremes = FindExtremes(values, count);
  const Real centre = extremes.sum / static_cast<Real>(count);
  const Deviations<Real> deviations = DeviationsFrom(centre, values, count);
  // The centre was rounded; how far it is from the mean, the deviations tell.
  const Real error = deviations.sum / static_cast<Real>(count);
  const Real squares = deviations.squares - deviations.sum * error;
  return {.numbers = count,
          .zeros = static_cast<uint64_t>(extremes.zeros),
          .min = extremes.low,
          .max = extremes.high,
          .mean = static_cast<long double>(centre) + error,
          .squared_deviations = squares < 0 ? 0 : squares};
}

bool IsRight(const TensorStatistics& block, Dtype dtype) {
  const auto largest = static_cast<double>(std::max(-block.min, block.max));
  if (!std::isfinite(block.mean) || !std::isfinite(block.squared_deviations)) return false;
  if (largest > kExactMax && ExceedsDouble(dtype)) return false;
  return largest >= kTiny || largest == 0;
}

TensorStatistics OfBlockWidely(Dtype dtype, const std::byte* bytes, size_t elements) {
  long double values[kNumbersMax];
  DecodeNumbers(dtype, bytes, elements, values);
  const size_t count = elements * NumbersPerElement(dtype);
  TensorStatistics others{.numbers = 0};
  size_t finite = 0;
  for (size_t i = 0; i < count; ++i) {
    if (std::isnan(values[i])) {
      ++others.nan;
    } else if (std::isinf(values[i])) {
      ++others.inf;
    } else {
      values[finite++] = values[i];
    }
  }
  others.numbers = count - finite;
  TensorStatistics block;
  if (finite > 0) block = OfBlock(values, finite);
  block.Merge(others);
  return block;
}

}  // namespace

double TensorStatistics::StandardDeviation() const {
  if (finite() == 0) return 0;
  return static_cast<double>(std::sqrt(squared_deviations / static_cast<long double>(finite())));
}

double TensorStatistics::Norm() const {
  return static_cast<double>(std::sqrt(squared_deviations + static_cast<long double>(finite()) * mean * mean));
}

void TensorStatistics::Add(Dtype dtype, std::span<const std::byte> bytes) {
  const size_t element_bytes = GetDtypeInfo(dtype).element_bytes;
  const size_t numbers_each = NumbersPerElement(dtype);
  const size_t elements = bytes.size() / element_bytes;
  const size_t step = kNumbersMax / numbers_each;
  double values[kNumbersMax];
  for (size_t begin = 0; begin < elements; begin += step) {
    const size_t count = std::min(step, elements - begin);
    const std::byte* from = bytes.data() + begin * element_bytes;
    DecodeNumbers(dtype, from, count, values);
    const TensorStatistics block = OfBlock(values, count * numbers_each);
    Merge(IsRight(block, dtype) ? block : OfBlockWidely(dtype, from, count));
  }
}

void TensorStatistics::Merge(const TensorStatistics& other) {
  if (other.finite() > 0) {
    if (finite() == 0) {
      min = other.min;
      max = other.max;
      mean = other.mean;
      squared_deviations = other.squared_deviations;
    } else {
      min = std::min(min, other.min);
      max = std::max(max, other.max);
      const auto own = static_cast<long double>(finite());
      const auto its = static_cast<long double>(other.finite());
      const long double distance = other.mean - mean;
      mean += distance * (its / (own + its));
      squared_deviations += other.squared_deviations + distance * distance * (own * its / (own + its));
    }
  }
  numbers += other.numbers;
  zeros += other.zeros;
  nan += other.nan;
  inf += other.inf;
}

}  // namespace tidemark::inspect
