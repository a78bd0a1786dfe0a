#include "storage/shard/format/entry_names.h"

#include <algorithm>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "storage/shard/format/box_overlap.h"

namespace tidemark::storage {
namespace {

bool IsBox(const EntrySpec& spec) { return spec.kind == EntryKind::kTensor && !spec.whole(); }

std::string BoxOf(const EntrySpec& spec) { return DescribeBox(spec.box_offset, spec.box_extent); }

// `entries`: all entries of one name, ascending.
std::optional<NameConflict> ConflictOf(const std::vector<size_t>& entries,
                                       absl::FunctionRef<const EntrySpec&(size_t)> spec_of) {
  std::vector<const EntrySpec*> specs;
  specs.reserve(entries.size());
  const EntrySpec& first = spec_of(entries.front());
  for (const size_t entry : entries) {
    const EntrySpec& spec = spec_of(entry);
    NameConflict conflict{.entry = entry, .earlier = entries.front(), .is_of_boxes = IsBox(first) && IsBox(spec)};
    if (entry != entries.front() && !conflict.is_of_boxes) {
      conflict.why = "another entry has the same name";
      return conflict;
    }
    if (spec.dtype != first.dtype || spec.shape != first.shape) {
      conflict.why = fmt::format("it is {}, and entry {} of that name is {}", DescribeEntry(spec), conflict.earlier,
                                 DescribeEntry(first));
      return conflict;
    }
    specs.push_back(&spec);
  }
  const BoxOverlap found = FindOverlap(specs);
  if (std::holds_alternative<NotToldApart>(found)) {
    return NameConflict{
        .entry = entries.back(),
        .earlier = entries.front(),
        .is_of_boxes = true,
        .why = fmt::format("its {} boxes lie so that it takes too long to tell them apart", entries.size())};
  }
  if (const auto* pair = std::get_if<std::pair<size_t, size_t>>(&found)) {
    const auto [earlier, later] = *pair;
    const bool are_same = specs[later]->box_offset == specs[earlier]->box_offset &&
                          specs[later]->box_extent == specs[earlier]->box_extent;
    return NameConflict{
        .entry = entries[later],
        .earlier = entries[earlier],
        .is_of_boxes = true,
        .why = are_same ? fmt::format("its box {} is that of entry {}, too", BoxOf(*specs[later]), entries[earlier])
                        : fmt::format("its box {} overlaps with {} of entry {}", BoxOf(*specs[later]),
                                      BoxOf(*specs[earlier]), entries[earlier])};
  }
  return std::nullopt;
}

}  // namespace

std::string DescribeBox(std::span<const int64_t> offset, std::span<const int64_t> extent) {
  std::vector<std::string> ranges;
  for (size_t d = 0; d < extent.size(); ++d) ranges.push_back(fmt::format("{}:{}", offset[d], offset[d] + extent[d]));
  return fmt::format("[{}]", fmt::join(ranges, ", "));
}

bool EntryNames::Add(std::string_view name) {
  const auto [first, is_new] = first_.Add(name, count_);
  if (!is_new) repeated_.emplace_back(*first, count_);
  ++count_;
  return is_new;
}

std::optional<NameConflict> EntryNames::FindConflict(absl::FunctionRef<const EntrySpec&(size_t)> spec_of) {
  std::sort(repeated_.begin(), repeated_.end());
  for (size_t begin = 0, end = 0; begin < repeated_.size(); begin = end) {
    std::vector<size_t> entries = {repeated_[begin].first};
    for (; end < repeated_.size() && repeated_[end].first == entries.front(); ++end) {
      entries.push_back(repeated_[end].second);
    }
    if (std::optional<NameConflict> conflict = ConflictOf(entries, spec_of)) return conflict;
  }
  return std::nullopt;
}

}  // namespace tidemark::storage
