#include "tools/checkpoint_inspect/output/chart_svg.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/functional/function_ref.h"
#include "fmt/format.h"
#include "tools/checkpoint_inspect/output/html_page.h"
#include "tools/checkpoint_inspect/output/svg.h"

namespace tidemark::inspect {
namespace {

// User units; a chart is as wide as half of a page.
constexpr double kWidth = 540;
constexpr double kHeight = 270;
constexpr double kLeft = 74;
constexpr double kRight = kWidth - 18;
constexpr double kTop = 14;
constexpr double kBottom = kHeight - 46;
constexpr int kXTicksMax = 8;
constexpr int kYTicksMax = 7;
// With more points than this a mark on each saved one would be a smear.
constexpr size_t kDotsMax = 150;

double XOf(const Axis& axis, double value) { return kLeft + axis.Position(value) * (kRight - kLeft); }
double YOf(const Axis& axis, double value) { return kBottom - axis.Position(value) * (kBottom - kTop); }

std::string AxisLabels(const std::string& x_label, const std::string& y_label) {
  return SvgText((kLeft + kRight) / 2, kHeight - 8, "label", Anchor::kMiddle, x_label) +
         SvgText(14, (kTop + kBottom) / 2, "label", Anchor::kMiddle, y_label, -90);
}

std::string YGrid(const Axis& axis) {
  std::string svg;
  for (size_t i = 0; i < axis.ticks.size(); ++i) {
    const double y = YOf(axis, axis.ticks[i]);
    svg += SvgLine(kLeft, y, kRight, y, "grid");
    svg += SvgText(kLeft - 8, y + 4, "tick", Anchor::kEnd, axis.labels[i]);
  }
  return svg + SvgLine(kLeft, kBottom, kRight, kBottom, "axis");
}

std::string XTicks(const Axis& axis) {
  std::string svg;
  for (size_t i = 0; i < axis.ticks.size(); ++i) {
    const double x = XOf(axis, axis.ticks[i]);
    svg += SvgLine(x, kBottom, x, kBottom + 4, "axis");
    svg += SvgText(x, kBottom + 18, "tick", Anchor::kMiddle, axis.labels[i]);
  }
  return svg;
}

std::string_view MarkClass(Mark mark) {
  constexpr std::string_view kClasses[] = {"saved", "deleted", "damaged", "pinned", "best", "unhealthy"};
  return kClasses[static_cast<int>(mark)];
}

std::string StarPath(double x, double y, double radius) {
  std::string path;
  for (int i = 0; i < 10; ++i) {
    const double angle = -M_PI / 2 + i * M_PI / 5;
    const double r = i % 2 == 0 ? radius : radius * 0.42;
    path += fmt::format("{}{} {}", i == 0 ? "M" : "L", Px(x + r * std::cos(angle)), Px(y + r * std::sin(angle)));
  }
  return path + "Z";
}

std::string DrawMark(Mark mark, double x, double y) {
  const std::string_view css_class = MarkClass(mark);
  const auto path = [&](const std::string& d) { return fmt::format("<path class=\"{}\" d=\"{}\"/>\n", css_class, d); };
  switch (mark) {
    case Mark::kSaved:
    case Mark::kDeleted:
      return fmt::format("<circle class=\"{}\" cx=\"{}\" cy=\"{}\" r=\"2.5\"/>\n", css_class, Px(x), Px(y));
    case Mark::kDamaged:
      return SvgRect(x - 4, y - 4, 8, 8, css_class);
    case Mark::kPinned:
      return path(fmt::format("M{} {}L{} {}L{} {}L{} {}Z", Px(x), Px(y - 7), Px(x + 7), Px(y), Px(x), Px(y + 7),
                              Px(x - 7), Px(y)));
    case Mark::kBest:
      return path(StarPath(x, y, 7.5));
    case Mark::kUnhealthy:
      return path(fmt::format("M{} {}L{} {}M{} {}L{} {}", Px(x - 4.5), Px(y - 4.5), Px(x + 4.5), Px(y + 4.5),
                              Px(x - 4.5), Px(y + 4.5), Px(x + 4.5), Px(y - 4.5)));
  }
  return "";
}

// At the upper frame for infinity, else at the lower one, pointing out of it.
std::string DrawNotFinite(double x, double value) {
  const bool up = value == std::numeric_limits<double>::infinity();
  const double base = up ? kTop + 8 : kBottom - 8;
  const double tip = up ? kTop + 1 : kBottom - 1;
  return fmt::format("<path class=\"notfinite\" d=\"M{} {}L{} {}L{} {}Z\"/>\n", Px(x - 4), Px(base), Px(x + 4),
                     Px(base), Px(x), Px(tip));
}

std::string LinePath(const std::vector<ChartPoint>& points, const Axis& x_axis, const Axis& y_axis) {
  std::string path;
  bool pen_down = false;
  for (const ChartPoint& point : points) {
    if (!std::isfinite(point.y)) {
      pen_down = false;
      continue;
    }
    path += fmt::format("{}{} {}", pen_down ? "L" : "M", Px(XOf(x_axis, point.x)), Px(YOf(y_axis, point.y)));
    pen_down = true;
  }
  return path.empty() ? "" : fmt::format("<path class=\"line\" d=\"{}\"/>\n", path);
}

std::string Marks(const std::vector<ChartPoint>& points, const Axis& x_axis, const Axis& y_axis) {
  std::string svg;
  // What is rare lies on top of what is common.
  for (int kind = 0; kind <= static_cast<int>(Mark::kUnhealthy); ++kind) {
    const Mark mark = static_cast<Mark>(kind);
    const bool is_common = mark == Mark::kSaved || mark == Mark::kDeleted;
    if (is_common && points.size() > kDotsMax) continue;
    for (const ChartPoint& point : points) {
      if (std::find(point.marks.begin(), point.marks.end(), mark) == point.marks.end()) continue;
      if (is_common && !std::isfinite(point.y)) continue;
      const double y = std::isfinite(point.y) ? YOf(y_axis, point.y) : kBottom - 14;
      svg += DrawMark(mark, XOf(x_axis, point.x), y);
    }
  }
  for (const ChartPoint& point : points) {
    if (!std::isfinite(point.y)) svg += DrawNotFinite(XOf(x_axis, point.x), point.y);
  }
  return svg;
}

// Few bars have one tick each. Many bars have ticks at round numbers; a tick is between two bars if no bar begins
// there.
std::string BarTicks(const std::vector<Bar>& bars, absl::FunctionRef<double(size_t)> centre) {
  std::string svg;
  if (bars.empty()) return svg;
  const auto tick = [&](double x, const std::string& label) {
    svg += SvgText(x, kBottom + 18, "tick", Anchor::kMiddle, label);
  };
  if (bars.size() < static_cast<size_t>(kXTicksMax)) {
    for (size_t i = 0; i < bars.size(); ++i) tick(centre(i), fmt::format("{}", static_cast<int64_t>(bars[i].x)));
    return svg;
  }
  const Axis axis = LinearAxis(bars.front().x, bars.back().x, AxisUnit::kInteger, kXTicksMax, /*rounded=*/false);
  for (size_t t = 0; t < axis.ticks.size(); ++t) {
    size_t above = 0;
    while (above + 1 < bars.size() && bars[above].x < axis.ticks[t]) ++above;
    const size_t below = above == 0 || bars[above].x <= axis.ticks[t] ? above : above - 1;
    const double gap = bars[above].x - bars[below].x;
    const double share = gap > 0 ? (axis.ticks[t] - bars[below].x) / gap : 0;
    tick(centre(below) + share * (centre(above) - centre(below)), axis.labels[t]);
  }
  return svg;
}

// Columns that show what is known of a point to whoever points at it, as wide as the way to its neighbours.
std::string HoverColumns(const std::vector<ChartPoint>& points, const Axis& x_axis) {
  std::string svg;
  for (size_t i = 0; i < points.size(); ++i) {
    const double x = XOf(x_axis, points[i].x);
    const double begin = i == 0 ? kLeft - 8 : (XOf(x_axis, points[i - 1].x) + x) / 2;
    const double end = i + 1 == points.size() ? kRight + 8 : (XOf(x_axis, points[i + 1].x) + x) / 2;
    svg += SvgRect(begin, kTop - 8, end - begin, kBottom - kTop + 16, "hover", points[i].hover);
  }
  return svg;
}

}  // namespace

std::string LineChartSvg(const LineChart& chart) {
  std::string svg = SvgBegin(kWidth, kHeight, "lines", chart.title, chart.description);
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  for (const ChartPoint& point : chart.points) {
    if (!std::isfinite(point.y)) continue;
    low = std::min(low, point.y);
    high = std::max(high, point.y);
  }
  if (low > high) low = high = chart.log ? 1 : 0;
  const Axis y_axis = chart.log ? LogAxis(low, high, kYTicksMax)
                                : LinearAxis(low, high, AxisUnit::kNumber, kYTicksMax, /*rounded=*/true);
  std::pair<double, double> range = chart.x_range.value_or(std::pair(0.0, 0.0));
  if (!chart.x_range && !chart.points.empty()) range = {chart.points.front().x, chart.points.back().x};
  const Axis x_axis = LinearAxis(range.first, range.second, AxisUnit::kInteger, kXTicksMax, /*rounded=*/false);
  svg += YGrid(y_axis) + XTicks(x_axis) + AxisLabels(chart.x_label, chart.y_label);
  svg += LinePath(chart.points, x_axis, y_axis);
  svg += Marks(chart.points, x_axis, y_axis);
  svg += HoverColumns(chart.points, x_axis);
  return svg + "</svg>\n";
}

std::string StackedBarsSvg(const StackedBars& chart) {
  std::string svg = SvgBegin(kWidth, kHeight, "bars", chart.title, chart.description);
  double high = 0;
  for (const Bar& bar : chart.bars) {
    double sum = 0;
    for (const double value : bar.values) sum += value;
    high = std::max({high, sum, chart.line ? bar.line : 0});
  }
  const Axis axis = LinearAxis(0, high, chart.unit, kYTicksMax, /*rounded=*/true);
  svg += YGrid(axis) + AxisLabels(chart.x_label, chart.y_label);
  const double pitch = (kRight - kLeft) / static_cast<double>(std::max<size_t>(chart.bars.size(), 1));
  const double width = std::max(pitch * 0.8, std::min(pitch, 1.0));
  const auto centre = [&](size_t i) { return kLeft + (static_cast<double>(i) + 0.5) * pitch; };
  svg += BarTicks(chart.bars, centre);
  std::string line;
  std::string hover;
  for (size_t i = 0; i < chart.bars.size(); ++i) {
    const Bar& bar = chart.bars[i];
    double sum = 0;
    for (size_t s = 0; s < bar.values.size(); ++s) {
      const double from = YOf(axis, sum);
      sum += bar.values[s];
      const double to = YOf(axis, sum);
      if (from - to < 0.05) continue;
      svg += SvgRect(centre(i) - width / 2, to, width, from - to, fmt::format("s{}", chart.colours[s]));
    }
    if (chart.line) line += fmt::format("{}{} {}", i == 0 ? "M" : "L", Px(centre(i)), Px(YOf(axis, bar.line)));
    hover += SvgRect(kLeft + static_cast<double>(i) * pitch, kTop - 8, pitch, kBottom - kTop + 16, "hover", bar.hover);
  }
  // A line of one point is none.
  if (chart.bars.size() == 1)
    line += fmt::format("M{0} {1}L{2} {1}", Px(kLeft), Px(YOf(axis, chart.bars[0].line)), Px(kRight));
  if (chart.line && !line.empty()) svg += fmt::format("<path class=\"over\" d=\"{}\"/>\n", line);
  return svg + hover + "</svg>\n";
}

namespace {

std::string Icon(const std::string& drawn) {
  return "<svg class=\"icon\" viewBox=\"0 0 16 16\" width=\"16\" height=\"16\" aria-hidden=\"true\">" + drawn +
         "</svg>";
}

}  // namespace

std::string MarkIcon(Mark mark) { return Icon(DrawMark(mark, 8, 8)); }

std::string NotFiniteIcon() { return Icon("<path class=\"notfinite\" d=\"M4 5L12 5L8 12Z\"/>"); }

std::string SeriesIcon(size_t colour) { return Icon(SvgRect(2, 2, 12, 12, fmt::format("s{}", colour))); }

std::string LineIcon() { return Icon("<path class=\"over\" d=\"M1 8L15 8\"/>"); }

}  // namespace tidemark::inspect
