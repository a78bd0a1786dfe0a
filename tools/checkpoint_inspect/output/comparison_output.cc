#include "tools/checkpoint_inspect/output/comparison_output.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// Names in JSON have no blanks.
std::string JsonName(Difference difference) {
  std::string name(DifferenceName(difference));
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

bool HasFigures(const EntryComparison& entry) {
  return entry.difference == Difference::kChanged && entry.change != nullptr;
}

// Of an element of the held box, row-major, its place in the whole tensor.
std::vector<int64_t> IndexOf(const EntrySpec& spec, uint64_t element) {
  const std::vector<int64_t>& extents = spec.held_shape();
  std::vector<int64_t> index(extents.size());
  for (size_t d = extents.size(); d-- > 0;) {
    index[d] = static_cast<int64_t>(element % static_cast<uint64_t>(extents[d]));
    element /= static_cast<uint64_t>(extents[d]);
    if (!spec.whole()) index[d] += spec.box_offset[d];
  }
  return index;
}

struct DifferenceMark {
  const char* text;
  Colour colour;
};

DifferenceMark MarkOf(Difference difference) {
  switch (difference) {
    case Difference::kRemoved:
      return {"-", Colour::kBad};
    case Difference::kAdded:
      return {"+", Colour::kGood};
    case Difference::kHeldDifferently:
      return {"?", Colour::kWarning};
    case Difference::kSame:
    case Difference::kChanged:
      break;
  }
  return {"~", Colour::kWarning};
}

std::string Both(const std::string& a, const std::string& b) { return a == b ? a : a + " -> " + b; }

std::string HoldersText(std::span<const StoredEntry> entries, const EntryNumbers& held) {
  std::vector<std::string> parts;
  for (const size_t i : held) parts.push_back(fmt::format("rank {} {}", entries[i].rank, ShapeText(entries[i].spec)));
  return fmt::format("{}", fmt::join(parts, "; "));
}

void AddFigures(const EntryComparison& entry, const EntrySpec& spec, std::vector<Table::Cell>* cells) {
  if (!HasFigures(entry)) {
    cells->resize(cells->size() + 4);
    return;
  }
  const TensorChange& change = *entry.change;
  const std::optional<double> cosine = change.Cosine();
  cells->push_back({MetricText(change.Relative())});
  // Nearly 1 between steps of one run: how nearly is what counts.
  cells->push_back({cosine ? fmt::format("{:.8f}", *cosine) : "-"});
  cells->push_back({MetricText(static_cast<double>(change.largest))});
  const bool has_place = change.largest > 0;
  cells->push_back({has_place ? fmt::format("[{}]", fmt::join(IndexOf(spec, change.largest_element), ", ")) : "-"});
}

size_t Count(std::span<const EntryComparison> entries, Difference difference) {
  return static_cast<size_t>(std::count_if(entries.begin(), entries.end(), [difference](const EntryComparison& entry) {
    return entry.difference == difference;
  }));
}

constexpr Difference kInSummary[] = {Difference::kChanged, Difference::kAdded, Difference::kRemoved,
                                     Difference::kHeldDifferently, Difference::kSame};

Json HeldToJson(std::span<const StoredEntry> entries, const EntryNumbers& held) {
  Json array = Json::array();
  for (const size_t i : held) array.push_back(ToJson(entries[i]));
  return array;
}

Json ChangeToJson(const EntryComparison& entry, const ComparedEntries& sides) {
  if (!HasFigures(entry)) return nullptr;
  const TensorChange& change = *entry.change;
  const std::optional<double> cosine = change.Cosine();
  const EntrySpec& spec = sides.b[entry.b[0]].spec;
  return {{"relative", NumberToJson(change.Relative())},
          {"norm", NumberToJson(change.Norm())},
          {"cosine", cosine ? NumberToJson(*cosine) : Json(nullptr)},
          {"largest", NumberToJson(static_cast<double>(change.largest))},
          {"largest_at", change.largest > 0 ? Json(IndexOf(spec, change.largest_element)) : Json(nullptr)},
          {"numbers", change.numbers},
          {"not_finite", change.not_finite}};
}

}  // namespace

