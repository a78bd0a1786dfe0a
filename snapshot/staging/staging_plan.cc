#include "snapshot/staging/staging_plan.h"

#include <algorithm>
#include <bit>

namespace tidemark {
namespace {

// A cache line: what vector instructions like, and what Snapshot::bytes promises.
constexpr uint64_t kSmallAlignment = 64;
// Entries this large begin at a page, so that their chunks can go to the disk without another copy.
constexpr uint64_t kLargeBytes = 64 * 1024;
constexpr uint64_t kLargeAlignment = 4096;
// Long enough that taking a run from the list costs nothing beside copying it (about 0.2 ms).
constexpr uint64_t kHostRunBytes = 2 << 20;
// Long enough that waiting for a device once for each run costs nothing (a few ms of copying).
constexpr uint64_t kDeviceRunBytes = 64 << 20;

uint64_t AlignUp(uint64_t value, uint64_t alignment) { return (value + alignment - 1) / alignment * alignment; }

// More than any machine has, and sums of it and an entry do not wrap.
constexpr uint64_t kTotalBytesMax = uint64_t{1} << 62;

// Memory for a snapshot is reused if it has the right size. So the total of a state with values that grow, such as a
// log, changes only 4 times while they double.
uint64_t SizedGranularity(uint64_t value_bytes) { return std::max(kLargeAlignment, std::bit_floor(value_bytes) / 4); }

uint64_t AlignmentOf(uint64_t bytes) { return bytes >= kLargeBytes ? kLargeAlignment : kSmallAlignment; }

bool IsSized(const EntrySpec& spec) { return spec.kind == EntryKind::kString || spec.kind == EntryKind::kBytes; }

}  // namespace

std::vector<size_t> StagingOrder(std::span<const State::Entry> entries) {
  std::vector<std::vector<size_t>> followers;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].staged_with < 0) continue;
    followers.resize(entries.size());
    followers[static_cast<size_t>(entries[i].staged_with)].push_back(i);
  }
  std::vector<size_t> order;
  order.reserve(entries.size());
  std::vector<size_t> next;  // a stack: a follower may have followers of its own
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].staged_with >= 0) continue;
    next.push_back(i);
    while (!next.empty()) {
      const size_t entry = next.back();
      next.pop_back();
      order.push_back(entry);
      if (!followers.empty()) next.insert(next.end(), followers[entry].rbegin(), followers[entry].rend());
    }
  }
  return order;
}

StagingPlan::StagingPlan(const State& state) : structure_version_(state.structure_version()) {
  const std::span<const State::Entry> entries = state.entries();
  specs_.reserve(entries.size());
  by_name_.Reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    specs_.push_back(entries[i].spec);
    by_name_.Add(specs_.back().name, i);
  }
  placements_.resize(entries.size());
  for (const size_t i : StagingOrder(entries)) {
    if (entries[i].alias_of < 0) Place(i, entries[i]);
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (entries[i].alias_of < 0) continue;
    placements_[i] = placements_[static_cast<size_t>(entries[i].alias_of)];
    placements_[i].alias_of = entries[i].alias_of;
  }
}

void StagingPlan::Place(size_t entry, const State::Entry& value) {
  if (IsSized(value.spec)) {
    placements_[entry].sized_value = static_cast<int64_t>(sized_values_.size());
    sized_values_.push_back(entry);
    return;
  }
  fixed_bytes_ = AlignUp(fixed_bytes_, AlignmentOf(value.bytes));
  const uint64_t offset = fixed_bytes_;
  placements_[entry] = {.offset = offset, .bytes = value.bytes};
  fixed_bytes_ = std::min(fixed_bytes_ + value.bytes, kTotalBytesMax);
  if (value.bytes == 0) return;
  if (value.spec.kind != EntryKind::kTensor || value.changes_early) {
    early_entries_.push_back(entry);
    early_bytes_ += value.bytes;
  } else if (value.host == nullptr) {
    AddToRuns(false, device_tensors_.size(), offset, value.bytes);
    device_tensors_.push_back(entry);
    device_bytes_ += value.bytes;
  } else {
    host_bytes_ += value.bytes;
    for (uint64_t begin = 0; begin < value.bytes; begin += kHostRunBytes) {
      const uint64_t bytes = std::min(kHostRunBytes, value.bytes - begin);
      AddToRuns(true, pieces_.size(), offset + begin, bytes);
      pieces_.push_back({entry, begin, bytes});
    }
  }
}

StagingPlan::SizedPlaces StagingPlan::PlaceSizedValues(std::span<const State::Entry> entries) const {
  SizedPlaces places{.of_values = {}, .value_bytes = 0, .total_bytes = fixed_bytes_};
  if (sized_values_.empty()) return places;
  places.of_values.reserve(sized_values_.size());
  uint64_t end = fixed_bytes_;
  for (const size_t entry : sized_values_) {
    const uint64_t bytes = entries[entry].bytes;
    end = AlignUp(end, AlignmentOf(bytes));
    places.of_values.push_back({.offset = end, .bytes = bytes});
    places.value_bytes += bytes;
    end = std::min(end + bytes, kTotalBytesMax);
  }
  places.total_bytes = AlignUp(end, SizedGranularity(end - fixed_bytes_));
  return places;
}

void StagingPlan::AddToRuns(bool on_host, size_t index, uint64_t begin, uint64_t bytes) {
  const uint64_t bytes_max = on_host ? kHostRunBytes : kDeviceRunBytes;
  if (runs_.empty() || runs_.back().on_host != on_host || last_run_bytes_ + bytes > bytes_max) {
    runs_.push_back({.on_host = on_host, .first = index, .last = index, .begin = begin});
    last_run_bytes_ = 0;
  }
  runs_.back().last = index + 1;
  last_run_bytes_ += bytes;
}

std::vector<uint64_t> StagingPlan::RunBegins() const {
  std::vector<uint64_t> begins;
  begins.reserve(runs_.size());
  for (const Run& run : runs_) begins.push_back(run.begin);
  return begins;
}

int64_t StagingPlan::Find(std::string_view name) const {
  const size_t* const found = by_name_.Find(name);
  return found == nullptr ? -1 : static_cast<int64_t>(*found);
}

}  // namespace tidemark
