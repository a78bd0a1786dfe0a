#include "tools/checkpoint_inspect/report/report_charts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "absl/time/time.h"
#include "fmt/format.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/histogram_svg.h"
#include "tools/checkpoint_inspect/output/html_page.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// More would be less than a pixel apart.
constexpr size_t kPointsMax = 1000;
constexpr size_t kBarsMax = 120;
constexpr size_t kBins = 64;

// From this ratio of the highest to the lowest value on a logarithmic scale shows more.
constexpr double kLogRatioMin = 10;

struct MarkText {
  Mark mark;
  std::string_view legend;
  std::string_view hover;
};
constexpr MarkText kMarkTexts[] = {
    {Mark::kSaved, "saved", ""},
    {Mark::kDeleted, "deleted, or never saved", ""},
    {Mark::kDamaged, "damaged or lost", ""},
    {Mark::kPinned, "pinned", "pinned"},
    {Mark::kBest, "best", "best"},
    {Mark::kUnhealthy, "unhealthy, says an evaluator", "unhealthy"},
};

std::vector<Mark> MarksOf(const StepInfo& info) {
  std::vector<Mark> marks;
  switch (info.state) {
    case StepState::kCommitted:
      marks.push_back(Mark::kSaved);
      break;
    case StepState::kDeleted:
    case StepState::kUnsaved:
      marks.push_back(Mark::kDeleted);
      break;
    case StepState::kDamaged:
    case StepState::kLost:
      marks.push_back(Mark::kDamaged);
      break;
    case StepState::kFailed:
      break;
  }
  if (info.pinned) marks.push_back(Mark::kPinned);
  if (!info.unhealthy().empty()) marks.push_back(Mark::kUnhealthy);
  return marks;
}

std::string LegendItem(const std::string& icon, std::string_view text) {
  return fmt::format("<li>{}{}</li>", icon, HtmlEscape(text));
}

std::string HoverText(const StepInfo& info, const ReportMetric& metric, double value) {
  std::string text =
      fmt::format("step {}, {}\n{} = {}", info.step, StepStateName(info.state), Escape(metric.name), MetricText(value));
  if (metric.best == info.step && metric.mode) text += fmt::format("\nbest ({})", BestModeName(*metric.mode));
  if (info.pinned) text += "\n" + Escape(PinText(info));
  if (const std::string why = info.unhealthy(); !why.empty()) text += "\nunhealthy: " + Escape(why);
  if (!info.reason.empty()) text += "\n" + Escape(info.reason);
  return text;
}

bool IsSpecial(const ChartPoint& point) {
  return !std::isfinite(point.y) || std::any_of(point.marks.begin(), point.marks.end(), [](Mark mark) {
    return mark != Mark::kSaved && mark != Mark::kDeleted;
  });
}

// One quantity of a step, in a stack of them.
struct Series {
  std::string name;
  size_t colour = 0;
  std::function<double(const StepInfo& info)> value;
  std::string (*text)(double value);
};

std::string BytesText(double value) { return HumanBytes(static_cast<uint64_t>(value)); }
std::string SecondsText(double value) { return HumanDuration(absl::Seconds(value)); }

bool WasSaved(const StepInfo& info) {
  return info.state != StepState::kFailed && info.state != StepState::kUnsaved && info.logical_bytes > 0;
}

// A bar for each of the steps that were saved or, where these are too many, for each run of neighbours their mean.
// `line`: a quantity to draw over them, or null.
std::string BarsFigure(std::span<const StepInfo> steps, StackedBars chart, const std::vector<Series>& series,
                       const Series* line) {
  std::vector<const StepInfo*> saved;
  for (const StepInfo& info : steps) {
    if (WasSaved(info)) saved.push_back(&info);
  }
  if (saved.empty()) return "";
  const size_t run = (saved.size() + kBarsMax - 1) / kBarsMax;
  for (size_t begin = 0; begin < saved.size(); begin += run) {
    const size_t end = std::min(begin + run, saved.size());
    const auto mean = [&](const Series& one) {
      double sum = 0;
      for (size_t i = begin; i < end; ++i) sum += std::max(0.0, one.value(*saved[i]));
      return sum / static_cast<double>(end - begin);
    };
    Bar bar{.x = static_cast<double>(saved[begin]->step), .values = {}, .hover = {}};
    bar.hover = end - begin == 1
                    ? fmt::format("step {}", saved[begin]->step)
                    : fmt::format("steps {} to {}, mean of {}", saved[begin]->step, saved[end - 1]->step, end - begin);
    for (const Series& one : series) {
      bar.values.push_back(mean(one));
      bar.hover += fmt::format("\n{}: {}", Escape(one.name), one.text(bar.values.back()));
    }
    if (line != nullptr) {
      bar.line = mean(*line);
      bar.hover += fmt::format("\n{}: {}", line->name, line->text(bar.line));
    }
    chart.bars.push_back(std::move(bar));
  }
  std::string legend = "<ul class=\"legend\">";
  for (const Series& one : series) {
    chart.series.push_back(one.name);
    chart.colours.push_back(one.colour);
    legend += LegendItem(SeriesIcon(one.colour), one.name);
  }
  if (line != nullptr) {
    chart.line = line->name;
    legend += LegendItem(LineIcon(), line->name);
  }
  legend += "</ul>";
  const std::string note = run == 1 ? "" : fmt::format("<p class=\"soft\">Each bar is the mean of {} steps.</p>", run);
  return fmt::format("<figure><figcaption><h3>{}</h3></figcaption>\n{}{}{}</figure>\n", HtmlEscape(chart.title), legend,
                     StackedBarsSvg(chart), note);
}

}  // namespace

