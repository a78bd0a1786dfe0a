// Table: rows of text in aligned columns.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_TABLE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tools/checkpoint_inspect/cli/console.h"

namespace tidemark::inspect {

// Thread-compatible. Cell texts are already escaped.
class Table {
 public:
  enum class Align { kLeft, kRight };
  // The treatment of a column's cells on a terminal that is too narrow for the table.
  enum class Narrow {
    kWhole,  // nothing
    kCut,    // they are cut, behind a word where they can be
    kWrap,   // they go on in further lines, broken between words
  };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
    // At most one column of a table may be kCut or kWrap. It takes the width that the others leave.
    Narrow narrow = Narrow::kWhole;
    // On a terminal that is too narrow, columns are left out, those of the lowest number first. 0: never left out.
    int drop = 0;
  };
  struct Cell {
    std::string text;
    Colour colour = Colour::kNone;
  };

  explicit Table(std::vector<Column> columns);

  // Precondition: as many cells as columns, each of less than 4 GiB.
  void AddRow(std::initializer_list<Cell> cells) { AddRow(std::span(cells.begin(), cells.size())); }
  void AddRow(std::span<const Cell> cells);

  // Lines of its own under the last row, indented; it takes no part in the alignment.
  void AddNote(std::string note) { notes_.push_back({.rows = rows(), .text = std::move(note)}); }

  // The heading and every row, each line after `indent` and without trailing spaces.
  std::string Format(const Console& console, std::string_view indent = "") const;

  // Prints what Format would return, row by row: of many rows that text is as long as all that is held of them.
  void Print(Console& console) const;

 private:
  // A cell whose text is in texts_.
  struct Place {
    uint32_t bytes;
    uint32_t width;  // in columns
    Colour colour;
  };
  struct Note {
    size_t rows;  // how many are above it
    std::string text;
  };

  size_t rows() const { return places_.size() / columns_.size(); }
  // Gives `write` every row, with the notes under it.
  void Write(const Console& console, std::string_view indent, absl::FunctionRef<void(std::string_view)> write) const;
  // The width of each column on the console; nullopt: it is left out.
  using Layout = std::vector<std::optional<size_t>>;
  Layout Fit(const Console& console, size_t indent) const;
  // Appends a row, and says where the texts of the next one begin.
  size_t AppendRow(const Console& console, const Layout& layout, size_t row, size_t begin, std::string_view indent,
                   std::string* out) const;

  std::vector<Column> columns_;
  std::vector<size_t> widths_;  // of the widest cell of each column, its title included
  size_t widest_word_ = 0;      // of the column that is cut or wrapped
  // Rows are many: the texts of all cells lie one after the other, the heading's before all others.
  std::string texts_;
  std::vector<Place> places_;  // row by row
  std::vector<Note> notes_;
};

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_TABLE_H_
