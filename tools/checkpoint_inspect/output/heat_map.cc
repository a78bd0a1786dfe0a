#include "tools/checkpoint_inspect/output/heat_map.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/output/html_page.h"
#include "tools/checkpoint_inspect/output/svg.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

using Kind = HeatCell::Kind;

constexpr double kRowHeight = 15;
constexpr double kCellWidthMin = 9;
constexpr double kCellWidthMax = 30;
constexpr double kMapWidth = 780;  // aimed at
constexpr size_t kNameColumns = 44;
constexpr double kCharacter = 6.3;  // about the width of one in a row's name
constexpr const char* kSameNumbersText = "other bytes, the same numbers";

// The end of a name tells more than its beginning.
std::string ShortName(const std::string& name) {
  const std::string escaped = Escape(name);
  const size_t width = DisplayWidth(escaped);
  if (width <= kNameColumns) return escaped;
  std::string_view end = escaped;
  for (size_t left = width; left >= kNameColumns; --left) {
    // Bytes 10xxxxxx continue a character.
    do end.remove_prefix(1);
    while (!end.empty() && (static_cast<unsigned char>(end[0]) & 0xC0) == 0x80);
  }
  return "…" + std::string(end);
}

std::string CellClass(const HeatCell& cell, const HeatScale& scale) {
  switch (cell.kind) {
    case Kind::kAbsent:
      return "";
    case Kind::kUnchanged:
      return "same";
    case Kind::kSameNumbers:
      return "equal";
    case Kind::kChanged:
      return LevelClass(LevelOf(scale, cell.value), scale.edges.size() - 1);
    case Kind::kFromZero:
      return "fromzero";
    case Kind::kNotFinite:
      return "nonfinite";
    case Kind::kNotRead:
      return "unread";
  }
  return "";
}

std::string CellText(const HeatCell& cell) {
  switch (cell.kind) {
    case Kind::kAbsent:
      return "absent";
    case Kind::kUnchanged:
      return "unchanged";
    case Kind::kSameNumbers:
      return kSameNumbersText;
    case Kind::kChanged:
      return fmt::format("{:.3g}", cell.value) +
             (cell.left_out == 0 ? "" : fmt::format(", without {} of {} tensors", cell.left_out, cell.of));
    case Kind::kFromZero:
      return "all zeros before";
    case Kind::kNotFinite:
      return "NaN or infinite";
    case Kind::kNotRead:
      return "not read";
  }
  return "";
}

bool HasKind(const HeatMap& map, Kind kind) {
  return std::any_of(map.cells.begin(), map.cells.end(), [kind](const HeatCell& cell) { return cell.kind == kind; });
}

}  // namespace

HeatScale ScaleOf(const std::vector<HeatCell>& cells) {
  double low = std::numeric_limits<double>::infinity();
  double high = 0;
  for (const HeatCell& cell : cells) {
    if (cell.kind != Kind::kChanged) continue;
    low = std::min(low, cell.value);
    high = std::max(high, cell.value);
  }
  if (high == 0) return {.edges = {0.1, 1}};
  int parts = 4;  // of a power of ten
  const auto first = [&] { return static_cast<int>(std::floor(std::log10(low) * parts + 1e-9)); };
  const auto last = [&] { return static_cast<int>(std::floor(std::log10(high) * parts + 1e-9)) + 1; };
  while (parts > 1 && last() - first() > static_cast<int>(kHeatLevels)) parts /= 2;
  HeatScale scale;
  const int begin = std::max(first(), last() - static_cast<int>(kHeatLevels));
  for (int i = begin; i <= last(); ++i) {
    // What is above the largest double would be an infinity.
    const double edge = std::pow(10, static_cast<double>(i) / parts);
    scale.edges.push_back(std::min(edge, std::numeric_limits<double>::max()));
  }
  return scale;
}

size_t LevelOf(const HeatScale& scale, double value) {
  const auto above = std::upper_bound(scale.edges.begin(), scale.edges.end(), value * (1 + 1e-9));
  const auto level = std::distance(scale.edges.begin(), above) - 1;
  return static_cast<size_t>(std::clamp<ptrdiff_t>(level, 0, static_cast<ptrdiff_t>(scale.edges.size()) - 2));
}

