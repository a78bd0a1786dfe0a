// Hostile shards whose header, footer and digest are right. They cost a careless reader the product of two counts, or
// the size of a hole. They have some hundred kilobytes or a few megabytes, and no byte is wrong by itself.

#include <utility>

#include "fmt/format.h"
#include "fuzz/hostile_case.h"
#include "fuzz/store_image.h"

namespace tidemark::fuzz {
namespace {

using storage::kShardBlockBytes;

storage::ShardHeader HeaderWith(const storage::ShardIdentity& identity) {
  return {.identity = identity, .chunk_bytes = storage::kChunkBytesMin};
}

// An index with one entry of `chunks` chunks and `ties` entries tied to it. Each chunk is one byte, not a zstd frame.
storage::ShardIndex Tied(uint64_t chunks, uint64_t ties) {
  const storage::ChunkRecord chunk{
      .codec = storage::Codec::kZstd, .raw_bytes = storage::kChunkBytesMin, .stored_bytes = 1};
  storage::ShardIndex index;
  index.chunks.assign(chunks, chunk);
  for (uint64_t i = 0; i < chunks; ++i) index.chunks[i].offset = kShardBlockBytes + i;
  for (uint64_t i = 0; i <= ties; ++i) {
    index.entries.push_back({.spec = {.name = fmt::format("{:x}", i),
                                      .dtype = Dtype::kUint8,
                                      .shape = {static_cast<int64_t>(chunks * storage::kChunkBytesMin)}},
                             .first_chunk = 0,
                             .chunk_count = chunks});
  }
  return index;
}

std::string ShardOfBytes(const storage::ShardIndex& index) {
  const std::string data(index.chunks.size(), 'x');
  return AssembleShard(HeaderWith(IdentityAt(kHostilePlace)), data, EncodeShardIndex(index));
}

// Of the entries' sizes only the last one's is wrong.
std::string TiedWithAWrongEnd(uint64_t chunks, uint64_t ties) {
  storage::ShardIndex index = Tied(chunks, ties);
  --index.entries.back().spec.shape[0];
  return ShardOfBytes(index);
}

// The index is a hole. Its digest is wrong: a reader finds that out only after it has read all of it.
HostileCase IndexThatIsAHole(std::string file, std::string message) {
  storage::ShardFooter footer{.index_offset = kShardBlockBytes, .index_bytes = storage::kIndexBytesMax};
  footer.file_bytes = footer.index_offset + footer.index_bytes + kShardBlockBytes;
  return {.file = std::move(file),
          .message = std::move(message),
          .bytes = EncodeShardHeader(HeaderWith(IdentityAt(kHostilePlace))) + EncodeShardFooter(footer),
          .hole_at = kShardBlockBytes,
          .hole_bytes = footer.index_bytes};
}

}  // namespace

std::vector<HostileCase> HostileCosts() {
  using enum absl::StatusCode;
  return {
      {"cost-damaged_chunks_by_tied_entries.tmk", kDataLoss, "checksum of the stored bytes",
       ShardOfBytes(Tied(6'000, 6'000))},
      {"cost-chunks_by_tied_entries.tmk", kDataLoss, "chunk 59999 of entry 60000 at byte",
       TiedWithAWrongEnd(60'000, 60'000)},
      IndexThatIsAHole("cost-index_of_holes.tmk", "shard index: expected at most 131072 zeros in a row"),
  };
}

}  // namespace tidemark::fuzz
