#include "snapshot/restore/entry_match.h"

#include <algorithm>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/glob.h"
#include "snapshot/numbers/float_arrays.h"
#include "storage/io/printable_text.h"
#include "storage/shard/format/name_table.h"

namespace tidemark {
namespace {

// What keeps `saved` from going into `wanted`; empty if nothing does. The length of a string or blob is its own affair.
std::string Difference(const EntrySpec& saved, const EntrySpec& wanted, bool reads_boxes) {
  if (saved.kind != wanted.kind) {
    return fmt::format("kind: checkpoint has {}, state has {}", EntryKindName(saved.kind), EntryKindName(wanted.kind));
  }
  if (saved.kind != EntryKind::kTensor) return "";
  if (saved.dtype != wanted.dtype) {
    return fmt::format("dtype: checkpoint has {}, state has {}", GetDtypeInfo(saved.dtype).name,
                       GetDtypeInfo(wanted.dtype).name);
  }
  if (saved.shape != wanted.shape) {
    return fmt::format("shape: checkpoint has [{}], state has [{}]", fmt::join(saved.shape, ", "),
                       fmt::join(wanted.shape, ", "));
  }
  if (!wanted.whole() && !reads_boxes) return "the state holds only a part of it";
  if (!saved.whole()) return "the checkpoint holds only a part of it";
  return "";
}

bool AreSameBox(const EntrySpec& a, const EntrySpec& b) {
  return a.box_offset == b.box_offset && a.box_extent == b.box_extent;
}

// A pattern or rename with a slip in it must not pass for a restore of nothing.
void FindSlips(const storage::ShardIndex& index, const State& state, const RestoreOptions& options,
               const OtherEntries& others, const storage::NameMap<size_t>& saved,
               std::vector<std::string>& differences) {
  for (const std::string& pattern : options.only) {
    if (std::any_of(others.restored.begin(), others.restored.end(),
                    [&](const std::string& name) { return GlobMatches(pattern, name); })) {
      continue;
    }
    bool of_state = false;
    bool of_both = false;
    for (const State::Entry& entry : state.entries()) {
      if (of_both || !GlobMatches(pattern, entry.spec.name)) continue;
      of_state = true;
      of_both = saved.Contains(entry.spec.name);
    }
    if (!of_state) {
      differences.push_back(fmt::format("pattern '{}' matches no entry of the state", pattern));
    } else if (!of_both && options.allow_missing) {
      differences.push_back(fmt::format("pattern '{}' matches no entry that the checkpoint has", pattern));
    }
  }
  for (const auto& rename : options.renames) {
    if (std::none_of(index.entries.begin(), index.entries.end(),
                     [&](const storage::ShardEntry& entry) { return IsRenamedBy(entry.spec.name, rename); })) {
      differences.push_back(fmt::format("rename of '{}' matches no entry of the checkpoint", rename.first));
    }
  }
}

// Whether both are tensors of real floating-point numbers, which some states convert.
bool DiffersInPrecision(const EntrySpec& saved, const EntrySpec& wanted) {
  if (saved.kind != EntryKind::kTensor || wanted.kind != EntryKind::kTensor || saved.dtype == wanted.dtype)
    return false;
  return FloatLayoutOf(saved.dtype).numbers == 1 && FloatLayoutOf(wanted.dtype).numbers == 1;
}

absl::Status DifferencesError(const std::vector<std::string>& differences, bool is_precision) {
  std::string message = fmt::format("the checkpoint does not fit the state, {} differences:", differences.size());
  for (const std::string& difference : differences) message += "\n  " + storage::PrintableText(difference);
  if (is_precision) message += "\nTorchState::set_converts_dtypes(true) converts floating-point tensors";
  return absl::InvalidArgumentError(message);
}

}  // namespace

bool IsWanted(std::string_view name, const RestoreOptions& options) {
  return options.only.empty() || std::any_of(options.only.begin(), options.only.end(),
                                             [&](const std::string& pattern) { return GlobMatches(pattern, name); });
}

std::vector<EntrySpec> RenamedSpecs(const storage::ShardIndex& index, const RestoreOptions& options) {
  std::vector<EntrySpec> specs;
  specs.reserve(index.entries.size());
  for (const storage::ShardEntry& entry : index.entries) {
    specs.push_back(entry.spec);
    if (!options.renames.empty()) specs.back().name = Renamed(entry.spec.name, options.renames);
  }
  return specs;
}

std::vector<bool> FindReplaced(const storage::ShardIndex& index, const std::vector<EntrySpec>& saved) {
  storage::NameSet renamed;
  for (size_t i = 0; i < saved.size(); ++i) {
    if (saved[i].name != index.entries[i].spec.name) renamed.Add(saved[i].name);
  }
  std::vector<bool> replaced(saved.size(), false);
  if (renamed.empty()) return replaced;
  for (size_t i = 0; i < saved.size(); ++i) {
    replaced[i] = saved[i].name == index.entries[i].spec.name && renamed.Contains(saved[i].name);
  }
  return replaced;
}

bool HaveSameBytes(const storage::ShardIndex& index, size_t a, size_t b) {
  const storage::ShardEntry& left = index.entries[a];
  const storage::ShardEntry& right = index.entries[b];
  if (left.chunk_count != right.chunk_count) return false;
  for (uint64_t i = 0; i < left.chunk_count; ++i) {
    if (index.chunks[left.first_chunk + i].digest != index.chunks[right.first_chunk + i].digest) return false;
  }
  return true;
}

absl::StatusOr<EntryMatch> MatchEntries(const storage::ShardIndex& index, const std::vector<EntrySpec>& saved,
                                        const State& state, const RestoreOptions& options, const OtherEntries& others) {
  EntryMatch match;
  std::vector<std::string> differences;
  bool is_precision = false;  // a difference is one of floating-point dtypes alone
  const std::vector<bool> replaced = FindReplaced(index, saved);
  storage::NameMap<size_t> by_name;
  by_name.Reserve(saved.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    if (replaced[i]) continue;
    const auto [first, is_new] = by_name.Add(saved[i].name, i);
    if (is_new) continue;
    // Boxes of one tensor, in a snapshot: the state can take none of them.
    if (index.entries[*first].spec.name == index.entries[i].spec.name) continue;
    differences.push_back(fmt::format("renamed twice: '{}' stands for '{}' and '{}'", saved[i].name,
                                      index.entries[*first].spec.name, index.entries[i].spec.name));
  }
  FindSlips(index, state, options, others, by_name, differences);
  std::vector<bool> used(saved.size(), false);
  const std::span<const State::Entry> entries = state.entries();
  constexpr size_t kNoSource = std::numeric_limits<size_t>::max();
  std::vector<size_t> source_of(entries.size(), kNoSource);  // of the first of a group of tied entries of the state
  match.pairs.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const State::Entry& entry = entries[i];
    if (!IsWanted(entry.spec.name, options)) continue;
    const size_t* const found = by_name.Find(entry.spec.name);
    if (found == nullptr) {
      match.missing.push_back(entry.spec.name);
      if (!options.allow_missing) {
        differences.push_back(
            fmt::format("missing in the checkpoint: '{}' {}", entry.spec.name, DescribeEntry(entry.spec)));
      }
      continue;
    }
    const size_t source = *found;
    used[source] = true;
    if (std::string difference = Difference(saved[source], entry.spec, others.reads_boxes); !difference.empty()) {
      differences.push_back(fmt::format("'{}': {}", entry.spec.name, difference));
      is_precision = is_precision || DiffersInPrecision(saved[source], entry.spec);
      continue;
    }
    const size_t root = entry.alias_of >= 0 ? static_cast<size_t>(entry.alias_of) : i;
    if (source_of[root] == kNoSource) {
      source_of[root] = source;
      match.pairs.push_back({source, i});
    } else if (!HaveSameBytes(index, source_of[root], source) || !AreSameBox(entry.spec, entries[root].spec)) {
      differences.push_back(fmt::format("'{}': it is tied to '{}' in the state, but they differ in the checkpoint",
                                        entry.spec.name, entries[root].spec.name));
    }
  }
  for (size_t i = 0; i < saved.size(); ++i) {
    if (used[i]) continue;
    match.unexpected.push_back(saved[i].name);
    const bool is_companions = !others.is_companions.empty() && others.is_companions[i];
    if (!options.only.empty() || options.allow_unexpected || is_companions) continue;
    differences.push_back(
        replaced[i] ? fmt::format("its name is taken by a rename, and it has no other: '{}' {}", saved[i].name,
                                  DescribeEntry(saved[i]))
                    : fmt::format("unexpected in the checkpoint: '{}' {}", saved[i].name, DescribeEntry(saved[i])));
  }
  if (!differences.empty()) return DifferencesError(differences, is_precision);
  return match;
}

}  // namespace tidemark
