// Table: rows of text in aligned columns.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TABLE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TABLE_H_

#include <string>
#include <string_view>
#include <vector>

#include "tools/checkpoint_inspect/console.h"

namespace tidemark::inspect {

// Thread-compatible. Cell texts are already escaped.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string title;
    Align align = Align::kLeft;
    // On a terminal that is too narrow for the table this column's cells are cut, to no less than kCutWidthMin. At most
    // one column of a table may be.
    bool may_cut = false;
  };
  static constexpr size_t kCutWidthMin = 12;
  struct Cell {
    std::string text;
    Colour colour = Colour::kNone;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Precondition: as many cells as columns.
  void AddRow(std::vector<Cell> cells) { rows_.push_back({.cells = std::move(cells)}); }

  // A line of its own under the last row, indented; it takes no part in the alignment.
  void AddNote(std::string note) { rows_.back().notes.push_back(std::move(note)); }

  // The heading and every row, each line after `indent` and without trailing spaces.
  std::string Format(const Console& console, std::string_view indent = "") const;

 private:
  struct Row {
    std::vector<Cell> cells;
    std::vector<std::string> notes;
  };
  std::vector<Column> columns_;
  std::vector<Row> rows_;
};

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_TABLE_H_
