// A curve drawn with characters: values against steps, with axes. Pure functions.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_PLOT_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_PLOT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/checkpoint_inspect/cli/console.h"

namespace tidemark::inspect {

struct PlotPoint {
  int64_t step = 0;
  double value = 0;      // one that is not finite breaks the curve
  bool deleted = false;  // the step's files are gone
};

struct PlotOptions {
  std::string title;            // escaped
  size_t columns = 80;          // of the whole; 40 or more
  size_t rows = 13;             // of the curve; one of four and the last have a label
  bool log = false;             // the values' logarithms are drawn; one that is not above 0 breaks the curve
  std::optional<int64_t> best;  // the step that is marked as the best
};

// Lines, each with its end: the title, the curve in dots of Braille patterns between labelled axes, a line of marks
// below it ("*" the best step, "!" values that cannot be drawn, "x" deleted steps; of several in one column the first
// of these), and what the marks mean, with figures. Lowest and highest value lie on the lowest and highest row.
// Precondition: points ascend by step.
std::string FormatPlot(const Console& console, const std::vector<PlotPoint>& points, const PlotOptions& options);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_PLOT_H_
