// Axis: the range that a chart shows of a quantity, with ticks at round numbers.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_CHART_AXIS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_CHART_AXIS_H_

#include <string>
#include <vector>

namespace tidemark::inspect {

enum class AxisUnit {
  kNumber,   // "0.25", "1e-5"
  kInteger,  // "800", "12k", "3M": steps and counts
  kBytes,    // "1.5 GiB"
  kSeconds,  // "20 ms"
};

struct Axis {
  double low = 0;
  double high = 1;  // > low
  bool log = false;
  std::vector<double> ticks;        // ascending, within [low, high]
  std::vector<std::string> labels;  // one for each tick

  // 0 at `low`, 1 at `high`. Precondition: `value` is finite, and more than 0 if `log`.
  double Position(double value) const;
};

// Both take finite numbers, low <= high; a range of nothing is widened. At most `ticks_max` (>= 3) ticks. `rounded`:
// the axis begins and ends at a tick. It reaches no further than 4e307 from zero, so that its range is a double.
Axis LinearAxis(double low, double high, AxisUnit unit, int ticks_max, bool rounded);

// Precondition: low > 0. Ends at ticks: powers of ten or, where it spans few of them, 1, 2 and 5 times these.
Axis LogAxis(double low, double high, int ticks_max);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_CHART_AXIS_H_
