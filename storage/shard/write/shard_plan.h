// What a shard will consist of, before a byte of it is encoded.

#ifndef TIDEMARK_STORAGE_SHARD_WRITE_SHARD_PLAN_H_
#define TIDEMARK_STORAGE_SHARD_WRITE_SHARD_PLAN_H_

#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/shard/format/shard_format.h"
#include "storage/shard/write/chunk_reuse.h"
#include "storage/shard/write/encode_pipeline.h"
#include "storage/shard/write/shard_writer.h"
#include "storage/shard/write/tiles.h"

namespace tidemark::storage {

// kInvalidArgument, as ShardWriter::Write has it. `*repeats_names`: whether entries of `contents` have one name.
absl::Status ValidateContents(const ShardIdentity& identity, const ShardContents& contents, bool* repeats_names);

// Movable; a copy's tasks would fill in the records of the original.
struct ShardPlan {
  ShardIndex index;                         // but for the chunks' records, `files` and the writer's own properties
  std::vector<EncodePipeline::Task> tasks;  // one for each of index.chunks, in the order in which they go to disk
  std::deque<TileBytes> tiles;              // of the tasks; a shard with tiles repeats names
  uint64_t logical_bytes = 0;
  uint64_t index_bytes_max = 0;
  uint64_t data_bytes_max = 0;  // of the chunks and what lies between them, if all are stored here, and raw
};

// What the writer adds to the index of a plan: references and its own properties, the longest of which names a path.
inline constexpr uint64_t kAddedIndexBytesMax = 64 << 10;

// Chunks are in the order of the entries; where they have to be waited for, in that of their bytes in memory, which is
// the one in which they come. The chunks of a box in tiles stay together, one tile behind the other, so that a reader
// finds each tile in one place. kInvalidArgument if the index could have more than kIndexBytesMax bytes. Precondition:
// ValidateContents. Moves specs out of `contents`, which are unspecified afterwards.
absl::StatusOr<ShardPlan> PlanShard(ShardContents& contents, uint32_t chunk_bytes, ChunkReuse* reuse);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_WRITE_SHARD_PLAN_H_
