#include "tools/checkpoint_inspect/tensors/entry_selection.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/glob.h"

namespace tidemark::inspect {
namespace {

constexpr size_t kNearestMax = 3;
// Longer names are held against the pattern by their front alone: a store may have any number of them.
constexpr size_t kComparedMax = 256;

// The first of these that any name matches, and how many do; empty where there is none.
std::string WiderPattern(std::string_view glob, std::span<const std::string> names) {
  if (glob.size() > kComparedMax) return "";
  const std::set<std::string_view> distinct(names.begin(), names.end());
  for (const std::string& wider : {fmt::format("{}.*", glob), fmt::format("{}{}{}", glob.starts_with('*') ? "" : "*",
                                                                          glob, glob.ends_with('*') ? "" : "*")}) {
    const auto matching = std::count_if(distinct.begin(), distinct.end(),
                                        [&](std::string_view name) { return GlobMatches(wider, name); });
    if (matching > 0) return fmt::format("'{}' matches {}", wider, matching);
  }
  return "";
}

}  // namespace

std::string CheckGlob(const std::string& text) { return text.empty() ? "an empty pattern matches no entry" : ""; }

size_t DistanceFromGlob(std::string_view glob, std::string_view name) {
  // Of the front of the pattern so far, the distance of each front of the name.
  std::vector<size_t> row(name.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (const char letter : glob) {
    size_t diagonal = row[0];
    if (letter != '*') ++row[0];
    for (size_t n = 1; n <= name.size(); ++n) {
      const size_t above = row[n];
      if (letter == '*') {
        row[n] = std::min(above, row[n - 1]);
      } else {
        const size_t replaced = diagonal + (letter == '?' || letter == name[n - 1] ? 0 : 1);
        row[n] = std::min({replaced, above + 1, row[n - 1] + 1});
      }
      diagonal = above;
    }
  }
  return row[name.size()];
}

std::vector<std::string> NearestNames(std::string_view glob, std::span<const std::string> names) {
  std::vector<std::pair<size_t, std::string_view>> nearest;
  nearest.reserve(names.size());
  for (const std::string& name : names) {
    const std::string_view front = std::string_view(name).substr(0, kComparedMax);
    nearest.emplace_back(DistanceFromGlob(glob.substr(0, kComparedMax), front), name);
  }
  std::sort(nearest.begin(), nearest.end());
  nearest.erase(std::unique(nearest.begin(), nearest.end()), nearest.end());
  nearest.resize(std::min(nearest.size(), kNearestMax));
  std::vector<std::string> named;
  for (const auto& [distance, name] : nearest) named.emplace_back(name);
  return named;
}

absl::Status NothingMatches(std::string_view glob, std::span<const std::string> names, std::string_view where) {
  if (names.empty()) {
    return absl::NotFoundError(fmt::format("nothing in {} matches '{}'; it has no entries", where, glob));
  }
  if (const std::string wider = WiderPattern(glob, names); !wider.empty()) {
    return absl::NotFoundError(
        fmt::format("nothing in {} matches '{}'; a GLOB must match the whole name: {}", where, glob, wider));
  }
  return absl::NotFoundError(
      fmt::format("nothing in {} matches '{}'; nearest: {}", where, glob, fmt::join(NearestNames(glob, names), ", ")));
}

absl::StatusOr<std::vector<size_t>> SelectEntries(std::span<const StoredEntry> entries, std::string_view glob,
                                                  std::string_view where) {
  std::vector<size_t> selected;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (glob.empty() || GlobMatches(glob, entries[i].spec.name)) selected.push_back(i);
  }
  if (!selected.empty() || glob.empty()) return selected;
  std::vector<std::string> names;
  for (const StoredEntry& entry : entries) names.push_back(entry.spec.name);
  return NothingMatches(glob, names, where);
}

}  // namespace tidemark::inspect
