#include "tools/checkpoint_inspect/tensors/float_histogram.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace tidemark::inspect {
namespace {

// Sign, exponent and the first two bits of the fraction are the upper 14 bits of a double.
constexpr int kMagnitudeShift = 50;

// The narrowest range is 2 to this power: 1 over the width of one of its bins is a double.
constexpr int kRangeBitsMin = -996;

size_t MagnitudeOf(double value) { return std::bit_cast<uint64_t>(std::abs(value)) >> kMagnitudeShift; }
double MagnitudeBegin(size_t magnitude) { return std::bit_cast<double>(uint64_t{magnitude} << kMagnitudeShift); }

}  // namespace

FloatHistogram::FloatHistogram()
    : fine_(kFineBins), magnitudes_{std::vector<uint64_t>(kMagnitudes), std::vector<uint64_t>(kMagnitudes)} {}

void FloatHistogram::Widen(double magnitude) {
  // Powers of two, so that bins of a wider range are pairs of bins. The widest range, 2^1024, is no double any more;
  // its bins' width is.
  if (bin_width_ == 0) {
    constexpr int kHalfBits = std::countr_zero(kHalf);
    bin_width_ = std::ldexp(1.0, std::max(std::ilogb(magnitude) + 1, kRangeBitsMin) - kHalfBits);
  }
  while (magnitude >= bin_width_ * static_cast<double>(kHalf)) {
    std::vector<uint64_t> wider(kFineBins);
    for (size_t i = 0; i < kFineBins; ++i) wider[kHalf / 2 + i / 2] += fine_[i];
    fine_ = std::move(wider);
    bin_width_ *= 2;
  }
  range_ = bin_width_ * static_cast<double>(kHalf);
  bins_per_unit_ = 1 / bin_width_;
}

void FloatHistogram::Add(double value) {
  if (!std::isfinite(value)) {
    ++(std::isnan(value) ? nan_ : infinite_);
    return;
  }
  const double magnitude = std::abs(value);
  // Zero needs no range: its bin begins there, however wide it is.
  if (magnitude >= range_ && value != 0) Widen(magnitude);
  if (finite_++ == 0) min_ = max_ = value;
  min_ = std::min(min_, value);
  max_ = std::max(max_, value);
  double place = std::floor(value * bins_per_unit_);
  // The product may be too small for a double.
  if (value < 0 && place == 0) place = -1;
  place += static_cast<double>(kHalf);
  ++fine_[static_cast<size_t>(std::clamp(place, 0.0, static_cast<double>(kFineBins - 1)))];
  if (value == 0) {
    ++zeros_;
  } else {
    ++magnitudes_[value < 0 ? 1 : 0][MagnitudeOf(value)];
  }
}

void FloatHistogram::Add(std::span<const float> values) {
  for (const float value : values) Add(static_cast<double>(value));
}

void FloatHistogram::Add(std::span<const double> values) {
  for (const double value : values) Add(value);
}

HistogramBins FloatHistogram::Linear(size_t bins_max) const {
  HistogramBins bins;
  if (finite_ == 0) return bins;
  if (min_ == max_) return {.edges = {min(), max()}, .counts = {finite_}};
  const auto is_used = [](uint64_t count) { return count > 0; };
  const auto first = static_cast<size_t>(std::find_if(fine_.begin(), fine_.end(), is_used) - fine_.begin());
  const auto end = static_cast<size_t>(fine_.rend() - std::find_if(fine_.rbegin(), fine_.rend(), is_used));
  const size_t fine_each = (end - first + bins_max - 1) / bins_max;
  // The ends of the widest range would be infinities.
  const auto edge = [&](size_t fine) {
    constexpr double kMax = std::numeric_limits<double>::max();
    return std::clamp((static_cast<double>(fine) - static_cast<double>(kHalf)) * bin_width_, -kMax, kMax);
  };
  bins.edges.push_back(edge(first));
  for (size_t begin = first; begin < end; begin += fine_each) {
    uint64_t count = 0;
    for (size_t i = begin; i < std::min(begin + fine_each, kFineBins); ++i) count += fine_[i];
    bins.counts.push_back(count);
    bins.edges.push_back(edge(begin + fine_each));
  }
  return bins;
}

HistogramBins FloatHistogram::SymmetricLog(size_t bins_max) const {
  HistogramBins bins;
  if (finite_ == 0) return bins;
  size_t lowest = kMagnitudes;
  size_t highest = 0;
  for (size_t i = 0; i < kMagnitudes; ++i) {
    if (magnitudes_[0][i] + magnitudes_[1][i] == 0) continue;
    lowest = std::min(lowest, i);
    highest = i;
  }
  if (lowest == kMagnitudes) {  // nothing but zeros
    bins.edges = {0, 0};
    bins.counts = {zeros_};
    return bins;
  }
  const bool has_negative = min_ < 0;
  const bool has_positive = max_ > 0;
  const size_t bins_each = (bins_max - 1) / (has_negative && has_positive ? 2 : 1);
  const size_t magnitudes_each = (highest - lowest + bins_each) / bins_each;
  const size_t used = (highest - lowest + magnitudes_each) / magnitudes_each;
  // The edge of the largest magnitudes would be an infinity.
  const auto edge = [&](size_t i) {
    const double begin = MagnitudeBegin(std::min(lowest + i * magnitudes_each, size_t{2047 * 4}));
    return std::min(begin, std::numeric_limits<double>::max());
  };
  const auto count = [&](int sign, size_t i) {
    uint64_t sum = 0;
    const size_t begin = lowest + i * magnitudes_each;
    for (size_t m = begin; m < std::min(begin + magnitudes_each, kMagnitudes); ++m) sum += magnitudes_[sign][m];
    return sum;
  };
  if (has_negative) {
    for (size_t i = used; i > 0; --i) {
      bins.edges.push_back(-edge(i));
      bins.counts.push_back(count(1, i - 1));
    }
    bins.edges.push_back(-edge(0));
  } else {
    bins.edges.push_back(0);
  }
  bins.counts.push_back(zeros_);
  if (!has_positive) {
    bins.edges.push_back(0);
    return bins;
  }
  for (size_t i = 0; i < used; ++i) {
    bins.edges.push_back(edge(i));
    bins.counts.push_back(count(0, i));
  }
  bins.edges.push_back(edge(used));
  return bins;
}

bool FloatHistogram::IsHeavyTailed() const {
  const HistogramBins bins = Linear(64);
  uint64_t fullest = 0;
  for (size_t i = 0; i < bins.counts.size(); ++i) {
    fullest = std::max(fullest, bins.counts[i] + (i + 1 < bins.counts.size() ? bins.counts[i + 1] : 0));
  }
  return bins.counts.size() > 2 && static_cast<double>(fullest) > 0.9 * static_cast<double>(finite_);
}

}  // namespace tidemark::inspect
