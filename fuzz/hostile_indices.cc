// Hostile indices: a shard whose header, footer and digest are right.

#include <functional>
#include <limits>

#include "fmt/format.h"
#include "fuzz/hostile_case.h"
#include "fuzz/store_image.h"

namespace tidemark::fuzz {
namespace {

using storage::ChunkRecord;
using storage::Codec;
using storage::ShardIndex;

constexpr uint32_t kChunkBytes = storage::kChunkBytesMin;
constexpr size_t kBlock = storage::kShardBlockBytes;

// Where docs/format.md has the fields of an index without files: behind the preamble the chunks, then the entries.
constexpr size_t kChunksAt = 56;
constexpr size_t kChunkSize = 48;

ChunkRecord Raw(uint64_t offset, uint32_t bytes) {
  const std::string zeros(bytes, '\0');
  return {.raw_bytes = bytes,
          .stored_bytes = bytes,
          .offset = offset,
          .digest = storage::DigestOf(AsBytes(zeros)),
          .checksum = storage::ChecksumOf(AsBytes(zeros))};
}

storage::ShardEntry Entry(EntrySpec spec, uint64_t first = 0, uint64_t count = 1) {
  return {.spec = std::move(spec), .first_chunk = first, .chunk_count = count};
}

EntrySpec Bytes(std::string name, int64_t bytes) {
  return {.name = std::move(name), .dtype = Dtype::kUint8, .shape = {bytes}};
}

// Two entries with a chunk each.
ShardIndex Sound() {
  ShardIndex index;
  index.chunks = {Raw(kBlock, 4096), Raw(kBlock + 4096, 100)};
  index.entries = {Entry(Bytes("a", 4096), 0), Entry(Bytes("b", 100), 1)};
  return index;
}

std::string ShardWith(std::string_view index, bool repeats_names = false) {
  const storage::ShardHeader header{
      .identity = IdentityAt(kHostilePlace), .chunk_bytes = kChunkBytes, .repeats_names = repeats_names};
  return AssembleShard(header, std::string(3 * kBlock, '\0'), index);
}

// As it is, though it is none that the library would write.
std::string Changed(const std::function<void(ShardIndex&)>& change) {
  ShardIndex index = Sound();
  change(index);
  return ShardWith(EncodeShardIndex(index));
}

template <typename T>
std::string Patched(size_t offset, T value) {
  std::string index = EncodeShardIndex(Sound());
  std::memcpy(index.data() + offset, &value, sizeof(value));
  return ShardWith(index);
}

template <typename T>
std::string PatchedChunk(size_t chunk, size_t offset, T value) {
  return Patched(kChunksAt + chunk * kChunkSize + offset, value);
}

template <typename T>
std::string PatchedEntry(size_t offset, T value) {
  return Patched(kChunksAt + 2 * kChunkSize + offset, value);
}

std::string WithEntry(EntrySpec spec) {
  return Changed([&](ShardIndex& index) { index.entries[0].spec = std::move(spec); });
}

std::string WithBoxFlag(EntrySpec spec) {
  ShardIndex index = Sound();
  index.entries[0].spec = std::move(spec);
  std::string encoded = EncodeShardIndex(index);
  encoded[kChunksAt + 2 * kChunkSize + 3] = 1;
  return ShardWith(encoded);
}

std::string WithName(std::string name) { return WithEntry(Bytes(std::move(name), 4096)); }

std::string WithReference(storage::FileReference file) {
  return Changed([&](ShardIndex& index) {
    index.files = {file};
    index.chunks[0].file = 1;
  });
}

}  // namespace

namespace {

std::vector<HostileCase> HostileCounts() {
  using enum absl::StatusCode;
  const std::string encoded = EncodeShardIndex(Sound());
  const std::string at_most = ": expected at most ";
  return {
      {"index-magic.tmk", kDataLoss, "magic at byte 0: expected 'TMKINDEX'", Patched(0, '\x7f')},
      {"count-chunks_all.tmk", kDataLoss, "chunk count at byte 56" + at_most, Patched(8, kUint64Max)},
      {"count-chunks_product_is_zero.tmk", kDataLoss, "chunk count at byte 56" + at_most,
       Patched(8, uint64_t{1} << 60)},
      {"count-chunks_one_more.tmk", kDataLoss, "of chunk 2 at byte 152", Patched(8, uint64_t{3})},
      {"count-chunks_none.tmk", kDataLoss, "of entry 0 at byte", Patched(8, uint64_t{0})},
      {"count-entries_all.tmk", kDataLoss, "entry count at byte 152" + at_most, Patched(16, kUint64Max)},
      {"count-entries_billion.tmk", kDataLoss, "entry count at byte 152" + at_most, Patched(16, uint64_t{1} << 30)},
      {"count-entries_none.tmk", kDataLoss, "chunks of all entries at byte 152: expected all 2 chunks",
       Patched(16, uint64_t{0})},
      {"count-files_too_many.tmk", kDataLoss, "file count at byte 24: expected at most 65535, found 65536",
       Patched(24, uint32_t{65536})},
      {"count-files_not_there.tmk", kDataLoss, "file count at byte 56" + at_most, Patched(24, uint32_t{65535})},
      {"count-metrics_all.tmk", kDataLoss, "metric count at byte", Patched(28, ~uint32_t{0})},
      {"count-properties_all.tmk", kDataLoss, "property count at byte", Patched(32, ~uint32_t{0})},
      {"count-metadata_too_large.tmk", kDataLoss, "user metadata bytes at byte 36: expected at most 16777216",
       Patched(36, ~uint32_t{0})},
      {"count-metadata_not_there.tmk", kDataLoss, "user metadata at byte", Patched(36, uint32_t{16 << 20})},
      {"truncation-index_preamble.tmk", kDataLoss, "entry count at byte 16: expected 8 bytes, found 4 bytes left",
       ShardWith(encoded.substr(0, 20))},
      {"truncation-index_chunk.tmk", kDataLoss, "chunk count at byte 56", ShardWith(encoded.substr(0, 100))},
      {"truncation-index_entry.tmk", kDataLoss, "entry count at byte 152", ShardWith(encoded.substr(0, 170))},
      {"truncation-index_one_byte.tmk", kDataLoss, "chunk count", ShardWith("TMKINDEX")},
      {"truncation-index_end.tmk", kDataLoss, "user metadata at byte",
       ShardWith(encoded.substr(0, encoded.size() - 1))},
      {"index-more_behind.tmk", kDataLoss, "end at byte", ShardWith(encoded + "x")},
  };
}

std::vector<HostileCase> HostileChunkRecords() {
  using enum absl::StatusCode;
  const std::string offset = "offset of chunk 0 at byte 56: expected 4096 to";
  return {
      {"chunk-codec_unknown.tmk", kDataLoss, "codec of chunk 0 at byte 56: expected 0, 1 or 2, found 3",
       PatchedChunk(0, 0, uint8_t{3})},
      {"chunk-codec_largest.tmk", kDataLoss, "found 255", PatchedChunk(0, 0, uint8_t{255})},
      {"chunk-float_bytes_of_raw.tmk", kDataLoss, "float bytes of chunk 0", PatchedChunk(0, 1, uint8_t{4})},
      {"chunk-float_bytes_three.tmk", kDataLoss, "float bytes of chunk 0 at byte 56: expected 2, 4 or 8, found 3",
       Changed([](ShardIndex& index) {
         index.chunks[0].codec = Codec::kPlanesZstd;
         index.chunks[0].float_bytes = 3;
         index.chunks[0].stored_bytes = 5;
       })},
      {"chunk-planes_odd.tmk", kDataLoss, "raw bytes of chunk 1", Changed([](ShardIndex& index) {
         index.chunks[1].codec = Codec::kPlanesZstd;
         index.chunks[1].float_bytes = 8;
         index.chunks[1].stored_bytes = 5;
       })},
      {"count-chunk_of_nothing.tmk", kDataLoss, "raw bytes of chunk 0 at byte 56: expected 1 to 67108864, found 0",
       PatchedChunk(0, 4, uint32_t{0})},
      {"bomb-chunk_too_large.tmk", kDataLoss, "raw bytes of chunk 0", PatchedChunk(0, 4, uint32_t{(64 << 20) + 1})},
      {"overflow-chunk_raw_bytes.tmk", kDataLoss, "raw bytes of chunk 0", PatchedChunk(0, 4, ~uint32_t{0})},
      {"overflow-chunk_stored_bytes.tmk", kDataLoss, "stored bytes of chunk 0", PatchedChunk(0, 8, ~uint32_t{0})},
      {"count-chunk_stored_as_nothing.tmk", kDataLoss, "stored bytes of chunk 0", Changed([](ShardIndex& index) {
         index.chunks[0].codec = Codec::kZstd;
         index.chunks[0].stored_bytes = 0;
       })},
      {"bomb-chunk_grows_when_stored.tmk", kDataLoss, "stored bytes of chunk 0", Changed([](ShardIndex& index) {
         index.chunks[0].codec = Codec::kZstd;
         index.chunks[0].stored_bytes = 4096;
       })},
      {"index-chunk_padding.tmk", kDataLoss, "chunk padding at byte 68: expected zero", PatchedChunk(0, 12, '\1')},
      {"overlap-chunk_and_header.tmk", kDataLoss, offset, PatchedChunk(0, 16, uint64_t{0})},
      {"overlap-chunk_and_index.tmk", kDataLoss, offset, PatchedChunk(0, 16, uint64_t{4 * kBlock - 4095})},
      {"overflow-chunk_offset.tmk", kDataLoss, offset, PatchedChunk(0, 16, kUint64Max)},
      {"overflow-chunk_end.tmk", kDataLoss, offset, PatchedChunk(0, 16, kUint64Max - 4095)},
      {"overflow-chunk_offset_sign.tmk", kDataLoss, offset, PatchedChunk(0, 16, uint64_t{1} << 63)},
      {"overlap-same_chunk.tmk", kDataLoss, "offset of chunk 1 at byte 104: expected 8192 or more, where chunk 0 ends",
       PatchedChunk(1, 16, uint64_t{4096})},
      {"overlap-last_byte.tmk", kDataLoss, "offset of chunk 1", PatchedChunk(1, 16, uint64_t{8191})},
      {"overlap-backwards.tmk", kDataLoss, "offset of chunk 0 at byte 56: expected 4196 or more, where chunk 1 ends",
       Changed([](ShardIndex& index) {
         index.chunks[0].offset = kBlock + 50;
         index.chunks[1].offset = kBlock;
       })},
      {"chunk-other_digest.tmk", kDataLoss, "digest of the decoded bytes", PatchedChunk(0, 32, uint64_t{1})},
      {"chunk-other_checksum.tmk", kDataLoss, "checksum of the stored bytes", PatchedChunk(0, 24, uint64_t{1})},
      {"path-file_not_listed.tmk", kDataLoss, "file of chunk 0 at byte 56: expected at most 0, found 65535",
       PatchedChunk(0, 2, uint16_t{65535})},
      {"path-file_not_there.tmk", kDataLoss, "0000000007-",
       WithReference({.step = 7, .attempt = IdentityAt(3).attempt})},
      {"path-file_of_largest_step.tmk", kDataLoss, "9223372036854775807-",
       WithReference({.step = std::numeric_limits<int64_t>::max()})},
      {"path-file_is_the_shard_itself.tmk", kDataLoss, "attempt of file 1 at byte 56: expected another shard",
       WithReference({.step = IdentityAt(kHostilePlace).step, .attempt = IdentityAt(kHostilePlace).attempt})},
      {"overflow-file_step.tmk", kDataLoss, "step of file 1 at byte 56: expected 0 or more",
       WithReference({.step = -1})},
      {"count-file_world_of_none.tmk", kDataLoss, "rank of file 1", WithReference({.world_size = 0})},
      {"overflow-file_rank.tmk", kDataLoss, "rank of file 1", WithReference({.rank = ~uint32_t{0}})},
      {"overflow-offset_in_file.tmk", kDataLoss, "offset of chunk 0", Changed([](ShardIndex& index) {
         index.files = {{.step = 7}};
         index.chunks[0].file = 1;
         index.chunks[0].offset = uint64_t{1} << 63;
       })},
  };
}

std::vector<HostileCase> HostileEntries() {
  using enum absl::StatusCode;
  constexpr int64_t k2To32 = int64_t{1} << 32;
  const std::string utf8 = "an entry has a name that is not UTF-8";
  const std::string count = "has more bytes than 63 bits can count";
  const auto shaped = [](std::vector<int64_t> shape) {
    return WithEntry({.name = "a", .dtype = Dtype::kFloat64, .shape = std::move(shape)});
  };
  const auto boxed = [](int64_t extent, int64_t offset, int64_t held) {
    return WithEntry(
        {.name = "a", .dtype = Dtype::kUint8, .shape = {extent}, .box_offset = {offset}, .box_extent = {held}});
  };
  const auto ranged = [](uint64_t first, uint64_t chunks) {
    return Changed([=](ShardIndex& index) { index.entries[1] = Entry(Bytes("b", 100), first, chunks); });
  };
  return {
      {"entry-name_empty.tmk", kDataLoss, "an entry has an empty name", WithName("")},
      {"count-name_too_long.tmk", kDataLoss, "name bytes of entry 0 at byte 152: expected at most 4096",
       PatchedEntry(0, uint16_t{4097})},
      {"overflow-name_bytes.tmk", kDataLoss, "name bytes of entry 0", PatchedEntry(0, uint16_t{65535})},
      {"utf8-no_lead.tmk", kDataLoss, utf8, WithName("\x80")},
      {"utf8-never.tmk", kDataLoss, utf8, WithName("\xff\xfe")},
      {"utf8-overlong_slash.tmk", kDataLoss, utf8, WithName("..\xc0\xaf..")},
      {"utf8-overlong_nul.tmk", kDataLoss, utf8, WithName("\xe0\x80\x80")},
      {"utf8-surrogate.tmk", kDataLoss, utf8, WithName("\xed\xa0\x80")},
      {"utf8-beyond_unicode.tmk", kDataLoss, utf8, WithName("\xf4\x90\x80\x80")},
      {"utf8-cut_short.tmk", kDataLoss, utf8, WithName("name\xe2\x82")},
      {"name-twice.tmk", kDataLoss, "expected one that no other entry has, found 'b' again",
       Changed([](ShardIndex& index) { index.entries[0].spec.name = "b"; })},
      {"name-twice_with_escapes.tmk", kDataLoss, "found '\\x1b[2J\\n' again",
       Changed([](ShardIndex& index) { index.entries[0].spec.name = index.entries[1].spec.name = "\x1b[2J\n"; })},
      {"entry-kind_unknown.tmk", kDataLoss, "kind 9 is unknown", PatchedEntry(2, uint8_t{9})},
      {"entry-flags_unknown.tmk", kDataLoss, "flags of entry 0 at byte 152: expected 0 or 1, found 128",
       PatchedEntry(3, uint8_t{128})},
      {"entry-dtype_unknown.tmk", kDataLoss, "dtype 65535 is unknown", PatchedEntry(4, uint16_t{65535})},
      {"count-dimensions.tmk", kDataLoss, "dimensions of entry 0 at byte 152: expected at most 64, found 65535",
       PatchedEntry(6, uint16_t{65535})},
      {"entry-box_without_dimensions.tmk", kDataLoss, "expected no box without dimensions",
       WithBoxFlag({.name = "a", .dtype = Dtype::kFloat64})},
      {"overflow-extent_negative.tmk", kDataLoss, "has a negative extent", shaped({-1})},
      {"overflow-extent_lowest.tmk", kDataLoss, "has a negative extent",
       shaped({std::numeric_limits<int64_t>::min(), 2})},
      {"overflow-product.tmk", kDataLoss, count, shaped({k2To32, k2To32})},
      {"overflow-product_of_bytes.tmk", kDataLoss, count, shaped({k2To32, k2To32 / 8})},
      {"overflow-product_behind_zero.tmk", kDataLoss, count, shaped({0, k2To32, k2To32})},
      {"overflow-extents_of_64.tmk", kDataLoss, count, shaped(std::vector<int64_t>(64, 2))},
      {"bomb-tensor_of_an_eib.tmk", kDataLoss, "chunk count of entry 0", shaped({int64_t{1} << 57})},
      {"overlap-box_leaves_shape.tmk", kDataLoss, "leaves dimension 0", boxed(4096, 1, 4096)},
      {"overflow-box_end.tmk", kDataLoss, "leaves dimension 0", boxed(4096, std::numeric_limits<int64_t>::max(), 4096)},
      {"overflow-box_negative.tmk", kDataLoss, "leaves dimension 0", boxed(4096, -4096, 8192)},
      {"bomb-string_too_large.tmk", kDataLoss, "bytes, more than 1073741824",
       WithEntry({.name = "a", .kind = EntryKind::kString, .dtype = Dtype::kUint8, .shape = {(int64_t{1} << 30) + 1}})},
      {"entry-number_with_shape.tmk", kDataLoss, "dtype or shape do not fit its kind, int64",
       WithEntry({.name = "a", .kind = EntryKind::kInt64, .dtype = Dtype::kInt64, .shape = {512}})},
      {"overflow-first_chunk.tmk", kDataLoss, "first chunk of entry 1", ranged(kUint64Max, 1)},
      {"overflow-chunk_range.tmk", kDataLoss, "chunk count of entry 1", ranged(1, kUint64Max)},
      {"overlap-chunk_ranges.tmk", kDataLoss, "raw bytes", ranged(0, 1)},
      {"entry-chunk_left_out.tmk", kDataLoss, "first chunk of entry 1 at byte", ranged(2, 1)},
      {"entry-nothing_at_a_chunk.tmk", kDataLoss, "first chunk of entry 1",
       Changed([](ShardIndex& index) { index.entries[1] = Entry(Bytes("b", 0), 1, 0); })},
      {"entry-chunk_of_nobody.tmk", kDataLoss, "chunks of all entries",
       Changed([](ShardIndex& index) { index.entries.pop_back(); })},
      {"entry-chunk_too_small.tmk", kDataLoss, "expected 4096 raw bytes, found 100",
       Changed([](ShardIndex& index) { index.entries = {Entry(Bytes("a", 8192), 0, 2)}; })},
  };
}

// Entries of one name. Two boxes of a tensor, as `change` leaves them.
std::vector<HostileCase> HostileBoxes() {
  using enum absl::StatusCode;
  const auto boxes = [](const std::function<void(EntrySpec&)>& change, bool repeats_names = true) {
    ShardIndex index = Sound();
    for (int64_t i = 0; i < 2; ++i) {
      index.entries[i].spec = {.name = "w\n",
                               .dtype = Dtype::kUint8,
                               .shape = {4196},
                               .box_offset = {4096 * i},
                               .box_extent = {i == 0 ? 4096 : 100}};
    }
    change(index.entries[1].spec);
    return ShardWith(EncodeShardIndex(index), repeats_names);
  };
  const std::string again = "expected one that no other entry has, or another box of its tensor, found 'w\\n' again: ";
  return {
      {"name-boxes_of_version_1.tmk", kDataLoss, "expected one that no other entry has, found 'w\\n' again",
       boxes([](EntrySpec&) {}, /*repeats_names=*/false)},
      {"name-boxes_of_none.tmk", kDataLoss,
       "expected one that several have, as version 2 of the header says, found none",
       boxes([](EntrySpec& spec) { spec.name = "v"; })},
      {"overlap-boxes.tmk", kDataLoss, again + "its box [4095:4195] overlaps with [0:4096] of entry 0",
       boxes([](EntrySpec& spec) { spec.box_offset = {4095}; })},
      {"overlap-box_and_whole.tmk", kDataLoss, again + "another entry has the same name",
       boxes([](EntrySpec& spec) { spec = Bytes(spec.name, 100); })},
      {"name-boxes_of_other_shapes.tmk", kDataLoss,
       again + "it is uint8 [4197], and entry 0 of that name is uint8 [4196]",
       boxes([](EntrySpec& spec) { spec.shape = {4197}; })},
      {"name-boxes_of_other_dimensions.tmk", kDataLoss, again + "it is uint8 [4196, 1], and entry 0",
       boxes([](EntrySpec& spec) {
         spec.shape.push_back(1);
         spec.box_offset.push_back(0);
         spec.box_extent.push_back(1);
       })},
      {"name-boxes_of_text.tmk", kDataLoss, again + "another entry has the same name",
       boxes([](EntrySpec& spec) { spec.kind = EntryKind::kString; })},
  };
}

// Keys of metrics and properties; the library writes those of a map, which are right.
std::vector<HostileCase> HostileKeys() {
  using enum absl::StatusCode;
  const auto metrics = [](std::vector<std::string> names) {
    return Changed([&](ShardIndex& index) {
      for (std::string& name : names) index.metrics[std::move(name)] = 1;
    });
  };
  const auto property = [](std::string key, size_t bytes) {
    return Changed([&](ShardIndex& index) { index.properties[std::move(key)] = std::string(bytes, 'x'); });
  };
  const auto replaced = [](std::string shard, std::string_view from, std::string_view to) {
    const size_t index = 4 * kBlock;
    std::string encoded = shard.substr(index, shard.rfind("{}", shard.size() - kBlock) + 2 - index);
    encoded.replace(encoded.find(from), from.size(), to);
    return ShardWith(encoded);
  };
  return {
      {"name-metric_twice.tmk", kDataLoss, "expected one after 'xx' in byte order, found 'xx'",
       replaced(metrics({"xx", "yy"}), "yy", "xx")},
      {"name-metric_out_of_order.tmk", kDataLoss, "expected one after 'xx' in byte order, found 'aa'",
       replaced(metrics({"xx", "yy"}), "yy", "aa")},
      {"name-metric_with_escapes.tmk", kDataLoss, "found '\\x1b\\n'", replaced(metrics({"xx", "yy"}), "yy", "\x1b\n")},
      {"name-metric_not_utf8.tmk", kDataLoss, "expected one after '\\xff\\xff' in byte order",
       replaced(metrics({"xx", "yy"}), "xx", "\xff\xff")},
      {"name-metric_empty.tmk", kDataLoss, "metric name at byte", metrics({""})},
      {"count-metric_name.tmk", kDataLoss, "metric name at byte", metrics({std::string(4097, 'x')})},
      {"name-property_empty.tmk", kDataLoss, "property key at byte", property("", 1)},
      {"count-property_value.tmk", kDataLoss, "property value bytes at byte", property("k", (64 << 10) + 1)},
  };
}

// Deltas to a shard that is not there. What is wrong with most of them is found before the base is looked for.
std::vector<HostileCase> HostileDeltas() {
  using enum absl::StatusCode;
  constexpr size_t kBaseFileAt = 56 + 16;
  ShardIndex index = Sound();
  index.files = {{.step = 7, .attempt = IdentityAt(3).attempt}};
  storage::IndexBase base = {.file = 1, .changed_chunks = {true, true}, .changed_entries = {false, false}};
  const std::string delta = EncodeShardIndex(index, base);
  const auto patched = [&](size_t offset, auto value) {
    std::string encoded = delta;
    std::memcpy(encoded.data() + offset, &value, sizeof(value));
    return ShardWith(encoded);
  };
  index.files = {{.step = IdentityAt(kHostilePlace).step, .attempt = IdentityAt(kHostilePlace).attempt}};
  return {
      {"delta-base_is_no_file.tmk", kDataLoss, "base file at byte 72: expected 1 to 1, found 0",
       patched(kBaseFileAt, uint32_t{0})},
      {"delta-base_not_listed.tmk", kDataLoss, "base file at byte 72: expected 1 to 1, found 4294967295",
       patched(kBaseFileAt, ~uint32_t{0})},
      {"delta-base_not_there.tmk", kNotFound, "0000000007-", ShardWith(delta)},
      {"delta-base_is_the_shard_itself.tmk", kDataLoss, "attempt of file 1 at byte 88: expected another shard",
       ShardWith(EncodeShardIndex(index, base))},
      {"delta-entries_all.tmk", kNotFound, "0000000007-", patched(16, kUint64Max)},
      {"delta-files_all.tmk", kDataLoss, "file count", patched(24, uint32_t{storage::kFileReferencesMax})},
  };
}

}  // namespace

std::vector<HostileCase> HostileIndices() {
  std::vector<HostileCase> cases = HostileCounts();
  for (const auto& more : {HostileChunkRecords(), HostileEntries(), HostileBoxes(), HostileKeys(), HostileDeltas()}) {
    cases.insert(cases.end(), more.begin(), more.end());
  }
  return cases;
}

}  // namespace tidemark::fuzz
