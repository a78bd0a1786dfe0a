// Reads what a later shard can refer to, and looks for damage in it.

#ifndef TIDEMARK_STORAGE_SHARD_READ_CHUNK_SCRUB_H_
#define TIDEMARK_STORAGE_SHARD_READ_CHUNK_SCRUB_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/shard/format/reusable_shard.h"
#include "storage/shard/format/shard_format.h"

namespace tidemark::storage {

// A chunk, or an index, that cannot be read as it was written.
struct ChunkDamage {
  FileReference file;  // in which it lies
  std::string entry;   // one that has the chunk; empty: it is the index
  std::string what;    // with path, offset, expected and found
};

// Goes through the chunks of a shard in the order of its table, a few at each call, and then through the index that is
// stored whole: the shard's own, or the base of it. Where shards follow each other, the place stays, so a pass may
// begin with one shard and end with a later one. Only the checksums of stored bytes are compared; nothing is decoded.
// Thread-compatible.
class ChunkScrub {
 public:
  // Of a large chunk no more is in memory at once.
  static constexpr uint64_t kBufferBytes = 1 << 20;

  // `files` is not owned. `steps_directory`: where the attempts' folders are.
  ChunkScrub(FileSystem& files, std::string steps_directory)
      : files_(files), steps_directory_(std::move(steps_directory)) {}

  struct Result {
    uint64_t bytes_read = 0;
    bool pass_ended = false;            // the next call begins with the first chunk
    bool skipped = false;               // the call ended behind what the system refused to read
    std::optional<ChunkDamage> damage;  // the call ended there, and the next one begins there
  };

  // Reads until it has read `bytes_max` bytes, a pass ends, or a chunk or the index is damaged. What is damaged has
  // been read twice. `cancelled` is called before each read of at most kBufferBytes. If it returns true, the call ends,
  // and the next one begins with the same chunk. A chunk is skipped until the next pass if there is no descriptor or
  // no permission. An exception (std::bad_alloc, or that of `cancelled`) leaves the place as it was.
  Result Read(const ReusableShard& shard, uint64_t bytes_max, const std::function<bool()>& cancelled);

 private:
  struct Call;
  absl::StatusOr<File*> Open(const FileReference& reference, Call& call) const;
  absl::Status Check(const ChunkRecord& chunk, const FileReference& reference, Call& call) const;
  absl::Status CheckIndex(const Digest128& digest, const FileReference& reference, Call& call) const;
  absl::Status Read(File& file, uint64_t offset, uint64_t bytes, Call& call,
                    absl::FunctionRef<void(std::span<const std::byte>)> add) const;

  FileSystem& files_;
  const std::string steps_directory_;
  size_t next_ = 0;  // in ShardIndex::chunks; behind the last: the index that is stored whole
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_READ_CHUNK_SCRUB_H_
