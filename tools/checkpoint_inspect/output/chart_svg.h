// Charts of quantities against steps, drawn as SVG. Pure functions; texts are escaped here.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_CHART_SVG_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_CHART_SVG_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tools/checkpoint_inspect/output/chart_axis.h"

namespace tidemark::inspect {

inline constexpr size_t kSeriesColours = 8;

// What is special about a step. Each has a shape of its own, so that nobody needs to tell colours apart.
enum class Mark { kSaved, kDeleted, kDamaged, kPinned, kBest, kUnhealthy };

struct ChartPoint {
  double x = 0;
  double y = 0;  // NaN or infinite: a gap in the line, and a mark at the frame
  std::vector<Mark> marks;
  std::string hover;
};

struct LineChart {
  std::string title;
  std::string description;
  std::string x_label;
  std::string y_label;
  bool log = false;                // precondition: every finite y is more than 0
  std::vector<ChartPoint> points;  // ascending by x
  // The range of the x axis; nullopt: from the first point to the last. Precondition: every point lies in it.
  std::optional<std::pair<double, double>> x_range;
};
std::string LineChartSvg(const LineChart& chart);

struct Bar {
  double x = 0;                // its value or its beginning on the x axis; ticks are at round values
  std::vector<double> values;  // one for each series, >= 0 and finite
  double line = 0;             // of StackedBars::line
  std::string hover;
};

struct StackedBars {
  std::string title;
  std::string description;
  std::string x_label;
  std::string y_label;
  AxisUnit unit = AxisUnit::kNumber;
  std::vector<std::string> series;  // from the bottom to the top
  std::vector<size_t> colours;      // one for each series, below kSeriesColours
  std::optional<std::string> line;  // name of a quantity that is drawn over the bars
  std::vector<Bar> bars;            // ascending by x
};
std::string StackedBarsSvg(const StackedBars& chart);

// One mark, one series' colour, or a line, as a picture of 16 by 16 for a legend.
std::string MarkIcon(Mark mark);
std::string NotFiniteIcon();
std::string SeriesIcon(size_t colour);
std::string LineIcon();

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_CHART_SVG_H_
