#include "storage/shard/shard_plan.h"

#include <algorithm>
#include <functional>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "storage/shard/aligned_buffer.h"

namespace tidemark::storage {
namespace {

absl::Status InvalidEntry(const ShardContents::Entry& entry, std::string_view problem) {
  return absl::InvalidArgumentError(fmt::format("entry '{}': {}", entry.spec.name.substr(0, 200), problem));
}

// Adds the chunks of an entry, which come next in the table.
void PlanChunks(const ShardContents& contents, size_t number, uint32_t chunk_bytes, ChunkReuse* reuse,
                ShardPlan* plan) {
  const ShardContents::Entry& entry = contents.entries[number];
  const std::span<const ChunkRecord> reusable = reuse->ChunksOf(number, entry.spec.name);
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

absl::Status ValidateContents(const ShardIdentity& identity, const ShardContents& contents) {
  if (identity.step < 0 || identity.rank >= identity.world_size) {
    return absl::InvalidArgumentError(
        fmt::format("shard identity: expected a step of 0 or more and a rank below the world size, found step {}, rank "
                    "{}, world size {}",
                    identity.step, identity.rank, identity.world_size));
  }
  absl::flat_hash_set<std::string_view, std::hash<std::string_view>> names;
  std::vector<uint64_t> sizes;
  for (const ShardContents::Entry& entry : contents.entries) {
    uint64_t bytes = 0;
    if (auto status = ValidateEntry(entry.spec, &bytes); !status.ok()) return status;
    if (!names.insert(entry.spec.name).second) return InvalidEntry(entry, "another entry has the same name");
    if (entry.alias_of >= static_cast<int64_t>(sizes.size())) {
      return InvalidEntry(entry, fmt::format("expected to be tied to an earlier entry, found {}", entry.alias_of));
    }
    const uint64_t found = entry.alias_of < 0 ? entry.bytes.size() : sizes[entry.alias_of];
    if (found != bytes) return InvalidEntry(entry, fmt::format("expected {} bytes, found {}", bytes, found));
    sizes.push_back(bytes);
  }
  return ValidateShardTexts(contents.metrics, contents.user_metadata, contents.properties);
}

ShardPlan PlanShard(const ShardContents& contents, uint32_t chunk_bytes, ChunkReuse* reuse) {
  ShardPlan plan;
  plan.index.created_unix_ns = contents.created_unix_ns;
  plan.index.metrics = contents.metrics;
  plan.index.user_metadata = contents.user_metadata;
  plan.index.properties = contents.properties;
  plan.index.entries.reserve(contents.entries.size());
  for (size_t i = 0; i < contents.entries.size(); ++i) {
    const ShardContents::Entry& entry = contents.entries[i];
    ShardEntry& record = plan.index.entries.emplace_back();
    record.spec = entry.spec;
    if (entry.alias_of >= 0) {
      record.first_chunk = plan.index.entries[entry.alias_of].first_chunk;
      record.chunk_count = plan.index.entries[entry.alias_of].chunk_count;
      continue;
    }
    if (entry.bytes.empty()) continue;
    record.first_chunk = plan.tasks.size();
    PlanChunks(contents, i, chunk_bytes, reuse, &plan);
    record.chunk_count = plan.tasks.size() - record.first_chunk;
    plan.logical_bytes += entry.bytes.size();
  }
  plan.index.chunks.resize(plan.tasks.size());
  for (size_t i = 0; i < plan.tasks.size(); ++i) plan.tasks[i].record = &plan.index.chunks[i];
  if (contents.wait_until_ready != nullptr) {
    std::stable_sort(plan.tasks.begin(), plan.tasks.end(),
                     [](const EncodePipeline::Task& a, const EncodePipeline::Task& b) {
                       return std::less<>()(a.raw.data(), b.raw.data());
                     });
  }
  return plan;
}

}  // namespace tidemark::storage
