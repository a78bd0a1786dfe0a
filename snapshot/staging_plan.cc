#include "snapshot/staging_plan.h"

#include <algorithm>

namespace tidemark {
namespace {

// A cache line: what vector instructions like, and what Snapshot::bytes promises.
constexpr uint64_t kSmallAlignment = 64;
// Entries this large begin at a page, so that their chunks can go to the disk without another copy.
constexpr uint64_t kLargeBytes = 64 * 1024;
constexpr uint64_t kLargeAlignment = 4096;
// Long enough that taking a run from the list costs nothing beside copying it (about 0.2 ms).
constexpr uint64_t kCopyRunBytes = 2 << 20;

uint64_t AlignUp(uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

}  // namespace

StagingPlan::StagingPlan(const State& state) : structure_version_(state.structure_version()) {
  const std::span<const State::Entry> entries = state.entries();
  specs_.reserve(entries.size());
  placements_.reserve(entries.size());
  by_name_.reserve(entries.size());
  uint64_t run_bytes = 0;
  const auto add_piece = [&](size_t entry, uint64_t begin, uint64_t bytes) {
    if (runs_.empty() || run_bytes + bytes > kCopyRunBytes) {
      runs_.push_back(pieces_.size());
      run_bytes = 0;
    }
    pieces_.push_back({entry, begin, bytes});
    run_bytes += bytes;
  };
  for (size_t i = 0; i < entries.size(); ++i) {
    const State::Entry& entry = entries[i];
    specs_.push_back(entry.spec);
    by_name_.emplace(specs_.back().name, i);
    if (entry.alias_of >= 0) {
      placements_.push_back(placements_[static_cast<size_t>(entry.alias_of)]);
      placements_.back().alias_of = entry.alias_of;
      continue;
    }
    total_bytes_ = AlignUp(total_bytes_, entry.bytes >= kLargeBytes ? kLargeAlignment : kSmallAlignment);
    placements_.push_back({.offset = total_bytes_, .bytes = entry.bytes});
    total_bytes_ += entry.bytes;
    if (entry.bytes == 0) continue;
    if (entry.spec.kind != EntryKind::kTensor || entry.changes_early) {
      early_entries_.push_back(i);
    } else if (entry.host == nullptr) {
      device_tensors_.push_back(i);
    } else {
      for (uint64_t begin = 0; begin < entry.bytes; begin += kCopyRunBytes) {
        add_piece(i, begin, std::min(kCopyRunBytes, entry.bytes - begin));
      }
    }
  }
  runs_.push_back(pieces_.size());
}

int64_t StagingPlan::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? -1 : static_cast<int64_t>(found->second);
}

}  // namespace tidemark
