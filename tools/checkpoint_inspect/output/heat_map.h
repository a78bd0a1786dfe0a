// HeatMap: how much each row changed from column to column, in colours of a logarithmic scale. Pure functions.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_HEAT_MAP_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_HEAT_MAP_H_

#include <cstddef>
#include <string>
#include <vector>

namespace tidemark::inspect {

struct HeatCell {
  enum class Kind {
    kAbsent,       // one of the two steps does not have it
    kUnchanged,    // the same bytes
    kSameNumbers,  // other bytes, and no number changed: zeros of the other sign
    kChanged,      // by `value`
    kFromZero,     // nothing but zeros before: no ratio tells the change
    kNotFinite,    // NaN or an infinity on either side
    kNotRead,      // left out
  };
  Kind kind = Kind::kAbsent;
  double value = 0;     // kChanged: > 0 and finite
  size_t of = 1;        // tensors that the row has in both steps
  size_t left_out = 0;  // those of them that the value does not count
};

struct HeatMap {
  std::string title;
  std::string description;
  std::string x_label;
  std::vector<std::string> rows;     // names
  std::vector<std::string> columns;  // below the map, where there is room
  std::vector<std::string> hovers;   // what each column is, for whoever points at a cell of it
  std::vector<HeatCell> cells;       // row by row: rows.size() times columns.size()
};

// The colours' scale: level i is for values in [edges[i], edges[i + 1]); what lies beyond either end is of the first or
// last level.
struct HeatScale {
  std::vector<double> edges;  // ascending; at least two, at most kHeatLevels + 1
};
inline constexpr size_t kHeatLevels = 8;
// Of all values of kChanged. Edges are powers of ten, of its square root or of its fourth root; where eight powers do
// not reach from the lowest to the highest, what is lower shares the first level.
HeatScale ScaleOf(const std::vector<HeatCell>& cells);

// Precondition: edges has at least two.
size_t LevelOf(const HeatScale& scale, double value);

// The css class of level i of `levels`: evenly spread over those of the page, "h0" to "h7".
std::string LevelClass(size_t level, size_t levels);

std::string HeatMapSvg(const HeatMap& map);
// HTML: what the colours mean, of those kinds of cells that there are.
std::string HeatLegend(const HeatMap& map);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_HEAT_MAP_H_
