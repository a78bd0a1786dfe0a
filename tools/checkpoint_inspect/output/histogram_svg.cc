#include "tools/checkpoint_inspect/output/histogram_svg.h"

#include <algorithm>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/output/chart_axis.h"
#include "tools/checkpoint_inspect/output/svg.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

constexpr double kHistogramWidth = 270;
constexpr double kHistogramHeight = 150;
constexpr double kBinsLeft = 58;
constexpr double kBinsRight = kHistogramWidth - 14;
constexpr double kBinsTop = 10;
constexpr double kBinsBottom = kHistogramHeight - 40;

// Nothing but one number: its bin has no width.
bool IsOneValue(const HistogramBins& bins) { return bins.edges.front() == bins.edges.back(); }

std::string BinText(const HistogramBins& bins, size_t i) {
  if (IsOneValue(bins)) return fmt::format("{:.4g}: {}", bins.edges[i], bins.counts[i]);
  return fmt::format("{:.4g} to {:.4g}: {}", bins.edges[i], bins.edges[i + 1], bins.counts[i]);
}

// Where the value lies between the edges as drawn.
double PlaceOf(const HistogramBins& bins, double value, double pitch) {
  const auto above = std::upper_bound(bins.edges.begin(), bins.edges.end(), value);
  if (above == bins.edges.begin()) return kBinsLeft;
  if (above == bins.edges.end()) return kBinsRight;
  const auto bin = static_cast<double>(above - bins.edges.begin() - 1);
  const double begin = *(above - 1);
  return kBinsLeft + (bin + (value - begin) / (*above - begin)) * pitch;
}

std::string XTicks(const HistogramChart& chart, double pitch) {
  const HistogramBins& bins = chart.bins;
  std::string svg;
  const auto tick = [&](double x, const std::string& text) {
    svg += SvgLine(x, kBinsBottom, x, kBinsBottom + 4, "axis");
    svg += SvgText(x, kBinsBottom + 17, "tick", Anchor::kMiddle, text);
  };
  if (IsOneValue(bins)) {
    tick((kBinsLeft + kBinsRight) / 2, fmt::format("{:.4g}", bins.edges.front()));
    return svg;
  }
  if (!chart.log) {
    const Axis axis = LinearAxis(bins.edges.front(), bins.edges.back(), AxisUnit::kNumber, 4, /*rounded=*/false);
    if (axis.low <= bins.edges.front() && axis.high >= bins.edges.back()) {
      for (size_t i = 0; i < axis.ticks.size(); ++i) tick(PlaceOf(bins, axis.ticks[i], pitch), axis.labels[i]);
      return svg;
    }
    // Further than an axis can reach.
    tick(kBinsLeft, EdgeText(bins.edges.front()));
    tick(kBinsRight, EdgeText(bins.edges.back()));
    if (bins.edges.front() < 0 && bins.edges.back() > 0) tick(PlaceOf(bins, 0, pitch), "0");
    return svg;
  }
  // The ends, and zero where it does not lie at one.
  const bool has_negative = bins.edges.front() < 0;
  const bool has_positive = bins.edges.back() > 0;
  tick(kBinsLeft + (has_negative ? 0 : pitch / 2), EdgeText(bins.edges.front()));
  tick(kBinsRight - (has_positive ? 0 : pitch / 2), EdgeText(bins.edges.back()));
  if (has_negative && has_positive) {
    tick((kBinsLeft + kBinsRight) / 2, "0");
  } else if (bins.edges.size() > 8) {
    const size_t middle = bins.edges.size() / 2;
    tick(kBinsLeft + static_cast<double>(middle) * pitch, EdgeText(bins.edges[middle]));
  }
  return svg;
}

}  // namespace

std::string HistogramSvg(const HistogramChart& chart) {
  std::string svg = SvgBegin(kHistogramWidth, kHistogramHeight, "histogram", chart.title, chart.description);
  const HistogramBins& bins = chart.bins;
  if (bins.counts.empty()) {
    return svg + SvgText(kHistogramWidth / 2, kHistogramHeight / 2, "label", Anchor::kMiddle, "no finite values") +
           "</svg>\n";
  }
  const uint64_t highest = *std::max_element(bins.counts.begin(), bins.counts.end());
  const Axis axis = LinearAxis(0, static_cast<double>(highest), AxisUnit::kInteger, 4, /*rounded=*/true);
  const auto y_of = [&](double count) { return kBinsBottom - axis.Position(count) * (kBinsBottom - kBinsTop); };
  for (size_t i = 0; i < axis.ticks.size(); ++i) {
    svg += SvgLine(kBinsLeft, y_of(axis.ticks[i]), kBinsRight, y_of(axis.ticks[i]), "grid");
    svg += SvgText(kBinsLeft - 6, y_of(axis.ticks[i]) + 4, "tick", Anchor::kEnd, axis.labels[i]);
  }
  const double pitch = (kBinsRight - kBinsLeft) / static_cast<double>(bins.counts.size());
  for (size_t i = 0; i < bins.counts.size(); ++i) {
    const double y = y_of(static_cast<double>(bins.counts[i]));
    const double x = kBinsLeft + static_cast<double>(i) * pitch;
    if (bins.counts[i] > 0) {
      // A single number among millions is seen, too.
      const double top = std::min(y, kBinsBottom - 1);
      const double width = std::min(pitch * 0.9, 40.0);
      svg += SvgRect(IsOneValue(bins) ? x + (pitch - width) / 2 : x, top, width, kBinsBottom - top, "s0");
    }
    svg += SvgRect(x, kBinsTop, pitch, kBinsBottom - kBinsTop, "hover", BinText(bins, i));
  }
  svg += SvgLine(kBinsLeft, kBinsBottom, kBinsRight, kBinsBottom, "axis") + XTicks(chart, pitch);
  svg += SvgText((kBinsLeft + kBinsRight) / 2, kHistogramHeight - 6, "label", Anchor::kMiddle,
                 chart.log ? "value, symmetric log" : "value");
  svg += SvgText(11, (kBinsTop + kBinsBottom) / 2, "label", Anchor::kMiddle, "numbers", -90);
  return svg + "</svg>\n";
}

}  // namespace tidemark::inspect
