#include "tools/checkpoint_inspect/table.h"

#include <algorithm>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/text.h"

namespace tidemark::inspect {
namespace {

constexpr std::string_view kGap = "  ";

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

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)), widths_(columns_.size()) {
  std::vector<Cell> heading;
  for (const Column& column : columns_) heading.push_back({column.title, Colour::kHeading});
  AddRow(heading);
}

void Table::AddRow(std::span<const Cell> cells) {
  for (size_t i = 0; i < cells.size(); ++i) {
    const auto& [text, colour] = cells[i];
    const size_t width = DisplayWidth(text);
    widths_[i] = std::max(widths_[i], width);
    texts_ += text;
    places_.push_back(
        {.bytes = static_cast<uint32_t>(text.size()), .width = static_cast<uint32_t>(width), .colour = colour});
  }
}

size_t Table::AppendRow(const Console& console, const std::vector<size_t>& widths, size_t row, size_t begin,
                        std::string* out) const {
  size_t owed = 0;  // spaces that are written only if something follows
  for (size_t i = 0; i < columns_.size(); ++i) {
    if (i > 0) owed += kGap.size();
    const Place& place = places_[row * columns_.size() + i];
    const size_t padding = widths[i] - std::min<size_t>(place.width, widths[i]);
    const bool right = columns_[i].align == Align::kRight;
    if (right) owed += padding;
    if (place.width > 0) {
      out->append(owed, ' ');
      owed = 0;
      const std::string_view cell = std::string_view(texts_).substr(begin, place.bytes);
      *out += place.width > widths[i] ? console.Paint(Shorten(cell, widths[i]), place.colour)
                                      : console.Paint(cell, place.colour);
    }
    if (!right) owed += padding;
    begin += place.bytes;
  }
  out->push_back('\n');
  return begin;
}

void Table::Write(const Console& console, std::string_view indent,
                  absl::FunctionRef<void(std::string_view)> write) const {
  std::vector<size_t> widths = widths_;
  FitTerminal(console, columns_, indent.size(), &widths);
  std::string out;
  size_t begin = 0;
  auto note = notes_.begin();
  for (size_t row = 0; row < rows(); ++row) {
    out = indent;
    begin = AppendRow(console, widths, row, begin, &out);
    for (; note != notes_.end() && note->rows == row + 1; ++note) out += fmt::format("{}  {}\n", indent, note->text);
    write(out);
  }
}

std::string Table::Format(const Console& console, std::string_view indent) const {
  std::string out;
  Write(console, indent, [&](std::string_view lines) { out += lines; });
  return out;
}

void Table::Print(Console& console) const {
  Write(console, "", [&](std::string_view lines) { console.PrintData(lines); });
}

}  // namespace tidemark::inspect
