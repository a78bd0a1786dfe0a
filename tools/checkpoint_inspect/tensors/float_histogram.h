// FloatHistogram: counts floating-point numbers whose range nobody knows beforehand, in one pass.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_FLOAT_HISTOGRAM_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_FLOAT_HISTOGRAM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tidemark::inspect {

// counts[i] is of [edges[i], edges[i + 1]), with the last one's upper edge in it: both edges of an only one may be the
// same number.
struct HistogramBins {
  std::vector<double> edges;  // ascending, one more than counts; empty where nothing was finite
  std::vector<uint64_t> counts;
};

// Thread-compatible. Exact: every number is counted in the bin in which it lies.
class FloatHistogram {
 public:
  FloatHistogram();

  void Add(double value);
  void Add(std::span<const float> values);
  void Add(std::span<const double> values);

  uint64_t count() const { return finite_ + nan_ + infinite_; }
  uint64_t nan() const { return nan_; }
  uint64_t infinite() const { return infinite_; }
  uint64_t zeros() const { return zeros_; }
  // Of finite numbers; 0 where there are none, and never -0.
  double min() const { return min_ + 0.0; }
  double max() const { return max_ + 0.0; }

  // Bins of equal width that cover min() to max(), at most `bins_max`; where these are the same number, that alone.
  HistogramBins Linear(size_t bins_max) const;

  // Bins of equal ratio, mirrored: negative numbers, zero in a bin of its own with whatever is smaller than all of the
  // others, positive ones. At most `bins_max` (>= 3).
  HistogramBins SymmetricLog(size_t bins_max) const;

  // Whether Linear would put nearly everything into a bin or two.
  bool IsHeavyTailed() const;

 private:
  // Linear bins: kFineBins of equal width over [-range_, range_), which doubles when a number lies beyond it.
  static constexpr size_t kFineBins = 8192;
  static constexpr size_t kHalf = kFineBins / 2;
  // Log bins: four for each power of two, of each sign.
  static constexpr size_t kMagnitudes = 2048 * 4;

  void Widen(double magnitude);

  // 0 until there is a number that is not zero.
  double bin_width_ = 0;
  double range_ = 0;  // infinite where the bins reach further than doubles do
  double bins_per_unit_ = 0;
  std::vector<uint64_t> fine_;           // kFineBins
  std::vector<uint64_t> magnitudes_[2];  // of positive, of negative numbers; kMagnitudes
  uint64_t finite_ = 0;
  uint64_t nan_ = 0;
  uint64_t infinite_ = 0;
  uint64_t zeros_ = 0;
  double min_ = 0;
  double max_ = 0;
};

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TENSORS_FLOAT_HISTOGRAM_H_
