#include "tools/checkpoint_inspect/output/table.h"

#include <algorithm>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

constexpr std::string_view kGap = "  ";

// A column that is cut or wrapped shrinks to this width, or to its widest word, before another column is left out.
constexpr size_t kNarrowMin = 12;
constexpr size_t kNarrowMax = 40;

size_t WidestWord(std::string_view text) {
  size_t widest = 0;
  while (!text.empty()) widest = std::max(widest, DisplayWidth(TakeLine(&text, 1)));
  return widest;
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
    if (columns_[i].narrow != Narrow::kWhole) widest_word_ = std::max(widest_word_, WidestWord(text));
    texts_ += text;
    places_.push_back(
        {.bytes = static_cast<uint32_t>(text.size()), .width = static_cast<uint32_t>(width), .colour = colour});
  }
}

Table::Layout Table::Fit(const Console& console, size_t indent) const {
  Layout layout(widths_.begin(), widths_.end());
  if (!console.terminal()) return layout;
  const auto flexible = std::find_if(columns_.begin(), columns_.end(),
                                     [](const Column& column) { return column.narrow != Narrow::kWhole; });
  const auto place = static_cast<size_t>(flexible - columns_.begin());
  const bool is_flexible = flexible != columns_.end();
  const auto total = [&] {
    size_t sum = indent;
    for (const std::optional<size_t>& width : layout) {
      if (width) sum += *width + (sum > indent ? kGap.size() : 0);
    }
    return sum;
  };
  if (is_flexible && total() > console.columns()) {
    layout[place] = std::min(widths_[place], std::clamp(widest_word_, kNarrowMin, kNarrowMax));
  }
  while (total() > console.columns()) {
    size_t least = columns_.size();
    for (size_t i = 0; i < columns_.size(); ++i) {
      if (!layout[i] || columns_[i].drop == 0) continue;
      if (least == columns_.size() || columns_[i].drop < columns_[least].drop) least = i;
    }
    if (least == columns_.size()) break;
    layout[least].reset();
  }
  if (!is_flexible) return layout;
  const size_t others = total() - *layout[place];
  const size_t left = console.columns() > others ? console.columns() - others : 0;
  layout[place] = std::min(widths_[place], std::max(left, kNarrowMin));
  return layout;
}

size_t Table::AppendRow(const Console& console, const Layout& layout, size_t row, size_t begin, std::string_view indent,
                        std::string* out) const {
  size_t owed = 0;    // spaces that are written only if something follows
  size_t column = 0;  // where the cell begins
  size_t wrapped_at = 0;
  std::string_view wrapped;  // the rest of a cell that goes on in further lines
  size_t wrapped_width = 0;
  Colour wrapped_colour = Colour::kNone;
  *out += indent;
  for (size_t i = 0; i < columns_.size(); ++i) {
    const Place& place = places_[row * columns_.size() + i];
    std::string_view cell = std::string_view(texts_).substr(begin, place.bytes);
    begin += place.bytes;
    if (!layout[i]) continue;
    const size_t width = *layout[i];
    if (column > 0) owed += kGap.size();
    size_t cell_width = place.width;
    std::string cut;
    if (cell_width > width && columns_[i].narrow == Narrow::kWrap) {
      wrapped = cell;
      wrapped_at = column + (column > 0 ? kGap.size() : 0);
      wrapped_width = width;
      wrapped_colour = place.colour;
      cell = TakeLine(&wrapped, width);
    } else if (cell_width > width) {
      cut = ShortenAtWord(cell, width);
      cell = cut;
    }
    cell_width = DisplayWidth(cell);
    const size_t padding = width - std::min(cell_width, width);
    const bool right = columns_[i].align == Align::kRight;
    if (right) owed += padding;
    if (cell_width > 0) {
      out->append(owed, ' ');
      owed = 0;
      *out += console.Paint(cell, place.colour);
    }
    if (!right) owed += padding;
    column += (column > 0 ? kGap.size() : 0) + width;
  }
  out->push_back('\n');
  while (!wrapped.empty()) {
    *out += indent;
    out->append(wrapped_at, ' ');
    *out += console.Paint(TakeLine(&wrapped, wrapped_width), wrapped_colour);
    out->push_back('\n');
  }
  return begin;
}

void Table::Write(const Console& console, std::string_view indent,
                  absl::FunctionRef<void(std::string_view)> write) const {
  const Layout layout = Fit(console, indent.size());
  std::string out;
  size_t begin = 0;
  auto note = notes_.begin();
  for (size_t row = 0; row < rows(); ++row) {
    out.clear();
    begin = AppendRow(console, layout, row, begin, indent, &out);
    for (; note != notes_.end() && note->rows == row + 1; ++note) {
      out += console.Fold(fmt::format("{}  {}", indent, note->text), indent.size() + 4);
    }
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
