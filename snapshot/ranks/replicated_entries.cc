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
  std::vector<size_t> members;
  uint64_t bytes = 0;
  bool is_replicated = true;
};

bool IsValue(const EntrySpec& spec) { return spec.kind != EntryKind::kTensor; }

// The length of a string or of bytes may differ from rank to rank.
std::string Describe(const EntrySpec& spec) {
  const bool is_sized = spec.kind == EntryKind::kString || spec.kind == EntryKind::kBytes;
  return fmt::format("{}:{} {} {} [{}]\n", spec.name.size(), spec.name, static_cast<int>(spec.kind),
                     static_cast<int>(spec.dtype), is_sized ? "" : fmt::format("{}", fmt::join(spec.shape, ",")));
}

}  // namespace

ReplicatedEntries AssignWriters(std::span<const State::Entry> entries, std::span<const std::string> patterns,
                                int32_t world_size) {
  ReplicatedEntries out;
  out.writers.assign(entries.size(), ReplicatedEntries::kEveryRank);
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
      groups.push_back({.members = {}, .bytes = entry.bytes});
    }
    Group& group = groups[group_of[i]];
    group.members.push_back(i);
    group.is_replicated = group.is_replicated && matches && entry.spec.whole();
  }
  for (size_t p = 0; p < patterns.size(); ++p) {
    if (!has_entry[p]) out.without_entry.push_back(patterns[p]);
  }
  std::erase_if(groups, [](const Group& group) { return !group.is_replicated; });
  const auto name_of = [&](size_t entry) -> std::string_view { return entries[entry].spec.name; };
  for (Group& group : groups) std::ranges::sort(group.members, {}, name_of);
  std::ranges::sort(groups, [&](const Group& a, const Group& b) {
    return a.bytes != b.bytes ? a.bytes > b.bytes : name_of(a.members[0]) < name_of(b.members[0]);
  });

  // The largest first, each to the rank that has the fewest bytes so far.
  using Load = std::pair<uint64_t, int32_t>;
  std::priority_queue<Load, std::vector<Load>, std::greater<>> loads;
  for (int32_t rank = 0; rank < world_size; ++rank) loads.emplace(0, rank);
  std::string structure;
  for (const Group& group : groups) {
    int32_t writer = 0;
    if (!IsValue(entries[group.members[0]].spec)) {
      const auto [bytes, rank] = loads.top();
      loads.pop();
      loads.emplace(bytes + group.bytes, rank);
      writer = rank;
    }
    for (const size_t member : group.members) {
      out.writers[member] = writer;
      structure += fmt::format("{} {}", writer, Describe(entries[member].spec));
    }
  }
  out.structure = storage::DigestOf(std::as_bytes(std::span(structure)));
  return out;
}

}  // namespace tidemark
