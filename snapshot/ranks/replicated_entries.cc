#include "snapshot/ranks/replicated_entries.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <queue>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/glob.h"

namespace tidemark {
namespace {

// Entries that lie in the same bytes, which are written once.
struct Group {
  std::vector<size_t> members;  // the first is the one that the others are tied to
  bool is_replicated = true;
};

// Groups that have one writer: a parameter, and what the optimizer keeps for it.
struct Unit {
  std::vector<size_t> entries;
  uint64_t bytes = 0;
  bool is_rank_0s = false;
};

// Without the length of a string or of bytes.
std::string Describe(const EntrySpec& spec) {
  const bool is_sized = spec.kind == EntryKind::kString || spec.kind == EntryKind::kBytes;
  return fmt::format("{}:{} {} {} [{}]\n", spec.name.size(), spec.name, static_cast<int>(spec.kind),
                     static_cast<int>(spec.dtype), is_sized ? "" : fmt::format("{}", fmt::join(spec.shape, ",")));
}

// What has one writer, the largest first. Appends the patterns that match no entry to `*without_entry`.
std::vector<Unit> UnitsOf(std::span<const State::Entry> entries, std::span<const std::string> patterns,
                          std::vector<std::string>* without_entry) {
  std::vector<bool> has_entry(patterns.size(), false);
  std::vector<Group> groups;
  std::vector<size_t> group_of(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const State::Entry& entry = entries[i];
    bool matches = false;
    for (size_t p = 0; p < patterns.size(); ++p) {
      if (!GlobMatches(patterns[p], entry.spec.name)) continue;
      matches = true;
      has_entry[p] = true;
    }
    if (entry.alias_of >= 0) {
      group_of[i] = group_of[static_cast<size_t>(entry.alias_of)];
    } else {
      group_of[i] = groups.size();
      groups.emplace_back();
    }
    Group& group = groups[group_of[i]];
    group.members.push_back(i);
    group.is_replicated = group.is_replicated && matches && entry.spec.whole();
  }
  for (size_t p = 0; p < patterns.size(); ++p) {
    if (!has_entry[p]) without_entry->push_back(patterns[p]);
  }
  std::vector<Unit> units;
  std::vector<size_t> unit_of(groups.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    if (!groups[g].is_replicated) continue;
    const State::Entry& first = entries[groups[g].members.front()];
    const size_t leader = first.staged_with < 0 ? g : group_of[static_cast<size_t>(first.staged_with)];
    const bool follows = leader != g && groups[leader].is_replicated;
    unit_of[g] = follows ? unit_of[leader] : units.size();
    if (!follows) units.emplace_back();
    Unit& unit = units[unit_of[g]];
    unit.entries.insert(unit.entries.end(), groups[g].members.begin(), groups[g].members.end());
    const bool is_tensor = first.spec.kind == EntryKind::kTensor;
    if (is_tensor) unit.bytes += first.bytes;  // the length of a value may differ from rank to rank
    unit.is_rank_0s = unit.is_rank_0s || !is_tensor || first.changes_early;
  }
  const auto name_of = [&](size_t entry) -> std::string_view { return entries[entry].spec.name; };
  for (Unit& unit : units) std::ranges::sort(unit.entries, {}, name_of);
  std::ranges::sort(units, [&](const Unit& a, const Unit& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : name_of(a.entries[0]) < name_of(b.entries[0]);
  });
  return units;
}

}  // namespace

ReplicatedEntries AssignWriters(std::span<const State::Entry> entries, std::span<const std::string> patterns,
                                int32_t world_size) {
  ReplicatedEntries out;
  out.writers.assign(entries.size(), ReplicatedEntries::kEveryRank);
  // Each to the rank that has the fewest bytes so far.
  using Load = std::pair<uint64_t, int32_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int32_t rank = 0; rank < world_size; ++rank) loads.emplace(0, rank);
  std::string structure;
  for (const Unit& unit : UnitsOf(entries, patterns, &out.without_entry)) {
    int32_t writer = 0;
    if (!unit.is_rank_0s) {
      const auto [bytes, rank] = loads.top();
      loads.pop();
      loads.emplace(bytes + unit.bytes, rank);
      writer = rank;
    }
    for (const size_t entry : unit.entries) {
      out.writers[entry] = writer;
      structure += fmt::format("{} {}", writer, Describe(entries[entry].spec));
    }
  }
  out.structure = storage::DigestOf(std::as_bytes(std::span(structure)));
  return out;
}

}  // namespace tidemark
