// Which chunks of a committed shard the next one can refer to, and how it then names the files they lie in.

#ifndef TIDEMARK_STORAGE_SHARD_WRITE_CHUNK_REUSE_H_
#define TIDEMARK_STORAGE_SHARD_WRITE_CHUNK_REUSE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "storage/shard/format/reusable_shard.h"
#include "storage/shard/format/shard_format.h"

namespace tidemark::storage {

// The files that a shard needs may exceed twice the bytes of a whole one by this much. A file of a small state is
// mostly frame and index, so it is not worth writing its chunks again.
inline constexpr uint64_t kNeededBytesSlack = 256 << 10;

// An index of fewer bytes is always stored whole. It is written within a millisecond, and its shard then depends on no
// other index.
inline constexpr uint64_t kDeltaIndexBytesMin = 1 << 20;

// References always point at the file in which the bytes were first written, never at one that refers to them itself.
// Thread-compatible.
class ChunkReuse {
 public:
  // Nothing can be referred to if `source` is null, belongs to another store or has chunks of another size. It is not
  // owned. `identity` is the new shard's, which never refers to itself. `saves_max`: the maximum age, in attempts, of a
  // file that is referred to; 0: no limit.
  ChunkReuse(const ReusableShard* source, const ShardIdentity& identity, uint32_t chunk_bytes, uint64_t saves_max = 0);
  ChunkReuse(const ChunkReuse&) = delete;
  ChunkReuse& operator=(const ChunkReuse&) = delete;

  // Null where nothing can be referred to.
  const ReusableShard* source() const { return source_; }

  // The chunks of the source's entry of that name and box; empty if there is none. `number` is the entry's in the new
  // shard: where two saves have the same entries, the source's has the same.
  std::span<const ChunkRecord> ChunksOf(size_t number, const EntrySpec& entry);

  // Whether the new shard can refer to the chunk. These chunks are written again:
  // - what lies in a file that is older than `saves_max`, and before that, from half of it on, each chunk at an age
  // that
  //   follows from its number: what was written at once is not written again at once.
  // - in files of which the source needs the smallest share, until the files that the new shard is expected to need,
  //   itself included, have together at most twice the bytes of one that is written whole, and kNeededBytesSlack. The
  //   save is expected to change as many chunks as the source's did, and some more. A save that changes still more
  //   exceeds the bound by the difference, until the next save. It never writes more than a whole shard, so the bound
  //   is then three times the bytes of one that is written whole, and kNeededBytesSlack.
  // - in files that hold the fewest bytes, until there are no more than kFileReferencesWrittenMax of them. Writing
  //   these chunks again is the cheapest way to fewer files.
  // Precondition: the chunk is one of the source's.
  bool CanRefer(const ChunkRecord& chunk) const { return sources_[chunk.file].file != nullptr && !IsOld(chunk); }

  // How the new shard's table names it. Precondition: CanRefer(chunk).
  ChunkRecord Refer(const ChunkRecord& chunk);

  // All that Refer has named, in the order of the numbers that it gave them.
  const std::vector<FileReference>& files() const { return files_; }

  // Stored bytes of the source's chunks that the new shard cannot refer to.
  uint64_t anew_bytes() const { return anew_bytes_; }

  // The shard whose index is the base of the new shard's index; file 0: the new index is stored whole. `index` must be
  // complete but for the base's file, which files() has afterwards. The base is that of the source's index, or the
  // source. The index is stored whole
  // - if it has fewer than kDeltaIndexBytesMin,
  // - if the shard cannot refer to the base's file, or its chunks or entries have other numbers than those there, or
  //   only one of the two has several entries of one name,
  // - if less than half of the base's file would be in use, its index included: no file stays for a small part of it,
  // - once the deltas to the base have taken as many bytes as the whole index. That is taken from the delta's own bytes
  //   and the number of saves since the base, as if each had changed as much. So the first delta takes at most half of
  //   the whole. Where each save changes a share p at random, the indices then take sqrt(2 p) of the whole on average.
  // Called at most once.
  IndexBase ChooseBase(const ShardIndex& index, bool repeats_names);

  // ReusableShard::files of the new shard, whose own file is `self`.
  std::vector<ReusableFile> FilesBehind(const ReusableFile& self) const;

 private:
  struct Source {
    const FileReference* file = nullptr;  // null: the new shard itself, or dropped
    ReusableFile known;
    uint64_t age = 0;         // in attempts
    uint64_t live_bytes = 0;  // stored bytes of the source's chunks in it that are not too old
    uint16_t number = 0;      // in the new shard; 0: not named yet
  };
  using FileKey = std::tuple<AttemptId, int64_t, uint32_t, uint32_t>;

  bool IsOld(const ChunkRecord& chunk) const;
  bool IsBaseUsedUp(uint64_t delta_bytes) const;
  void FindBase();
  uint64_t ExpectedBytes(uint64_t whole, uint64_t chunks) const;
  void DropIdleSources();
  void DropSmallSources();
  void Drop(Source* source);
  ChunkRecord Named(const ChunkRecord& chunk) const;
  uint16_t NumberOf(Source* source);

  const uint64_t saves_max_;
  const ReusableShard* source_ = nullptr;
  FileReference source_file_;    // the source itself
  std::vector<Source> sources_;  // by ChunkRecord::file in the source
  Source* base_ = nullptr;       // of `sources_`; null: the index is stored whole
  uint64_t index_bytes_ = 0;     // of the source's index, if it is stored whole
  uint64_t stored_bytes_ = 0;    // of the source's index, as it is stored
  std::map<FileKey, uint16_t> numbers_;
  std::vector<FileReference> files_;
  std::vector<ReusableFile> known_;  // of files_
  uint64_t own_bytes_ = 0;           // stored bytes of the source's chunks in its own file
  uint64_t anew_bytes_ = 0;
  struct HashOfPlace {
    size_t operator()(const EntrySpec* entry) const;
  };
  struct SamePlace {
    bool operator()(const EntrySpec* a, const EntrySpec* b) const;
  };
  // By name and box. Made when the first entry is not where it was.
  std::unordered_map<const EntrySpec*, size_t, HashOfPlace, SamePlace> entries_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_WRITE_CHUNK_REUSE_H_
