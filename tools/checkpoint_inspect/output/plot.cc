#include "tools/checkpoint_inspect/output/plot.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/output/dot_canvas.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

constexpr size_t kRowsPerLabel = 4;

// A range of an axis, and where a value lies in it, from 0 to 1.
struct Range {
  double low = 0;
  double high = 0;

  // By halves, for the distance of two finite numbers may be none.
  double Share(double value) const { return low == high ? 0 : (value / 2 - low / 2) / (high / 2 - low / 2); }
  double At(double share) const { return 2 * (low / 2 + share * (high / 2 - low / 2)); }
};

class Plot {
 public:
  Plot(const std::vector<PlotPoint>& points, const PlotOptions& options) : points_(points), options_(options) {
    bool any = false;
    for (const PlotPoint& point : points_) {
      if (!IsDrawn(point)) continue;
      const double value = Scaled(point.value);
      values_ = any ? Range{std::min(values_.low, value), std::max(values_.high, value)} : Range{value, value};
      any = true;
    }
    // A single value lies in the middle.
    if (values_.low == values_.high) {
      const double half = options_.log ? 1 : std::max(std::abs(values_.low) / 2, 1e-300);
      const double margin = values_.low == 0 ? 1 : half;
      constexpr double kMax = std::numeric_limits<double>::max();
      values_ = {std::max(values_.low - margin, -kMax), std::min(values_.high + margin, kMax)};
    }
    any_ = any;
    if (!points_.empty()) {
      steps_ = {static_cast<double>(points_.front().step), static_cast<double>(points_.back().step)};
    }
    for (size_t row = 0; row < options_.rows; ++row) label_columns_ = std::max(label_columns_, Label(row).size());
    // Labels, a space and the axis come first.
    columns_ = std::max<size_t>(options_.columns, label_columns_ + 12) - label_columns_ - 2;
  }

  std::string Format(const Console& console) const {
    std::string text = console.Paint(options_.title, Colour::kHeading) + "\n";
    if (!any_) return text + "  nothing to draw\n" + Legend(console);
    const DotCanvas canvas = Draw();
    for (size_t row = 0; row < options_.rows; ++row) {
      const std::string label = Label(row);
      AddLine(fmt::format("{:>{}} {}{}", label, label_columns_, label.empty() ? "│" : "┤", canvas.Row(row)), &text);
    }
    return text + Axis() + MarkLine(console) + Legend(console);
  }

 private:
  bool IsDrawn(const PlotPoint& point) const {
    return std::isfinite(point.value) && (!options_.log || point.value > 0);
  }
  double Scaled(double value) const { return options_.log ? std::log10(value) : value; }

  static void AddLine(std::string line, std::string* text) {
    while (line.ends_with(' ')) line.pop_back();
    *text += line + "\n";
  }

  // Of the value in the middle of the row; empty where the row has none.
  std::string Label(size_t row) const {
    if (!any_ || (row % kRowsPerLabel != 0 && row + 1 != options_.rows)) return "";
    const double value = values_.At(1 - static_cast<double>(row) / static_cast<double>(options_.rows - 1));
    // What is left of a sum that is 0 but for rounding.
    const bool is_zero = !options_.log && std::abs(value) < 1e-12 * (values_.high / 2 - values_.low / 2);
    return fmt::format("{:.4g}", options_.log ? std::pow(10, value) : is_zero ? 0 : value);
  }

  size_t ColumnOf(int64_t step) const {
    return static_cast<size_t>(
        std::lround(steps_.Share(static_cast<double>(step)) * static_cast<double>(columns_ - 1)));
  }

  DotCanvas Draw() const {
    DotCanvas canvas(columns_, options_.rows);
    // The middle of the first and of the last character are the ends of an axis, as the labels say.
    const auto place = [](double share, size_t characters, size_t dots) {
      const double middle = static_cast<double>(dots - 1) / 2;
      return static_cast<size_t>(std::floor(middle + share * static_cast<double>((characters - 1) * dots)));
    };
    bool joins = false;
    size_t last_x = 0;
    size_t last_y = 0;
    for (const PlotPoint& point : points_) {
      const bool drawn = IsDrawn(point);
      if (drawn) {
        const size_t x = place(steps_.Share(static_cast<double>(point.step)), columns_, DotCanvas::kDotsAcross);
        const size_t y = place(1 - values_.Share(Scaled(point.value)), options_.rows, DotCanvas::kDotsDown);
        canvas.DrawLine(joins ? last_x : x, joins ? last_y : y, x, y);
        last_x = x;
        last_y = y;
      }
      joins = drawn;
    }
    return canvas;
  }

