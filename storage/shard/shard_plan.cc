#include "storage/shard/shard_plan.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "fmt/format.h"
#include "storage/shard/aligned_buffer.h"
#include "storage/shard/entry_names.h"
#include "storage/shard/shard_index_layout.h"

namespace tidemark::storage {
namespace {

absl::Status InvalidEntry(const ShardContents::Entry& entry, std::string_view problem) {
  return absl::InvalidArgumentError(fmt::format("entry '{}': {}", entry.spec.name.substr(0, 200), problem));
}

// All of the index but the chunks' records, of which there will be `chunks`.
void PlanIndex(const ShardContents& contents, uint32_t chunk_bytes, ShardPlan* plan, uint64_t* chunks) {
  ShardIndex& index = plan->index;
  index.created_unix_ns = contents.created_unix_ns;
  index.metrics = contents.metrics;
  index.user_metadata = contents.user_metadata;
  index.properties = contents.properties;
  index.entries.reserve(contents.entries.size());
  for (const ShardContents::Entry& entry : contents.entries) {
    ShardEntry& record = index.entries.emplace_back();
    record.spec = entry.spec;
    if (entry.alias_of >= 0) {
      record.first_chunk = index.entries[entry.alias_of].first_chunk;
      record.chunk_count = index.entries[entry.alias_of].chunk_count;
      continue;
    }
    if (entry.bytes.empty()) continue;
    record.first_chunk = *chunks;
    record.chunk_count = (entry.bytes.size() - 1) / chunk_bytes + 1;
    *chunks += record.chunk_count;
    plan->logical_bytes += entry.bytes.size();
  }
}

// Adds the chunks of an entry, which come next in the table.
void PlanChunks(const ShardContents& contents, size_t number, uint32_t chunk_bytes, ChunkReuse* reuse,
                ShardPlan* plan) {
  const ShardContents::Entry& entry = contents.entries[number];
  const std::span<const ChunkRecord> reusable = reuse->ChunksOf(number, entry.spec);
  const uint8_t float_bytes = GetDtypeInfo(entry.spec.dtype).float_bytes;
  for (size_t start = 0; start < entry.bytes.size(); start += chunk_bytes) {
    const size_t size = std::min<size_t>(chunk_bytes, entry.bytes.size() - start);
    const size_t chunk = start / chunk_bytes;
    EncodePipeline::Task& task = plan->tasks.emplace_back();
    task.raw = entry.bytes.subspan(start, size);
    task.float_bytes = float_bytes;
    task.entry = number;
    task.end = start + size;
    if (chunk < reusable.size() && reuse->CanRefer(reusable[chunk])) task.reusable = &reusable[chunk];
    plan->data_bytes_max += size >= kAlignedChunkBytesMin ? AlignUp(size) + kDirectAlignment : size;
  }
}

}  // namespace

absl::Status ValidateContents(const ShardIdentity& identity, const ShardContents& contents, bool* repeats_names) {
  if (identity.step < 0 || identity.rank >= identity.world_size) {
    return absl::InvalidArgumentError(
        fmt::format("shard identity: expected a step of 0 or more and a rank below the world size, found step {}, rank "
                    "{}, world size {}",
                    identity.step, identity.rank, identity.world_size));
  }
  EntryNames names;
  std::vector<uint64_t> sizes;
  names.Reserve(contents.entries.size());
  sizes.reserve(contents.entries.size());
  for (const ShardContents::Entry& entry : contents.entries) {
    uint64_t bytes = 0;
    if (auto status = ValidateEntry(entry.spec, &bytes); !status.ok()) return status;
    names.Add(entry.spec.name);
    if (entry.alias_of >= static_cast<int64_t>(sizes.size())) {
      return InvalidEntry(entry, fmt::format("expected to be tied to an earlier entry, found {}", entry.alias_of));
    }
    const uint64_t found = entry.alias_of < 0 ? entry.bytes.size() : sizes[entry.alias_of];
    if (found != bytes) return InvalidEntry(entry, fmt::format("expected {} bytes, found {}", bytes, found));
    sizes.push_back(bytes);
  }
  *repeats_names = names.repeats();
  const auto spec_of = [&](size_t number) -> const EntrySpec& { return contents.entries[number].spec; };
  if (const std::optional<NameConflict> conflict = names.FindConflict(spec_of)) {
    return InvalidEntry(contents.entries[conflict->entry], conflict->why);
  }
  return ValidateShardTexts(contents.metrics, contents.user_metadata, contents.properties);
}

absl::StatusOr<ShardPlan> PlanShard(const ShardContents& contents, uint32_t chunk_bytes, ChunkReuse* reuse) {
  ShardPlan plan;
  uint64_t chunks = 0;
  PlanIndex(contents, chunk_bytes, &plan, &chunks);
  // Before there is anything for each of so many chunks.
  plan.index_bytes_max = EncodedShardIndexBytes(plan.index) + chunks * kChunkRecordBytes + kAddedIndexBytesMax;
  if (plan.index_bytes_max > kIndexBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("shard index: expected at most {} bytes, found up to {}, for {} chunks", kIndexBytesMax,
                    plan.index_bytes_max, chunks));
  }
  plan.tasks.reserve(chunks);
  for (size_t i = 0; i < contents.entries.size(); ++i) {
    if (contents.entries[i].alias_of < 0) PlanChunks(contents, i, chunk_bytes, reuse, &plan);
  }
  plan.index.chunks.resize(chunks);
  for (size_t i = 0; i < chunks; ++i) plan.tasks[i].record = &plan.index.chunks[i];
  if (contents.wait_until_ready != nullptr) {
    std::stable_sort(plan.tasks.begin(), plan.tasks.end(),
                     [](const EncodePipeline::Task& a, const EncodePipeline::Task& b) {
                       return std::less<>()(a.raw.data(), b.raw.data());
                     });
  }
  return plan;
}

}  // namespace tidemark::storage
