// The shard file, as structs and pure functions between them and bytes. docs/format.md is the same for a reader without
// this code.
//
//   header (4096 bytes) | chunks | index | footer (4096 bytes)
//
// The index is whole, or a delta to the index of an earlier shard. The file size is a multiple of 4096; index and
// footer begin at multiples of 4096. Every byte that belongs to nothing is zero, so that a check of the whole file has
// no blind spot. All numbers are little-endian.
//
// Decoding trusts nothing: every count is held against the bytes that are there before anything is allocated, every
// offset against the file. kDataLoss names what is wrong, where, what was expected and what was found; kUnimplemented
// is a newer version.

#ifndef TIDEMARK_STORAGE_SHARD_FORMAT_SHARD_FORMAT_H_
#define TIDEMARK_STORAGE_SHARD_FORMAT_SHARD_FORMAT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/bytes/ids.h"
#include "tidemark/entry.h"

namespace tidemark::storage {

inline constexpr uint32_t kShardFormatVersion = 1;
inline constexpr uint32_t kShardDeltaVersion = 2;  // in the footer of a shard whose index is stored as a delta
inline constexpr uint32_t kShardBoxesVersion = 2;  // in the header of a shard with several boxes of one tensor
inline constexpr size_t kShardBlockBytes = 4096;   // size of header and footer, and alignment of the index

// A chunk whose stored size is at least this begins at a multiple of kShardBlockBytes, so that it can be written and
// read without a copy; smaller ones are packed.
inline constexpr size_t kAlignedChunkBytesMin = 64 * 1024;
inline constexpr size_t kChunkBytesMin = 4096;
inline constexpr size_t kChunkBytesMax = 64 << 20;

// Caps that a reader holds a file against before it allocates, and a writer its caller. An index of 1 GiB has room for
// more than 20 million chunks.
inline constexpr uint64_t kIndexBytesMax = uint64_t{1} << 30;
inline constexpr size_t kUserMetadataBytesMax = 16 << 20;
inline constexpr size_t kPropertyBytesMax = 64 << 10;  // of one value
inline constexpr size_t kFileReferencesMax = 65535;    // what ChunkRecord::file can name

// What our writer names at most. A reader has all of a shard's references open at once, and a process may often have no
// more than 256 or 1024 descriptors.
inline constexpr size_t kFileReferencesWrittenMax = 128;

// Who wrote what: repeated in every shard, so that a shard out of place is recognised.
struct ShardIdentity {
  StoreId store;
  int64_t step = 0;
  AttemptId attempt;
  uint64_t sequence = 0;  // of the attempt in its store; grows with every attempt
  uint32_t rank = 0;
  uint32_t world_size = 1;
  friend bool operator==(const ShardIdentity&, const ShardIdentity&) = default;
};

struct ShardHeader {
  ShardIdentity identity;
  uint32_t chunk_bytes = 0;    // raw bytes of every chunk but the last of each entry; see IsValidChunkBytes
  bool repeats_names = false;  // some entries have one name: they are boxes of one tensor (EntryNames)
};

// A multiple of kChunkBytesMin, so that no number is cut in two and raw chunks stay aligned, up to kChunkBytesMax.
constexpr bool IsValidChunkBytes(uint64_t bytes) {
  return bytes >= kChunkBytesMin && bytes <= kChunkBytesMax && bytes % kChunkBytesMin == 0;
}

enum class Codec : uint8_t {
  kRaw = 0,
  kZstd = 1,        // one zstd frame of the raw bytes
  kPlanesZstd = 2,  // one zstd frame of the byte planes; see byte_planes.h
};

struct ChunkRecord {
  Codec codec = Codec::kRaw;
  uint8_t float_bytes = 0;  // kPlanesZstd: width of the numbers that were split, 2, 4 or 8; else 0
  uint16_t file = 0;        // 0: this shard; n: ShardIndex::files[n - 1]
  uint32_t raw_bytes = 0;
  uint32_t stored_bytes = 0;
  uint64_t offset = 0;    // of the stored bytes in that file
  Digest128 digest;       // XXH3-128 of the raw bytes
  uint64_t checksum = 0;  // XXH3-64 of the stored bytes
  friend bool operator==(const ChunkRecord&, const ChunkRecord&) = default;
};

// Another shard of the same store whose chunks are used here. Its path follows from these numbers; no path is ever
// stored.
struct FileReference {
  int64_t step = 0;
  AttemptId attempt;
  uint32_t rank = 0;
  uint32_t world_size = 1;
  friend bool operator==(const FileReference&, const FileReference&) = default;
};

// The chunk ranges of the entries follow each other without gaps and cover the whole table. Two exceptions: an entry
// that is tied to an earlier one has that one's range, and an entry of no bytes has first_chunk = chunk_count = 0.
struct ShardEntry {
  EntrySpec spec;
  uint64_t first_chunk = 0;
  uint64_t chunk_count = 0;
  friend bool operator==(const ShardEntry&, const ShardEntry&) = default;
};

struct ShardIndex {
  int64_t created_unix_ns = 0;
  uint64_t blocked_ns = 0;  // how long the trainer was held
  std::vector<FileReference> files;
  std::vector<ShardEntry> entries;
  std::vector<ChunkRecord> chunks;
  std::map<std::string, double> metrics;          // given with the save
  std::string user_metadata = "{}";               // a JSON object
  std::map<std::string, std::string> properties;  // how the shard was written
  friend bool operator==(const ShardIndex&, const ShardIndex&) = default;
};

struct ShardFooter {
  uint64_t file_bytes = 0;
  uint64_t index_offset = 0;
  uint64_t index_bytes = 0;
  // XXH3-128 of the index as it is stored. It names the contents of the whole shard, since the index has every chunk's
  // digest, or the digest of its base.
  Digest128 index_digest;
  bool index_is_delta = false;  // to the index of another shard; see IndexBase
};

// How an index is stored. A small change in a state of many entries changes few records of the index. The others are
// then not stored again, but taken from the base: the index of another shard, which is stored whole itself.
struct IndexBase {
  uint16_t file = 0;  // n: the base is that of ShardIndex::files[n - 1]; 0: the index is stored whole
  Digest128 digest;   // ShardFooter::index_digest of the base; with file 0, of the index itself
  // By number: whether the record differs from the base's, in more than the number of its file. Empty with file 0.
  std::vector<bool> changed_chunks;
  std::vector<bool> changed_entries;
  friend bool operator==(const IndexBase&, const IndexBase&) = default;
};

// Exactly kShardBlockBytes each, checksum included.
std::string EncodeShardHeader(const ShardHeader& header);
std::string EncodeShardFooter(const ShardFooter& footer);

// Whole, or as a delta to `base`. Preconditions: `index` is one that DecodeShardIndex accepts; with a base, the bits of
// `base` are as many as its chunks and entries.
std::string EncodeShardIndex(const ShardIndex& index, const IndexBase& base = {});

// The size of what EncodeShardIndex returns; it does not depend on the values of numbers.
uint64_t EncodedShardIndexBytes(const ShardIndex& index, const IndexBase& base = {});

// kInternal if the bytes, read as DecodeShardIndex would, are not `index`. For the assertion before an index is
// written. It decodes record by record and holds no second index. Of a delta it compares the records that are in it.
absl::Status CheckEncodedShardIndex(std::span<const std::byte> bytes, const ShardHeader& header,
                                    const ShardFooter& footer, const ShardIndex& index, const IndexBase& base = {});

// Whether metrics, user metadata and properties keep to the caps; kInvalidArgument says which does not.
absl::Status ValidateShardTexts(const std::map<std::string, double>& metrics, std::string_view user_metadata,
                                const std::map<std::string, std::string>& properties);

// Magic and version are looked at before the checksum, so that a newer version is told apart from damage whatever else
// it changed. A flipped bit in the version therefore reads as kUnimplemented too: whoever looks for damage must count
// that as damage.
absl::StatusOr<ShardHeader> DecodeShardHeader(std::span<const std::byte> bytes);

// `file_bytes`: the size that the file really has.
absl::StatusOr<ShardFooter> DecodeShardFooter(std::span<const std::byte> bytes, uint64_t file_bytes);

// Of an index that is stored whole. Checks the digest, the structure, every entry (ValidateEntry), that names are
// unique, or repeated as `header` says and EntryNames allows, that chunk sizes add up to the entries' and that the
// chunks of this file lie between header and index without overlapping. kDataLoss if `footer` says that it is a delta.
absl::StatusOr<ShardIndex> DecodeShardIndex(std::span<const std::byte> bytes, const ShardHeader& header,
                                            const ShardFooter& footer);

// Returns the index of that shard, which must be stored whole and have that digest.
using ReadBaseIndex =
    absl::FunctionRef<absl::StatusOr<ShardIndex>(const FileReference& shard, const Digest128& digest)>;

// Decodes an index that is stored as a delta. The result obeys the rules of DecodeShardIndex, if the base has a header
// of the same version. Takes no more memory than
// the base and the bytes. Calls `read_base` once, and returns its error unchanged.
absl::StatusOr<ShardIndex> DecodeShardIndexDelta(std::span<const std::byte> bytes, const ShardHeader& header,
                                                 const ShardFooter& footer, ReadBaseIndex read_base, IndexBase* base);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_FORMAT_SHARD_FORMAT_H_