  // The axis of the steps with its labels: the first, the last, and the one in the middle where there is room for it.
  std::string Axis() const {
    std::vector<std::string> ticks(columns_, "─");
    std::string labels(columns_, ' ');
    const auto add = [&](int64_t step, size_t begin, const std::string& label) {
      ticks[ColumnOf(step)] = "┬";
      labels.replace(begin, label.size(), label);
    };
    const int64_t first_step = points_.front().step;
    const int64_t last_step = points_.back().step;
    const int64_t middle_step = first_step + (last_step - first_step) / 2;
    const std::string first = fmt::format("{}", first_step);
    const std::string last = fmt::format("{}", last_step);
    const std::string middle = fmt::format("{}", middle_step);
    const size_t middle_column = ColumnOf(middle_step);
    const size_t middle_begin = middle_column - std::min(middle_column, middle.size() / 2);
    const bool spreads = first != last && first.size() + last.size() + 2 <= columns_;
    const bool has_middle =
        spreads && middle_begin > first.size() + 1 && middle_begin + middle.size() + last.size() + 2 < columns_;
    if (has_middle) add(middle_step, middle_begin, middle);
    if (spreads) add(last_step, columns_ - last.size(), last);
    add(first_step, 0, first.substr(0, columns_));
    std::string text;
    std::string line = fmt::format("{:>{}} └", "", label_columns_);
    for (const std::string& tick : ticks) line += tick;
    AddLine(std::move(line), &text);
    AddLine(fmt::format("{:>{}}{}", "step ", label_columns_ + 2, labels), &text);
    return text;
  }

  std::string MarkLine(const Console& console) const {
    std::string marks(columns_, ' ');
    constexpr std::string_view kOrder = " x!*";
    const auto mark = [&](int64_t step, char kind) {
      char& place = marks[ColumnOf(step)];
      if (kOrder.find(kind) > kOrder.find(place)) place = kind;
    };
    for (const PlotPoint& point : points_) {
      if (point.deleted) mark(point.step, 'x');
      if (!IsDrawn(point)) mark(point.step, '!');
      if (point.step == options_.best) mark(point.step, '*');
    }
    while (marks.ends_with(' ')) marks.pop_back();
    if (marks.empty()) return "";
    std::string line = std::string(label_columns_ + 2, ' ');
    for (const char kind : marks) {
      const Colour colour = kind == '*' ? Colour::kGood : kind == '!' ? Colour::kBad : Colour::kNone;
      line += console.Paint(std::string(1, kind), kind == ' ' ? Colour::kNone : colour);
    }
    return line + "\n";
  }

  std::string Legend(const Console& console) const {
    std::string text;
    size_t width = 0;  // of the last line so far
    const auto add = [&](std::string_view kind, Colour colour, const std::string& what) {
      const size_t item = kind.size() + 1 + DisplayWidth(what);
      if (width > 0 && width + 3 + item > options_.columns) {
        text += "\n";
        width = 0;
      }
      const std::string_view gap = width == 0 ? "  " : "   ";
      text += fmt::format("{}{} {}", gap, console.Paint(kind, colour), what);
      width += gap.size() + item;
    };
    size_t deleted = 0;
    size_t not_finite = 0;
    size_t not_positive = 0;
    for (const PlotPoint& point : points_) {
      deleted += point.deleted ? 1 : 0;
      not_finite += std::isfinite(point.value) ? 0 : 1;
      not_positive += std::isfinite(point.value) && !IsDrawn(point) ? 1 : 0;
      if (point.step == options_.best) {
        add("*", Colour::kGood, fmt::format("best: {} at step {}", MetricText(point.value), point.step));
      }
    }
    if (not_finite > 0) add("!", Colour::kBad, fmt::format("NaN or infinite: {}", not_finite));
    if (not_positive > 0) add("!", Colour::kBad, fmt::format("not above 0, and has no logarithm: {}", not_positive));
    if (deleted > 0) add("x", Colour::kNone, fmt::format("deleted steps: {}", deleted));
    return text.empty() ? "" : text + "\n";
  }

  const std::vector<PlotPoint>& points_;
  const PlotOptions& options_;
  bool any_ = false;
  Range values_;
  Range steps_;
  size_t label_columns_ = 3;  // at least, for the word that stands below them
  size_t columns_ = 0;        // of the curve
};

}  // namespace

std::string FormatPlot(const Console& console, const std::vector<PlotPoint>& points, const PlotOptions& options) {
  return Plot(points, options).Format(console);
}

}  // namespace tidemark::inspect
