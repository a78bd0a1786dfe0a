// ReusableShard: a committed shard to whose chunks the next one refers.

#ifndef TIDEMARK_STORAGE_SHARD_FORMAT_REUSABLE_SHARD_H_
#define TIDEMARK_STORAGE_SHARD_FORMAT_REUSABLE_SHARD_H_

#include <cstdint>
#include <vector>

#include "storage/shard/format/shard_format.h"

namespace tidemark::storage {

// A file with chunks of a ReusableShard.
struct ReusableFile {
  uint64_t bytes = 0;     // 0: not known; then no shard refers to it
  uint64_t sequence = 0;  // ShardIdentity::sequence
};

// A committed shard, whose chunks need not be written again.
struct ReusableShard {
  ShardIdentity identity;
  uint32_t chunk_bytes = 0;
  bool repeats_names = false;  // as its header has it
  ShardIndex index;
  IndexBase index_base;             // how its file has the index
  std::vector<ReusableFile> files;  // by ChunkRecord::file: its own, and then those of index.files
  uint64_t anew_bytes = 0;          // ChunkReuse::anew_bytes of its save; 0: not known
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_FORMAT_REUSABLE_SHARD_H_
