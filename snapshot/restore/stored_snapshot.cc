#include "snapshot/restore/stored_snapshot.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "snapshot/consumers/companions.h"
#include "snapshot/consumers/filtered_snapshot.h"
#include "snapshot/numbers/half_precision.h"
#include "snapshot/restore/saved_entries.h"
#include "snapshot/staging/owned_snapshot.h"

namespace tidemark {
namespace {

// An entry of the step, and where it goes.
struct Wanted {
  size_t saved = 0;
  size_t index = 0;  // into the snapshot's entries
};

// What the snapshot will be: the wanted entries, those that are tied in the step tied.
OwnedSnapshot::Contents PlanContents(const storage::ShardIndex& index, int64_t step, const std::vector<size_t>& wanted,
                                     HalfPrecision half) {
  OwnedSnapshot::Contents contents{.step = step, .metrics = index.metrics, .user_metadata = index.user_metadata};
  std::unordered_map<uint64_t, int64_t> first_of_chunk;
  for (size_t saved : wanted) {
    const storage::ShardEntry& entry = index.entries[saved];
    int64_t alias = -1;
    if (entry.chunk_count > 0) {
      const auto here = static_cast<int64_t>(contents.entries.size());
      const auto [first, is_first] = first_of_chunk.emplace(entry.first_chunk, here);
      // Entries of other types in the same chunks are no tie that a conversion could keep.
      const auto owner = static_cast<size_t>(first->second);
      if (!is_first && contents.entries[owner].dtype == HalvedSpec(entry.spec, half).dtype) alias = first->second;
    }
    contents.entries.push_back(HalvedSpec(entry.spec, half));
    contents.alias_of.push_back(alias);
  }
  return contents;
}

// Reads entries and converts them, in batches.
absl::Status ReadHalved(const SavedEntries& saved, const std::vector<Wanted>& wanted, HalfPrecision half,
                        OwnedSnapshot& snapshot) {
  const std::vector<storage::ShardEntry>& entries = saved.index().entries;
  for (size_t begin = 0; begin < wanted.size();) {
    OwnedSnapshot::Contents batch;
    uint64_t batch_bytes = 0;
    size_t end = begin;
    do {
      batch.entries.push_back(entries[wanted[end].saved].spec);
      batch.alias_of.push_back(-1);
      batch_bytes += saved.RawBytes(wanted[end++].saved);
    } while (end < wanted.size() && batch_bytes + saved.RawBytes(wanted[end].saved) <= kBounceBytesMax);
    auto full = OwnedSnapshot::Create(std::move(batch));
    if (!full.ok()) return full.status();
    std::vector<storage::EntryRead> reads;
    for (size_t i = begin; i < end; ++i) {
      reads.push_back({.entry = wanted[i].saved, .destination = (*full)->place(i - begin)});
    }
    if (absl::Status status = saved.Read(reads); !status.ok()) return status;
    for (size_t i = begin; i < end; ++i) {
      ConvertToHalf(entries[wanted[i].saved].spec, half, (*full)->bytes(i - begin), snapshot.place(wanted[i].index));
    }
    begin = end;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const Snapshot>> ReadSnapshot(const SavedEntries& saved, int64_t step,
                                                             std::span<const std::string> patterns, HalfPrecision half,
                                                             CompanionEntries companions) {
  const std::vector<storage::ShardEntry>& entries = saved.index().entries;
  std::vector<std::string> hidden;
  if (companions == CompanionEntries::kNever || patterns.empty()) hidden = CompanionPrefixes(saved.index().properties);
  std::vector<size_t> visible;
  std::vector<EntrySpec> specs;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string& name = entries[i].spec.name;
    const auto has_it = [&](const std::string& prefix) { return IsUnderPrefix(name, prefix); };
    if (std::any_of(hidden.begin(), hidden.end(), has_it)) continue;
    visible.push_back(i);
    specs.push_back(entries[i].spec);
  }
  absl::StatusOr<std::vector<size_t>> matching = MatchingEntries(specs, patterns);
  if (!matching.ok()) return matching.status();
  for (size_t& index : *matching) index = visible[index];
  for (const size_t index : *matching) {
    if (absl::Status status = saved.Check(index); !status.ok()) return status;
  }
  absl::StatusOr<std::shared_ptr<OwnedSnapshot>> snapshot =
      OwnedSnapshot::Create(PlanContents(saved.index(), step, *matching, half));
  if (!snapshot.ok()) return snapshot.status();
  std::vector<storage::EntryRead> direct;
  std::vector<Wanted> halved;
  for (size_t i = 0; i < matching->size(); ++i) {
    const size_t saved = (*matching)[i];
    if ((*snapshot)->is_alias(i)) continue;
    if (IsHalved(entries[saved].spec, half)) {
      halved.push_back({.saved = saved, .index = i});
    } else {
      direct.push_back({.entry = saved, .destination = (*snapshot)->place(i)});
    }
  }
  if (absl::Status status = saved.Read(direct); !status.ok()) return status;
  if (absl::Status status = ReadHalved(saved, halved, half, **snapshot); !status.ok()) return status;
  return *std::move(snapshot);
}

absl::Status Located(int64_t step, const absl::Status& status) {
  // Shards of a store whose format we know are not of a newer version, nor directories, unless they are broken.
  const bool is_damage = absl::IsUnimplemented(status) || absl::IsFailedPrecondition(status);
  return absl::Status(is_damage ? absl::StatusCode::kDataLoss : status.code(),
                      fmt::format("read of step {}: {}", step, std::string(status.message())));
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Snapshot>> OpenStoredSnapshot(const RestoreSource& source,
                                                                   const storage::StepRecord& record,
                                                                   std::span<const std::string> patterns,
                                                                   HalfPrecision half, CompanionEntries companions) {
  const int64_t step = record.info.step;
  absl::StatusOr<storage::Attempt> attempt = OpenRecorded(source, record);
  if (!attempt.ok()) return Located(step, attempt.status());
  const std::unique_ptr<SavedEntries> saved = EntriesOf(*std::move(attempt), source.read);
  auto snapshot = ReadSnapshot(*saved, step, patterns, half, companions);
  if (!snapshot.ok()) return Located(step, snapshot.status());
  return snapshot;
}

}  // namespace tidemark
