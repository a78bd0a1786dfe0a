#include "tools/checkpoint_inspect/table.h"

#include <algorithm>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/text.h"

namespace tidemark::inspect {
namespace {

constexpr std::string_view kGap = "  ";

void AppendLine(const Console& console, const std::vector<Table::Column>& columns, const std::vector<size_t>& widths,
                const std::vector<Table::Cell>& cells, std::string_view indent, std::string* text) {
  text->append(indent);
  size_t owed = 0;  // spaces that are written only if something follows
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) owed += kGap.size();
    const size_t width = DisplayWidth(cells[i].text);
    const size_t padding = widths[i] - std::min(width, widths[i]);
    const bool right = columns[i].align == Table::Align::kRight;
    if (right) owed += padding;
    if (width > 0) {
      text->append(owed, ' ');
      owed = 0;
      const auto& [cell, colour] = cells[i];
      *text += width > widths[i] ? console.Paint(Shorten(cell, widths[i]), colour) : console.Paint(cell, colour);
    }
    if (!right) owed += padding;
  }
  text->push_back('\n');
}

void FitTerminal(const Console& console, const std::vector<Table::Column>& columns, size_t indent,
                 std::vector<size_t>* widths) {
  if (!console.terminal()) return;
  size_t total = indent + kGap.size() * (widths->size() - 1);
  for (const size_t width : *widths) total += width;
  for (size_t i = 0; i < columns.size() && total > console.columns(); ++i) {
    if (!columns[i].may_cut || (*widths)[i] <= Table::kCutWidthMin) continue;
    (*widths)[i] -= std::min(total - console.columns(), (*widths)[i] - Table::kCutWidthMin);
  }
}

}  // namespace

std::string Table::Format(const Console& console, std::string_view indent) const {
  std::vector<size_t> widths;
  std::vector<Cell> heading;
  for (const Column& column : columns_) {
    widths.push_back(DisplayWidth(column.title));
    heading.push_back({column.title, Colour::kHeading});
  }
  for (const Row& row : rows_) {
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], DisplayWidth(row.cells[i].text));
  }
  FitTerminal(console, columns_, indent.size(), &widths);
  std::string text;
  AppendLine(console, columns_, widths, heading, indent, &text);
  for (const Row& row : rows_) {
    AppendLine(console, columns_, widths, row.cells, indent, &text);
    for (const std::string& note : row.notes) text += fmt::format("{}  {}\n", indent, note);
  }
  return text;
}

}  // namespace tidemark::inspect
