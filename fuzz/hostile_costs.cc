// Hostile shards whose header, footer and digest are right. They cost a careless reader the product of two counts, or
// the size of a hole. They have some hundred kilobytes or a few megabytes, and no byte is wrong by itself.

#include <map>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "fuzz/hostile_case.h"
#include "fuzz/store_image.h"
#include "storage/shard/format/bounded_shard_files.h"

namespace tidemark::fuzz {
namespace {

using storage::kShardBlockBytes;

storage::ShardHeader HeaderWith(const storage::ShardIdentity& identity, bool repeats_names = false) {
  return {.identity = identity, .chunk_bytes = storage::kChunkBytesMin, .repeats_names = repeats_names};
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

std::string ShardOfBytes(const storage::ShardIndex& index, bool repeats_names = false) {
  const std::string data(index.chunks.size(), 'x');
  return AssembleShard(HeaderWith(IdentityAt(kHostilePlace), repeats_names), data, EncodeShardIndex(index));
}

// Boxes of one tensor.
class HostileBoxes {
 public:
  explicit HostileBoxes(std::vector<int64_t> shape)
      : spec_{.name = "w", .dtype = Dtype::kUint8, .shape = std::move(shape)} {}

  // Boxes of the same size have one chunk.
  void Add(std::vector<int64_t> offset, std::vector<int64_t> extent) {
    spec_.box_offset = std::move(offset);
    spec_.box_extent = std::move(extent);
    uint32_t bytes = 1;
    for (const int64_t size : spec_.box_extent) bytes *= static_cast<uint32_t>(size);
    const auto [chunk, is_new] = chunk_of_.emplace(bytes, index_.chunks.size());
    if (is_new) {
      const uint64_t offset_of_chunk = kShardBlockBytes + index_.chunks.size();
      index_.chunks.push_back({.codec = bytes > 1 ? storage::Codec::kZstd : storage::Codec::kRaw,
                               .raw_bytes = bytes,
                               .stored_bytes = 1,
                               .offset = offset_of_chunk});
    }
    index_.entries.push_back({.spec = spec_, .first_chunk = chunk->second, .chunk_count = 1});
  }

  std::string Shard() const { return ShardOfBytes(index_, /*repeats_names=*/true); }

 private:
  EntrySpec spec_;
  storage::ShardIndex index_;
  std::map<uint32_t, uint64_t> chunk_of_;  // by size
};

// As many boxes of one dimension as a store that is not trusted may have.
constexpr int64_t kBoxesOfOneName = 85'000;

// Every second element; the last box has the first element again, or not.
std::string ShardWithHoles(bool overlaps) {
  HostileBoxes boxes({2 * kBoxesOfOneName});
  for (int64_t i = 0; i + 1 < kBoxesOfOneName; ++i) boxes.Add({2 * i}, {1});
  boxes.Add({overlaps ? 0 : 2 * kBoxesOfOneName - 1}, {1});
  return boxes.Shard();
}

// Every second column of two rows, and one element of each other column. Each of these elements is behind all holes.
std::string ShardWithColumns() {
  constexpr int64_t kColumns = 25'000;
  HostileBoxes boxes({2, 2 * kColumns});
  for (int64_t i = 0; i < kColumns; ++i) boxes.Add({0, 2 * i}, {2, 1});
  for (int64_t i = 0; i < kColumns; ++i) boxes.Add({1, 2 * i + 1}, {1, 1});
  return boxes.Shard();
}

// Rods along three axes, woven through each other.
std::string ShardWithRods() {
  constexpr int64_t kSide = 100;
  HostileBoxes boxes({2 * kSide, 2 * kSide, 2 * kSide});
  for (int64_t i = 0; i < kSide; ++i) {
    for (int64_t j = 0; j < kSide; ++j) {
      boxes.Add({0, 2 * i, 2 * j + 1}, {2 * kSide, 1, 1});
      boxes.Add({2 * i + 1, 0, 2 * j}, {1, 2 * kSide, 1});
      boxes.Add({2 * i, 2 * j + 1, 0}, {1, 1, 2 * kSide});
    }
  }
  return boxes.Shard();
}

// Of the entries' sizes only the last one's is wrong.
std::string TiedWithAWrongEnd(uint64_t chunks, uint64_t ties) {
  storage::ShardIndex index = Tied(chunks, ties);
  --index.entries.back().spec.shape[0];
  return ShardOfBytes(index);
}

// The index is a hole. Its digest is wrong: a reader finds that out only after it has read all of it.
HostileCase IndexThatIsAHole(std::string file, std::string message, uint64_t bytes) {
  storage::ShardFooter footer{.index_offset = kShardBlockBytes, .index_bytes = bytes};
  footer.file_bytes = footer.index_offset + footer.index_bytes + kShardBlockBytes;
  return {.file = std::move(file),
          .message = std::move(message),
          .bytes = EncodeShardHeader(HeaderWith(IdentityAt(kHostilePlace))) + EncodeShardFooter(footer),
          .hole_at = kShardBlockBytes,
          .hole_bytes = footer.index_bytes};
}

// The same with as many zeros between two bytes as an index may have: 83 kB as a .tar.gz, 33 MiB on a disk.
HostileCase IndexOfIslands(std::string file, std::string message, uint64_t bytes) {
  HostileCase hostile = IndexThatIsAHole(std::move(file), std::move(message), bytes);
  hostile.island_every = 130'000;
  return hostile;
}

// A case that is too large for a store that is not trusted.
HostileCase Exceeding(HostileCase hostile) {
  hostile.code = absl::StatusCode::kResourceExhausted;
  return hostile;
}

std::string ShardWithTexts(uint64_t metrics, uint64_t properties) {
  storage::ShardIndex index = Tied(1, 0);
  for (uint64_t i = 0; i < metrics; ++i) index.metrics[fmt::format("{:x}", i)] = 1;
  for (uint64_t i = 0; i < properties; ++i) index.properties[fmt::format("{:x}", i)] = "";
  return ShardOfBytes(index);
}

// Entries of one chunk with names that a terminal gets at four times their length.
std::string ShardWithNames(uint64_t bytes) {
  constexpr size_t kNameBytes = 4000;
  storage::ShardIndex index = Tied(1, bytes / (kNameBytes + 32) - 1);
  for (storage::ShardEntry& entry : index.entries) entry.spec.name.resize(kNameBytes, '\x01');
  return ShardOfBytes(index);
}

}  // namespace

std::vector<HostileCase> HostileCosts() {
  using enum absl::StatusCode;
  constexpr storage::IndexBounds kBounds;
  const std::string damaged = "checksum of the stored bytes";
  const auto at_most = [](uint64_t bound, std::string_view what) {
    return fmt::format("shard index: expected at most {} {} in a store that is not trusted", bound, what);
  };
  return {
      {"cost-damaged_chunks_by_tied_entries.tmk", kDataLoss, damaged, ShardOfBytes(Tied(6'000, 6'000))},
      {"cost-chunks_by_tied_entries.tmk", kDataLoss, "chunk 59999 of entry 60000 at byte",
       TiedWithAWrongEnd(60'000, 60'000)},
      IndexThatIsAHole("cost-index_of_holes.tmk", "shard index: expected at most 131072 zeros in a row", kBounds.bytes),
      IndexOfIslands("cost-index_of_islands.tmk", "shard index: digest: expected", kBounds.bytes),
      Exceeding(IndexOfIslands("cost-largest_index_of_islands.tmk", at_most(kBounds.bytes, "bytes"),
                               storage::kIndexBytesMax)),
      {"cost-boxes_of_one_name.tmk", kDataLoss, damaged, ShardWithHoles(/*overlaps=*/false)},
      {"cost-boxes_that_overlap.tmk", kDataLoss, "its box [0:1] is that of entry 0, too",
       ShardWithHoles(/*overlaps=*/true)},
      {"cost-boxes_of_columns.tmk", kDataLoss, damaged, ShardWithColumns()},
      {"cost-boxes_of_rods.tmk", kDataLoss, "its 30000 boxes lie so that it takes too long to tell them apart",
       ShardWithRods()},
      {"cost-entries.tmk", kDataLoss, damaged, ShardOfBytes(Tied(1, kBounds.entries - 1))},
      {"cost-entries_and_one_more.tmk", kResourceExhausted, at_most(kBounds.entries, "entries"),
       ShardOfBytes(Tied(1, kBounds.entries))},
      {"cost-names.tmk", kDataLoss, damaged, ShardWithNames(kBounds.text_bytes - 4096)},
      {"cost-names_and_more.tmk", kResourceExhausted,
       at_most(kBounds.text_bytes, "bytes of names, shapes and properties"), ShardWithNames(kBounds.text_bytes + 8192)},
      {"cost-texts.tmk", kDataLoss, damaged, ShardWithTexts(kBounds.metrics, kBounds.properties)},
      {"cost-metrics_and_one_more.tmk", kResourceExhausted, at_most(kBounds.metrics, "metrics"),
       ShardWithTexts(kBounds.metrics + 1, 0)},
      {"cost-properties_and_one_more.tmk", kResourceExhausted, at_most(kBounds.properties, "properties"),
       ShardWithTexts(0, kBounds.properties + 1)},
  };
}

}  // namespace tidemark::fuzz
