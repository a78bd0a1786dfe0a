#include "tools/checkpoint_inspect/tensors/tensor_comparison.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "snapshot/glob.h"
#include "tools/checkpoint_inspect/tensors/tensor_stream.h"

namespace tidemark::inspect {
namespace {

// The entries with one name, on both sides.
struct Holders {
  std::string_view name;
  EntryNumbers a;
  EntryNumbers b;
};

// Parts of a tensor in an order that does not depend on which rank holds which.
void SortByBox(std::span<const StoredEntry> entries, EntryNumbers& held) {
  const auto key = [&](size_t i) {
    const EntrySpec& spec = entries[i].spec;
    return std::tie(spec.box_offset, spec.box_extent, entries[i].rank);
  };
  std::stable_sort(held.begin(), held.end(), [&](size_t left, size_t right) { return key(left) < key(right); });
}

// A box that is all of the shape may also have been given as one.
bool IsSameBox(const EntrySpec& a, const EntrySpec& b) {
  if (a.box_offset == b.box_offset && a.box_extent == b.box_extent) return true;
  const auto covers = [](const EntrySpec& spec) { return spec.whole() || spec.box_extent == spec.shape; };
  return covers(a) && covers(b);
}

bool HaveSameBoxes(std::span<const StoredEntry> a, std::span<const StoredEntry> b, const Holders& holders) {
  return std::equal(holders.a.begin(), holders.a.end(), holders.b.begin(), holders.b.end(),
                    [&](size_t left, size_t right) { return IsSameBox(a[left].spec, b[right].spec); });
}

void Match(std::span<const StoredEntry> a, std::span<const StoredEntry> b, Holders& holders,
           std::vector<EntryComparison>* matched) {
  const auto add = [&](Difference difference, EntryNumbers in_a, EntryNumbers in_b) -> EntryComparison& {
    EntryComparison& entry = matched->emplace_back();
    entry.name = holders.name;
    entry.difference = difference;
    entry.a = std::move(in_a);
    entry.b = std::move(in_b);
    return entry;
  };
  SortByBox(a, holders.a);
  SortByBox(b, holders.b);
  if (holders.b.empty()) {
    for (const size_t i : holders.a) add(Difference::kRemoved, {i}, {});
    return;
  }
  if (holders.a.empty()) {
    for (const size_t i : holders.b) add(Difference::kAdded, {}, {i});
    return;
  }
  if (!HaveSameBoxes(a, b, holders)) {
    add(Difference::kHeldDifferently, std::move(holders.a), std::move(holders.b));
    return;
  }
  for (size_t i = 0; i < holders.a.size(); ++i) {
    EntryComparison& entry = add(Difference::kSame, {holders.a[i]}, {holders.b[i]});
    const EntrySpec& old_spec = a[holders.a[i]].spec;
    const EntrySpec& new_spec = b[holders.b[i]].spec;
    entry.kind_differs = old_spec.kind != new_spec.kind;
    entry.dtype_differs = old_spec.dtype != new_spec.dtype;
    entry.shape_differs = old_spec.shape != new_spec.shape;
    if (entry.kind_differs || entry.dtype_differs || entry.shape_differs) entry.difference = Difference::kChanged;
  }
}

// Pairs that have to be read, each once.
struct Reading {
  std::vector<size_t> entries;                   // the first comparison with these bytes
  std::vector<std::pair<size_t, size_t>> twins;  // a later one, and the position in `entries` of the one like it
  uint64_t bytes = 0;
};

Reading PlanReading(std::span<const StoredEntry> a, std::span<const StoredEntry> b,
                    const std::vector<EntryComparison>& entries) {
  Reading reading;
  std::map<std::tuple<std::string_view, std::string_view, Dtype, Dtype>, size_t> known;
  for (size_t i = 0; i < entries.size(); ++i) {
    const EntryComparison& entry = entries[i];
    if (entry.a.size() != 1 || entry.b.size() != 1 || entry.shape_differs) continue;
    const StoredEntry& left = a[entry.a[0]];
    const StoredEntry& right = b[entry.b[0]];
    const bool has_digests = !left.digest.empty() && !right.digest.empty();
    if (!entry.dtype_differs && has_digests && left.digest == right.digest) continue;
    // What differs in dtype is known to differ; only numbers say how far.
    if (entry.dtype_differs && !AreComparable(left.spec, right.spec)) continue;
    if (has_digests && AreComparable(left.spec, right.spec)) {
      const auto key = std::make_tuple(std::string_view(left.digest), std::string_view(right.digest), left.spec.dtype,
                                       right.spec.dtype);
      const auto [found, is_new] = known.emplace(key, reading.entries.size());
      if (!is_new) {
        reading.twins.emplace_back(i, found->second);
        continue;
      }
    }
    reading.entries.push_back(i);
    reading.bytes += left.bytes + right.bytes;
  }
  return reading;
}

void TakeBlock(const StoredEntry& a, const StoredEntry& b, const TensorBlock& block, EntryComparison& entry) {
  const std::span<const std::byte> old_bytes = block.bytes[0];
  const std::span<const std::byte> new_bytes = block.bytes[1];
  if (!entry.dtype_differs && !old_bytes.empty() &&
      std::memcmp(old_bytes.data(), new_bytes.data(), old_bytes.size()) != 0) {
    entry.bytes_differ = true;
    entry.difference = Difference::kChanged;
  }
  if (!AreComparable(a.spec, b.spec)) return;
  if (entry.change == nullptr) entry.change = std::make_unique<TensorChange>();
  entry.change->Add(a.spec.dtype, old_bytes, b.spec.dtype, new_bytes, block.first_element);
}

}  // namespace

std::string_view DifferenceName(Difference difference) {
  switch (difference) {
    case Difference::kSame:
      return "same";
    case Difference::kRemoved:
      return "removed";
    case Difference::kAdded:
      return "added";
    case Difference::kHeldDifferently:
      return "held differently";
    case Difference::kChanged:
      return "changed";
  }
  return "";
}

std::vector<EntryComparison> MatchEntries(std::span<const StoredEntry> a, std::span<const StoredEntry> b,
                                          std::string_view glob) {
  absl::flat_hash_map<std::string_view, size_t> places;
  std::vector<Holders> names;  // in the order in which they are met
  const auto holders_of = [&](const StoredEntry& entry) -> Holders& {
    const auto [place, is_new] = places.emplace(entry.spec.name, names.size());
    if (is_new) names.emplace_back().name = entry.spec.name;
    return names[place->second];
  };
  const auto is_wanted = [&](const StoredEntry& entry) { return glob.empty() || GlobMatches(glob, entry.spec.name); };
  for (size_t i = 0; i < a.size(); ++i) {
    if (is_wanted(a[i])) holders_of(a[i]).a.push_back(i);
  }
  for (size_t i = 0; i < b.size(); ++i) {
    if (is_wanted(b[i])) holders_of(b[i]).b.push_back(i);
  }
  std::vector<EntryComparison> matched;
  matched.reserve(names.size());
  for (Holders& holders : names) Match(a, b, holders, &matched);
  return matched;
}

absl::Status CompareTensors(const TensorSource& a, const TensorSource& b, std::vector<EntryComparison>& entries,
                            const std::function<void(std::string_view name, uint64_t done, uint64_t total)>& progress) {
  const Reading reading = PlanReading(a.entries(), b.entries(), entries);
  if (reading.entries.empty()) return absl::OkStatus();
  Lane lanes[2];
  lanes[0].source = &a;
  lanes[1].source = &b;
  for (const size_t i : reading.entries) {
    lanes[0].entries.push_back(entries[i].a[0]);
    lanes[1].entries.push_back(entries[i].b[0]);
  }
  uint64_t done = 0;
  const absl::Status read = StreamTensors(lanes, [&](const TensorBlock& block) {
    EntryComparison& entry = entries[reading.entries[block.item]];
    TakeBlock(a.entries()[entry.a[0]], b.entries()[entry.b[0]], block, entry);
    done += block.bytes[0].size() + block.bytes[1].size();
    progress(entry.name, done, reading.bytes);
    return absl::OkStatus();
  });
  if (!read.ok()) return read;
  for (const auto& [twin, position] : reading.twins) {
    const EntryComparison& known = entries[reading.entries[position]];
    entries[twin].bytes_differ = known.bytes_differ;
    if (known.change != nullptr) entries[twin].change = std::make_unique<TensorChange>(*known.change);
    if (known.bytes_differ) entries[twin].difference = Difference::kChanged;
  }
  return absl::OkStatus();
}

}  // namespace tidemark::inspect