void SortByChange(std::vector<EntryComparison>* entries) {
  const auto rank = [](const EntryComparison& entry) {
    if (!HasFigures(entry))
      return entry.difference == Difference::kChanged ? 3 : static_cast<int>(entry.difference) - 1;
    return entry.change->not_finite > 0 ? 4 : 5;
  };
  std::stable_sort(entries->begin(), entries->end(), [&](const EntryComparison& a, const EntryComparison& b) {
    if (rank(a) != rank(b)) return rank(a) < rank(b);
    return HasFigures(a) && a.change->Relative() > b.change->Relative();
  });
}

Table ComparisonTable(const Console& console, const ComparedEntries& sides, std::span<const EntryComparison> entries,
                      bool structure_only) {
  using enum Table::Align;
  std::vector<Table::Column> columns = {{""}, {"NAME"}, {"TYPE"}, {"SHAPE"}};
  if (!structure_only) {
    for (const char* title : {"CHANGE", "COSINE", "LARGEST"}) columns.push_back({title, kRight});
    columns.push_back({"AT"});
  }
  Table table(std::move(columns));
  for (const EntryComparison& entry : entries) {
    if (entry.difference == Difference::kSame) continue;
    const StoredEntry* a = entry.a.empty() ? nullptr : &sides.a[entry.a[0]];
    const StoredEntry* b = entry.b.empty() ? nullptr : &sides.b[entry.b[0]];
    const EntrySpec& old_spec = (a != nullptr ? a : b)->spec;
    const EntrySpec& new_spec = (b != nullptr ? b : a)->spec;
    const bool held_differently = entry.difference == Difference::kHeldDifferently;
    const DifferenceMark mark = MarkOf(entry.difference);
    std::vector<Table::Cell> cells = {
        {mark.text, mark.colour},
        {Escape(entry.name), mark.colour},
        {Both(TypeText(old_spec), TypeText(new_spec))},
        {held_differently ? "held differently" : Both(ShapeText(old_spec), ShapeText(new_spec))}};
    if (!structure_only) AddFigures(entry, new_spec, &cells);
    table.AddRow(cells);
    if (held_differently) {
      table.AddNote("A: " + HoldersText(sides.a, entry.a));
      table.AddNote("B: " + HoldersText(sides.b, entry.b));
    }
    if (HasFigures(entry) && entry.change->not_finite > 0) {
      table.AddNote(console.Paint(fmt::format("{} of {} numbers are NaN or infinite in A or B alone",
                                              entry.change->not_finite, entry.change->numbers),
                                  Colour::kBad));
    }
  }
  return table;
}

std::string FormatCounts(std::span<const EntryComparison> entries, bool structure_only) {
  std::vector<std::string> parts;
  for (const Difference difference : kInSummary) {
    const size_t count = Count(entries, difference);
    if (count == 0 && difference == Difference::kHeldDifferently) continue;
    parts.push_back(fmt::format("{} {}", count, DifferenceName(difference)));
  }
  return fmt::format("{}{}\n", fmt::join(parts, ", "), structure_only ? "; no tensor was read" : "");
}

Json CountsToJson(std::span<const EntryComparison> entries) {
  Json counts = Json::object();
  for (const Difference difference : kInSummary) {
    counts[JsonName(difference)] = Count(entries, difference);
  }
  return counts;
}

Json ToJson(const ComparedEntries& sides, const EntryComparison& entry) {
  Json differs_in = Json::array();
  if (entry.kind_differs) differs_in.push_back("kind");
  if (entry.dtype_differs) differs_in.push_back("dtype");
  if (entry.shape_differs) differs_in.push_back("shape");
  if (entry.bytes_differ) differs_in.push_back("bytes");
  return {{"name", entry.name},
          {"difference", JsonName(entry.difference)},
          {"differs_in", std::move(differs_in)},
          {"change", ChangeToJson(entry, sides)},
          {"a", HeldToJson(sides.a, entry.a)},
          {"b", HeldToJson(sides.b, entry.b)}};
}

}  // namespace tidemark::inspect
