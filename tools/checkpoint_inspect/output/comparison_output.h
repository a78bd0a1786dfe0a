// How a comparison of two sources is told. Pure functions.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_COMPARISON_OUTPUT_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_COMPARISON_OUTPUT_H_

#include <span>
#include <string>
#include <vector>

#include "tidemark/step_reader.h"
#include "tools/checkpoint_inspect/cli/console.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/table.h"
#include "tools/checkpoint_inspect/tensors/tensor_comparison.h"

namespace tidemark::inspect {

// What was compared. Not owned.
struct ComparedEntries {
  std::span<const StoredEntry> a;
  std::span<const StoredEntry> b;
};

// What is no matter of numbers first, then numbers that are NaN or infinite on one side, then by relative change, the
// largest first.
void SortByChange(std::vector<EntryComparison>* entries);

// A row for each entry that is not the same. `structure_only`: without figures.
Table ComparisonTable(const Console& console, const ComparedEntries& sides, std::span<const EntryComparison> entries,
                      bool structure_only);

// "2 changed, 0 added, 0 removed, 7 same", with a newline at the end.
std::string FormatCounts(std::span<const EntryComparison> entries, bool structure_only);

// docs/checkpoint-inspect.md has what these are: "counts", and one of "entries".
Json CountsToJson(std::span<const EntryComparison> entries);
Json ToJson(const ComparedEntries& sides, const EntryComparison& entry);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_COMPARISON_OUTPUT_H_
