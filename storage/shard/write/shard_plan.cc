#include "storage/shard/write/shard_plan.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "fmt/format.h"
#include "storage/shard/format/aligned_buffer.h"
#include "storage/shard/format/entry_names.h"
#include "storage/shard/format/shard_index_layout.h"

namespace tidemark::storage {
namespace {

absl::Status InvalidEntry(const ShardContents::Entry& entry, std::string_view problem) {
  return absl::InvalidArgumentError(fmt::format("entry '{}': {}", entry.spec.name.substr(0, 200), problem));
}

// By entry of the contents: its tiles, or none.
using Tiles = std::vector<std::vector<EntrySpec>>;

bool IsSameBox(const EntrySpec& a, const EntrySpec& b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.box_offset == b.box_offset && a.box_extent == b.box_extent;
}

// Tied entries share chunks, so they all have the same tiles, or none.
Tiles TilesOfEntries(const ShardContents& contents) {
  const std::vector<ShardContents::Entry>& entries = contents.entries;
  Tiles tiles(entries.size());
  if (contents.release != nullptr) return tiles;  // it is told of bytes in the order of the whole box
  NameMap<size_t> boxes_of_name;
  for (const ShardContents::Entry& entry : entries) {
    if (!entry.spec.whole()) ++*boxes_of_name.Add(entry.spec.name, 0).first;
  }
  std::vector<size_t> owner(entries.size());  // of the chunks
  for (size_t i = 0; i < entries.size(); ++i) {
    const EntrySpec& spec = entries[i].spec;
    owner[i] = entries[i].alias_of < 0 ? i : owner[entries[i].alias_of];
    if (!spec.whole()) tiles[i] = TilesOf(spec, *boxes_of_name.Find(spec.name));
    const bool fits = tiles[i].size() == tiles[owner[i]].size() && IsSameBox(spec, entries[owner[i]].spec);
    if (!fits) tiles[owner[i]].clear();
  }
  for (size_t i = 0; i < entries.size(); ++i) {
    if (tiles[owner[i]].empty()) tiles[i].clear();
  }
  return tiles;
}

uint64_t BytesOf(const EntrySpec& valid) {
  uint64_t bytes = GetDtypeInfo(valid.dtype).element_bytes;
  for (const int64_t extent : valid.held_shape()) bytes *= static_cast<uint64_t>(extent);
  return bytes;
}

// How many entries of the shard an entry of the contents becomes.
size_t CountStored(const std::vector<EntrySpec>& tiles) { return std::max<size_t>(tiles.size(), 1); }

// Fills plan->index except for the records of the chunks, and sets *chunks to how many records there will be. Moves the
// specs of entries without tiles out of `contents`.
void PlanIndex(ShardContents& contents, const Tiles& tiles, uint32_t chunk_bytes, ShardPlan* plan, uint64_t* chunks) {
  ShardIndex& index = plan->index;
  index.created_unix_ns = contents.created_unix_ns;
  index.metrics = contents.metrics;
  index.user_metadata = contents.user_metadata;
  index.properties = contents.properties;
  index.entries.reserve(contents.entries.size());
  std::vector<size_t> first(tiles.size());  // by entry of the contents: the first one in the index
  for (size_t i = 0; i < tiles.size(); ++i) {
    ShardContents::Entry& entry = contents.entries[i];
    first[i] = index.entries.size();
    for (size_t tile = 0; tile < CountStored(tiles[i]); ++tile) {
      ShardEntry& record = index.entries.emplace_back();
      if (tiles[i].empty()) {
        record.spec = std::move(entry.spec);
      } else {
        record.spec = tiles[i][tile];
      }
      if (entry.alias_of >= 0) {
        const ShardEntry& shared = index.entries[first[entry.alias_of] + index.entries.size() - 1 - first[i]];
        record.first_chunk = shared.first_chunk;
        record.chunk_count = shared.chunk_count;
        continue;
      }
      const uint64_t bytes = BytesOf(record.spec);
      if (bytes == 0) continue;
      record.first_chunk = *chunks;
      record.chunk_count = (bytes - 1) / chunk_bytes + 1;
      *chunks += record.chunk_count;
      plan->logical_bytes += bytes;
    }
  }
}

// Adds the chunks of an entry of the index, which come next in the table. `source`: the entry of the contents. With
// a `tile`, the entry of the index is that part of it.
void PlanChunks(const ShardContents& contents, size_t source, size_t number, const TileBytes* tile,
                uint32_t chunk_bytes, ChunkReuse* reuse, ShardPlan* plan) {
  const std::span<const std::byte> bytes = contents.entries[source].bytes;
  const EntrySpec& spec = plan->index.entries[number].spec;
  const std::span<const ChunkRecord> reusable = reuse->ChunksOf(number, spec);
  const uint8_t float_bytes = GetDtypeInfo(spec.dtype).float_bytes;
  const uint64_t end = BytesOf(spec);
  for (uint64_t start = 0; start < end; start += chunk_bytes) {
    const uint64_t size = std::min<uint64_t>(chunk_bytes, end - start);
    const size_t chunk = start / chunk_bytes;
    EncodePipeline::Task& task = plan->tasks.emplace_back();
    task.raw = tile == nullptr ? bytes.subspan(start, size) : bytes;
    task.tile = tile;
    task.tile_begin = start;
    task.tile_end = start + size;
    task.float_bytes = float_bytes;
    task.entry = source;
    task.end = tile == nullptr ? start + size : tile->EndInBox(start + size);
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

absl::StatusOr<ShardPlan> PlanShard(ShardContents& contents, uint32_t chunk_bytes, ChunkReuse* reuse) {
  ShardPlan plan;
  uint64_t chunks = 0;
  const Tiles tiles = TilesOfEntries(contents);
  PlanIndex(contents, tiles, chunk_bytes, &plan, &chunks);
  // Before there is anything for each of so many chunks.
  plan.index_bytes_max = EncodedShardIndexBytes(plan.index) + chunks * kChunkRecordBytes + kAddedIndexBytesMax;
  if (plan.index_bytes_max > kIndexBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("shard index: expected at most {} bytes, found up to {}, for {} chunks", kIndexBytesMax,
                    plan.index_bytes_max, chunks));
  }
  plan.tasks.reserve(chunks);
  for (size_t i = 0, number = 0; i < contents.entries.size(); ++i) {
    const ShardContents::Entry& entry = contents.entries[i];
    for (size_t t = 0; t < CountStored(tiles[i]); ++t) {
      const size_t stored = number++;
      if (entry.alias_of >= 0) continue;
      const TileBytes* const tile = tiles[i].empty() ? nullptr : &plan.tiles.emplace_back(entry.spec, tiles[i][t]);
      PlanChunks(contents, i, stored, tile, chunk_bytes, reuse, &plan);
    }
  }
  plan.index.chunks.resize(chunks);
  for (size_t i = 0; i < chunks; ++i) plan.tasks[i].record = &plan.index.chunks[i];
  const auto comes_before = [](const EncodePipeline::Task& a, const EncodePipeline::Task& b) {
    return std::less<>()(a.raw.data(), b.raw.data());
  };
  // Sorting takes as much memory again, and the tasks of a state that was staged in its order need none.
  if (contents.wait_until_ready != nullptr && !std::ranges::is_sorted(plan.tasks, comes_before)) {
    std::stable_sort(plan.tasks.begin(), plan.tasks.end(), comes_before);
  }
  return plan;
}

}  // namespace tidemark::storage