std::string LevelClass(size_t level, size_t levels) {
  return fmt::format("h{}", levels < 2 ? kHeatLevels / 2 : level * (kHeatLevels - 1) / (levels - 1));
}

std::string HeatMapSvg(const HeatMap& map) {
  size_t longest = 1;
  for (const std::string& row : map.rows) longest = std::max(longest, DisplayWidth(ShortName(row)));
  const double left = static_cast<double>(longest) * kCharacter + 14;
  const size_t columns = map.columns.size();
  const double cell_width =
      std::clamp(kMapWidth / static_cast<double>(std::max<size_t>(columns, 1)), kCellWidthMin, kCellWidthMax);
  const double bottom = 6 + kRowHeight * static_cast<double>(map.rows.size());
  size_t widest = 1;
  for (const std::string& column : map.columns) widest = std::max(widest, column.size());
  const double label_height = static_cast<double>(widest) * kCharacter + 10;
  const double map_right = left + cell_width * static_cast<double>(columns);
  // Room for the axis label, however few columns there are.
  const double width = std::max(map_right, left + static_cast<double>(map.x_label.size()) * kCharacter) + 12;
  const HeatScale scale = ScaleOf(map.cells);
  std::string svg = SvgBegin(width, bottom + label_height + 26, "heat", map.title, map.description);
  for (size_t row = 0; row < map.rows.size(); ++row) {
    const double y = 6 + kRowHeight * static_cast<double>(row);
    svg += SvgText(left - 8, y + 11.5, "row", Anchor::kEnd, ShortName(map.rows[row]));
    for (size_t column = 0; column < columns; ++column) {
      const HeatCell& cell = map.cells[row * columns + column];
      if (cell.kind == Kind::kAbsent) continue;
      svg += SvgRect(left + cell_width * static_cast<double>(column), y, cell_width - 1, kRowHeight - 1,
                     CellClass(cell, scale),
                     fmt::format("{}\n{}: {}", Escape(map.rows[row]), map.hovers[column], CellText(cell)));
    }
  }
  // Turned text is as high as wide text is: some 13 units apart.
  const auto every = static_cast<size_t>(std::ceil(13 / cell_width));
  for (size_t column = 0; column < columns; column += every) {
    const double x = left + cell_width * (static_cast<double>(column) + 0.5);
    svg += SvgText(x + 4, bottom + 8, "tick", Anchor::kEnd, map.columns[column], -90);
  }
  const bool is_wide = static_cast<double>(map.x_label.size()) * kCharacter > map_right - left;
  svg += SvgText(is_wide ? left : (left + map_right) / 2, bottom + label_height + 20, "label",
                 is_wide ? Anchor::kStart : Anchor::kMiddle, map.x_label);
  return svg + "</svg>\n";
}

std::string HeatLegend(const HeatMap& map) {
  const auto item = [](std::string_view css_class, const std::string& text) {
    return fmt::format("<li><span class=\"swatch {}\"></span>{}</li>", css_class, HtmlEscape(text));
  };
  std::string legend = "<ul class=\"legend\">";
  if (HasKind(map, Kind::kUnchanged)) legend += item("same", "unchanged");
  if (HasKind(map, Kind::kSameNumbers)) legend += item("equal", kSameNumbersText);
  if (HasKind(map, Kind::kChanged)) {
    const HeatScale scale = ScaleOf(map.cells);
    const size_t levels = scale.edges.size() - 1;
    for (size_t i = 0; i < levels; ++i) {
      const bool is_first = i == 0 && levels == kHeatLevels;
      legend += item(LevelClass(i, levels),
                     is_first ? "< " + EdgeText(scale.edges[1])
                              : fmt::format("{} – {}", EdgeText(scale.edges[i]), EdgeText(scale.edges[i + 1])));
    }
  }
  if (HasKind(map, Kind::kFromZero)) legend += item("fromzero", "all zeros before");
  if (HasKind(map, Kind::kNotFinite)) legend += item("nonfinite", "NaN or infinite");
  if (HasKind(map, Kind::kNotRead)) legend += item("unread", "not read");
  return legend + "</ul>\n";
}

}  // namespace tidemark::inspect
