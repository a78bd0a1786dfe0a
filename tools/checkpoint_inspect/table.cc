#include "tools/checkpoint_inspect/table.h"

#include <algorithm>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/text.h"

namespace tidemark::inspect {
namespace {

constexpr std::string_view kGap = "  ";

std::string FormatLine(const Console& console, const std::vector<Table::Column>& columns,
                       const std::vector<size_t>& widths, const std::vector<Table::Cell>& cells,
                       std::string_view indent) {
  std::string line(indent);
  size_t owed = 0;  // spaces that are written only if something follows
  for (size_t i = 0; i < cells.size(); ++i) {
    if (i > 0) owed += kGap.size();
    const std::string text = Shorten(cells[i].text, widths[i]);
    const size_t padding = widths[i] - DisplayWidth(text);
    const bool right = columns[i].align == Table::Align::kRight;
    if (right) owed += padding;
    if (!text.empty()) {
      line.append(owed, ' ');
      owed = 0;
      line += console.Paint(text, cells[i].colour);
    }
    if (!right) owed += padding;
  }
  return line + "\n";
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
  std::string text = FormatLine(console, columns_, widths, heading, indent);
  for (const Row& row : rows_) {
    text += FormatLine(console, columns_, widths, row.cells, indent);
    for (const std::string& note : row.notes) text += fmt::format("{}  {}\n", indent, note);
  }
  return text;
}

}  // namespace tidemark::inspect