std::vector<ChartPoint> ThinOut(std::vector<ChartPoint> points, size_t points_max) {
  if (points.size() <= points_max) return points;
  const size_t runs = points_max / 2 - 1;
  const size_t last = points.size() - 1;
  std::vector<ChartPoint> kept;
  for (size_t run = 0; run < runs; ++run) {
    const size_t begin = run * points.size() / runs;
    const size_t end = (run + 1) * points.size() / runs;
    size_t lowest = end;
    size_t highest = end;
    for (size_t i = begin; i < end; ++i) {
      if (!std::isfinite(points[i].y)) continue;  // special
      if (lowest == end || points[i].y < points[lowest].y) lowest = i;
      if (highest == end || points[i].y > points[highest].y) highest = i;
    }
    for (size_t i = begin; i < end; ++i) {
      const bool is_end = i == 0 || i == last;
      if (is_end || i == lowest || i == highest || IsSpecial(points[i])) kept.push_back(std::move(points[i]));
    }
  }
  return kept;
}

std::string MarksLegend(std::span<const StepInfo> steps) {
  const auto has = [&](Mark mark) {
    return std::any_of(steps.begin(), steps.end(), [&](const StepInfo& info) {
      const std::vector<Mark> marks = MarksOf(info);
      return std::find(marks.begin(), marks.end(), mark) != marks.end();
    });
  };
  const bool not_finite = std::any_of(steps.begin(), steps.end(), [](const StepInfo& info) {
    return std::any_of(info.metrics.begin(), info.metrics.end(),
                       [](const auto& metric) { return !std::isfinite(metric.second); });
  });
  std::string legend = "<ul class=\"legend\">";
  for (const MarkText& text : kMarkTexts) {
    // Every chart of a metric with a finite value on a healthy step has one.
    if (text.mark == Mark::kBest || has(text.mark)) legend += LegendItem(MarkIcon(text.mark), text.legend);
  }
  if (not_finite) legend += LegendItem(NotFiniteIcon(), "NaN or infinite");
  return legend + "</ul>\n";
}

std::string MetricFigure(std::span<const StepInfo> steps, const ReportMetric& metric, size_t number) {
  LineChart chart{.title = fmt::format("{} by step", Escape(metric.name)),
                  .description = {},
                  .x_label = "step",
                  .y_label = Shorten(Escape(metric.name), 30),
                  .points = {}};
  // The same for all charts of a page, so that charts can be compared.
  if (!steps.empty()) {
    chart.x_range = {static_cast<double>(steps.front().step), static_cast<double>(steps.back().step)};
  }
  double low = std::numeric_limits<double>::infinity();
  double high = -low;
  size_t not_finite = 0;
  for (const StepInfo& info : steps) {
    const auto found = info.metrics.find(metric.name);
    if (found == info.metrics.end()) continue;
    const double value = found->second;
    if (std::isfinite(value)) {
      low = std::min(low, value);
      high = std::max(high, value);
    } else {
      ++not_finite;
    }
    ChartPoint point{.x = static_cast<double>(info.step),
                     .y = value,
                     .marks = MarksOf(info),
                     .hover = HoverText(info, metric, value)};
    if (metric.best == info.step) point.marks.push_back(Mark::kBest);
    chart.points.push_back(std::move(point));
  }
  const size_t count = chart.points.size();
  const std::string heading = fmt::format("<h3>{}</h3>", HtmlEscape(metric.name));
  if (count == 0) {
    return fmt::format(
        "<figure><figcaption>{}</figcaption><p class=\"soft\">None of the steps shown has it.</p></figure>\n", heading);
  }
  chart.description = fmt::format("{} values", count);
  if (low <= high) chart.description += fmt::format(" from {} to {}", MetricText(low), MetricText(high));
  if (not_finite > 0) chart.description += fmt::format(", {} of them NaN or infinite", not_finite);
  if (metric.best)
    chart.description += fmt::format("; best {} at step {}", MetricText(metric.best_value), *metric.best);
  chart.points = ThinOut(std::move(chart.points), kPointsMax);

  std::string note;
  if (chart.points.size() < count) {
    note = fmt::format(
        "<p class=\"soft\">{} of {} points drawn: the first, the last, and the minimum and maximum of each "
        "interval.</p>",
        chart.points.size(), count);
  }
  const std::string linear = LineChartSvg(chart);
  if (!(low > 0 && high / low >= kLogRatioMin)) {
    return fmt::format("<figure><figcaption>{}</figcaption>\n{}{}</figure>\n", heading, linear, note);
  }
  chart.log = true;
  return fmt::format(
      "<figure><input class=\"switch\" type=\"checkbox\" id=\"log{0}\"><label class=\"switch\" for=\"log{0}\">log "
      "scale</label><figcaption>{1}</figcaption>\n<div class=\"linear\">{2}</div>\n<div class=\"log\">{3}</div>{4}"
      "</figure>\n",
      number, heading, linear, LineChartSvg(chart), note);
}

