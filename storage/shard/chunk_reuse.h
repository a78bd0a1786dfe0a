// Which chunks of a committed shard the next one can refer to, and how it then names the files they lie in.

#ifndef TIDEMARK_STORAGE_SHARD_CHUNK_REUSE_H_
#define TIDEMARK_STORAGE_SHARD_CHUNK_REUSE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "storage/shard/shard_format.h"
#include "storage/shard/shard_writer.h"

namespace tidemark::storage {

// References always point at the file in which the bytes were first written, never at one that refers to them itself.
// Thread-compatible.
class ChunkReuse {
 public:
  // Nothing can be referred to if `source` is null, belongs to another store or has chunks of another size. It is not
  // owned. `identity` is the new shard's, which never refers to itself.
  ChunkReuse(const ReusableShard* source, const ShardIdentity& identity, uint32_t chunk_bytes);
  ChunkReuse(const ChunkReuse&) = delete;
  ChunkReuse& operator=(const ChunkReuse&) = delete;

  // Null where nothing can be referred to.
  const ReusableShard* source() const { return source_; }

  // The chunks of the source's entry of that name; empty if there is none. `number` is the entry's in the new shard:
  // where two saves have the same entries, the source's has the same.
  std::span<const ChunkRecord> ChunksOf(size_t number, std::string_view name);

  // Whether one of them can be named in the new shard. If the source's chunks lie in more than
  // kFileReferencesWrittenMax files, those in the files that hold the fewest bytes cannot: written again together, they
  // are the cheapest way to fewer files.
  bool CanRefer(const ChunkRecord& chunk) const { return sources_[chunk.file].file != nullptr; }

  // How the new shard's table names it. Precondition: CanRefer(chunk).
  ChunkRecord Refer(const ChunkRecord& chunk);

  // All that Refer has named, in the order of the numbers that it gave them.
  const std::vector<FileReference>& files() const { return files_; }

 private:
  struct Source {
    const FileReference* file = nullptr;  // null: the new shard itself, or dropped
    uint16_t number = 0;                  // in the new shard; 0: not named yet
  };
  using FileKey = std::tuple<AttemptId, int64_t, uint32_t, uint32_t>;

  void DropSmallSources();

  const ReusableShard* source_ = nullptr;
  FileReference source_file_;    // the source itself
  std::vector<Source> sources_;  // by ChunkRecord::file in the source
  std::map<FileKey, uint16_t> numbers_;
  std::vector<FileReference> files_;
  // Made when the first entry is not where it was.
  absl::flat_hash_map<std::string_view, size_t, std::hash<std::string_view>> entries_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_CHUNK_REUSE_H_