std::string BytesFigure(std::span<const StepInfo> steps) {
  const std::vector<Series> series = {
      {"stored new", 0, [](const StepInfo& info) { return static_cast<double>(info.stored_bytes); }, BytesText},
      {"reused from earlier steps", 1, [](const StepInfo& info) { return static_cast<double>(info.reused_bytes); },
       BytesText},
  };
  const Series logical{"logical", 0, [](const StepInfo& info) { return static_cast<double>(info.logical_bytes); },
                       BytesText};
  return BarsFigure(steps,
                    {.title = "Bytes per step",
                     .description = "For each saved step the bytes in its own files and those that it shares with "
                                    "earlier steps, stacked, and its logical size as a line",
                     .x_label = "step",
                     .y_label = "bytes",
                     .unit = AxisUnit::kBytes,
                     .series = {},
                     .colours = {},
                     .line = {},
                     .bars = {}},
                    series, &logical);
}

std::string BlockedFigure(std::span<const StepInfo> steps, std::span<const BlockedPart> parts) {
  std::vector<Series> series;
  for (const BlockedPart& part : parts) {
    const auto seconds = [&part](const StepInfo& info) {
      const auto found = part.by_step.find(info.step);
      return found == part.by_step.end() ? 0 : absl::ToDoubleSeconds(found->second);
    };
    series.push_back({.name = part.name, .colour = part.colour, .value = seconds, .text = SecondsText});
  }
  return BarsFigure(steps,
                    {.title = "Blocked time per step",
                     .description = "For each saved step, how long Save blocked the trainer, by phase",
                     .x_label = "step",
                     .y_label = "time",
                     .unit = AxisUnit::kSeconds,
                     .series = {},
                     .colours = {},
                     .line = {},
                     .bars = {}},
                    series, nullptr);
}

std::string ChangesFigure(const ReportSurvey& survey) {
  HeatMap map{.title = "Relative change of tensors from step to step",
              .description = fmt::format("{} rows, {} steps", survey.rows.size(), survey.steps.size()),
              .x_label = "step, compared with the one to its left",
              .rows = survey.rows,
              .columns = {},
              .hovers = {},
              .cells = survey.cells};
  for (size_t i = 1; i < survey.steps.size(); ++i) {
    map.columns.push_back(fmt::format("{}", survey.steps[i]));
    map.hovers.push_back(fmt::format("step {} to {}", survey.steps[i - 1], survey.steps[i]));
  }
  return fmt::format("<figure>{}<div class=\"scroll\">{}</div></figure>\n", HeatLegend(map), HeatMapSvg(map));
}

std::string HistogramFigures(const ReportSurvey& survey) {
  std::string html = "<div class=\"grid small\">\n";
  for (const GroupHistogram& group : survey.histograms) {
    const FloatHistogram& numbers = group.histogram;
    if (group.tensors_read == 0) {
      html += fmt::format(
          "<figure><figcaption><h3><code>{}</code></h3></figcaption>\n<p class=\"soft\">not read: {} "
          "tensor{}</p></figure>\n",
          HtmlEscape(group.label), group.tensors, group.tensors == 1 ? "" : "s");
      continue;
    }
    HistogramChart chart{.title = fmt::format("Histogram of {}", Escape(group.label)), .description = {}, .bins = {}};
    chart.log = numbers.IsHeavyTailed();
    chart.bins = chart.log ? numbers.SymmetricLog(kBins) : numbers.Linear(kBins);
    chart.description = fmt::format("{} numbers from {:.4g} to {:.4g}", numbers.count(), numbers.min(), numbers.max());
    std::string note = fmt::format("{} numbers, {:.3g} to {:.3g}", numbers.count(), numbers.min(), numbers.max());
    if (numbers.zeros() > 0) note += fmt::format(", {} zeros", numbers.zeros());
    if (numbers.nan() > 0) note += fmt::format(", {} NaN", numbers.nan());
    if (numbers.infinite() > 0) note += fmt::format(", {} infinite", numbers.infinite());
    if (group.tensors_read < group.tensors) {
      note += fmt::format("; {} of {} tensors read", group.tensors_read, group.tensors);
    } else if (group.tensors > 1) {
      note += fmt::format("; {} tensors", group.tensors);
    }
    html +=
        fmt::format("<figure><figcaption><h3><code>{}</code></h3></figcaption>\n{}<p class=\"soft\">{}</p></figure>\n",
                    HtmlEscape(group.label), HistogramSvg(chart), HtmlEscape(note));
  }
  return html + "</div>\n";
}

}  // namespace tidemark::inspect
