// Hostile headers, footers and chunks.

#include <limits>

#include "fuzz/hostile_case.h"
#include "fuzz/store_image.h"
#include "storage/shard/format/chunk_codec.h"

namespace tidemark::fuzz {
namespace {

using storage::kShardBlockBytes;

constexpr size_t kChecksumOffset = kShardBlockBytes - sizeof(uint64_t);

// A shard of one entry with one chunk.
std::string ShardOf(std::string_view stored, const storage::ChunkRecord& record, EntrySpec spec) {
  storage::ShardIndex index;
  index.entries.push_back({.spec = std::move(spec), .first_chunk = 0, .chunk_count = 1});
  index.chunks.push_back(record);
  const storage::ShardHeader header{.identity = IdentityAt(kHostilePlace), .chunk_bytes = storage::kChunkBytesMax};
  return AssembleShard(header, stored, EncodeShardIndex(index));
}

std::string SoundShard() {
  const std::string bytes("\0\0\x80?\0\0\0\xc0", 8);
  const storage::ChunkRecord record{.raw_bytes = 8,
                                    .stored_bytes = 8,
                                    .offset = kShardBlockBytes,
                                    .digest = storage::DigestOf(AsBytes(bytes)),
                                    .checksum = storage::ChecksumOf(AsBytes(bytes))};
  return ShardOf(bytes, record, {.name = "w", .dtype = Dtype::kFloat32, .shape = {2}});
}

// Sets a field of the block at `block`, and makes the block's checksum right again.
template <typename T>
std::string With(std::string file, size_t block, size_t offset, T value) {
  std::memcpy(file.data() + block + offset, &value, sizeof(value));
  if (offset != kChecksumOffset) {
    const uint64_t checksum = storage::ChecksumOf(AsBytes(std::string_view(file).substr(block, kChecksumOffset)));
    std::memcpy(file.data() + block + kChecksumOffset, &checksum, sizeof(checksum));
  }
  return file;
}

}  // namespace

std::vector<HostileCase> HostileFrames() {
  using enum absl::StatusCode;
  const std::string sound = SoundShard();
  const size_t footer = sound.size() - kShardBlockBytes;
  const auto head = [&](size_t offset, auto value) { return With(sound, 0, offset, value); };
  const auto foot = [&](size_t offset, auto value) { return With(sound, footer, offset, value); };
  const std::string step = "step at byte 48: expected 0 or more";
  const std::string rank = "rank at byte 64: expected less than the world size";
  const std::string chunk = "chunk bytes at byte 72: expected a multiple of 4096 up to 67108864";
  const std::string file = "file bytes at byte 16";
  const std::string offset = "index offset at byte 24: expected a multiple of 4096";
  const std::string bytes = "index bytes at byte 32: expected 1 to 1073741824";
  return {
      {"header-magic.tmk", kDataLoss, "magic at byte 0: expected 'TMKSHARD'", head(0, '\x1b')},
      {"header-version_zero.tmk", kDataLoss, "version at byte 8: expected 1, found 0", head(8, uint32_t{0})},
      {"header-version_newer.tmk", kUnimplemented, "found 3: written by a newer version", head(8, uint32_t{3})},
      {"overflow-version.tmk", kUnimplemented, "found 4294967295", head(8, ~uint32_t{0})},
      {"header-byte_order.tmk", kDataLoss, "byte order at byte 12", head(12, uint32_t{0x04030201})},
      {"header-other_store.tmk", kDataLoss, "shard header: expected store a0a0", head(16, uint64_t{1})},
      {"header-other_attempt.tmk", kDataLoss, "shard header: expected store a0a0", head(32, uint64_t{1})},
      {"header-other_step.tmk", kDataLoss, "shard header: expected store a0a0", head(48, int64_t{2})},
      {"overflow-step_negative.tmk", kDataLoss, step, head(48, int64_t{-1})},
      {"overflow-step_lowest.tmk", kDataLoss, step, head(48, std::numeric_limits<int64_t>::min())},
      {"overflow-rank.tmk", kDataLoss, rank, head(64, ~uint32_t{0})},
      {"count-world_of_none.tmk", kDataLoss, rank, head(68, uint32_t{0})},
      {"header-rank_is_world.tmk", kDataLoss, rank, head(64, uint32_t{1})},
      {"count-chunk_bytes_zero.tmk", kDataLoss, chunk, head(72, uint32_t{0})},
      {"count-chunk_bytes_odd.tmk", kDataLoss, chunk, head(72, uint32_t{4097})},
      {"count-chunk_bytes_large.tmk", kDataLoss, chunk, head(72, uint32_t{(64 << 20) + 4096})},
      {"overflow-chunk_bytes.tmk", kDataLoss, chunk, head(72, uint32_t{0xfffff000})},
      {"header-padding.tmk", kDataLoss, "padding at byte 4000: expected zero", head(4000, 'x')},
      {"header-checksum.tmk", kDataLoss, "checksum at byte 4088", head(kChecksumOffset, uint64_t{7})},
      {"truncation-empty.tmk", kDataLoss, "found 0 bytes", ""},
      {"truncation-one_byte.tmk", kDataLoss, "found 1 bytes", "T"},
      {"truncation-header.tmk", kDataLoss, "found 4096 bytes", sound.substr(0, 4096)},
      {"truncation-no_footer.tmk", kDataLoss, "magic at byte 0: expected 'TMKFOOTR'", sound.substr(0, footer)},
      {"truncation-a_byte_less.tmk", kDataLoss, "size of a shard", sound.substr(0, sound.size() - 1)},
      {"truncation-a_byte_more.tmk", kDataLoss, "size of a shard", sound + "x"},
      {"truncation-a_block_more.tmk", kDataLoss, "'TMKFOOTR'", sound + std::string(4096, '\0')},
      {"overlap-two_shards.tmk", kDataLoss, file, sound + sound},
      {"footer-magic.tmk", kDataLoss, "magic at byte 0: expected 'TMKFOOTR'", foot(7, '\n')},
      {"footer-version_newer.tmk", kUnimplemented, "written by a newer version", foot(8, uint32_t{9})},
      {"footer-checksum.tmk", kDataLoss, "checksum at byte 4088", foot(kChecksumOffset, kUint64Max)},
      {"footer-padding.tmk", kDataLoss, "padding at byte 56", foot(56, '\1')},
      {"overflow-file_bytes.tmk", kDataLoss, file, foot(16, kUint64Max)},
      {"overflow-file_bytes_sign.tmk", kDataLoss, file, foot(16, uint64_t{1} << 63)},
      {"truncation-file_bytes.tmk", kDataLoss, file, foot(16, uint64_t{4096})},
      {"overlap-index_and_header.tmk", kDataLoss, offset, foot(24, uint64_t{0})},
      {"overlap-index_and_chunks.tmk", kDataLoss, bytes, foot(24, uint64_t{4096})},
      {"overlap-index_and_footer.tmk", kDataLoss, bytes, foot(24, uint64_t{footer})},
      {"overflow-index_offset.tmk", kDataLoss, offset, foot(24, kUint64Max - 4095)},
      {"overflow-index_offset_end.tmk", kDataLoss, offset, foot(24, uint64_t{sound.size() + 4096})},
      {"footer-index_offset_odd.tmk", kDataLoss, offset, foot(24, uint64_t{8193})},
      {"count-index_of_nothing.tmk", kDataLoss, bytes, foot(32, uint64_t{0})},
      {"count-index_larger_than_file.tmk", kDataLoss, bytes, foot(32, uint64_t{8192})},
      {"count-index_of_a_gib.tmk", kDataLoss, bytes, foot(32, uint64_t{1} << 30)},
      {"overflow-index_bytes.tmk", kDataLoss, bytes, foot(32, kUint64Max)},
      {"overflow-index_bytes_rounded.tmk", kDataLoss, bytes, foot(32, kUint64Max - 4000)},
      {"truncation-index.tmk", kDataLoss, "shard index: digest", foot(32, uint64_t{10})},
      {"footer-digest.tmk", kDataLoss, "shard index: digest", foot(40, uint64_t{0})},
  };
}

namespace {

struct Frame {
  std::string bytes;
  storage::Codec codec = storage::Codec::kZstd;
  uint32_t raw_bytes = 8192;
  uint8_t float_bytes = 0;
};

// A chunk with these stored bytes, whose checksum is right, and of whose digest nobody can know.
std::string Holding(const Frame& frame) {
  const storage::ChunkRecord record{.codec = frame.codec,
                                    .float_bytes = frame.float_bytes,
                                    .raw_bytes = frame.raw_bytes,
                                    .stored_bytes = static_cast<uint32_t>(frame.bytes.size()),
                                    .offset = kShardBlockBytes,
                                    .checksum = storage::ChecksumOf(AsBytes(frame.bytes))};
  return ShardOf(frame.bytes, record, {.name = "w", .dtype = Dtype::kUint8, .shape = {frame.raw_bytes}});
}

std::string LittleEndian(uint64_t value, size_t bytes) { return {reinterpret_cast<const char*>(&value), bytes}; }

// A zstd frame (RFC 8878): magic, descriptor, what it asks for, blocks.
constexpr std::string_view kMagic = "\x28\xb5\x2f\xfd";
// Content size of eight bytes in a single segment.
std::string Claiming(uint64_t size, std::string_view blocks) {
  return std::string(kMagic) + "\xe0" + LittleEndian(size, 8) + std::string(blocks);
}
// A block of one byte repeated; up to 128 KiB.
std::string RepeatedBlock(uint32_t size, bool last) {
  return LittleEndian(size << 3 | 1 << 1 | (last ? 1 : 0), 3) + "z";
}

std::string ManyRepeated(uint64_t size) {
  std::string blocks;
  constexpr uint32_t kBlock = 128 << 10;
  for (; size > kBlock; size -= kBlock) blocks += RepeatedBlock(kBlock, false);
  return blocks + RepeatedBlock(static_cast<uint32_t>(size), true);
}

}  // namespace

std::vector<HostileCase> HostileChunks() {
  using enum absl::StatusCode;
  constexpr uint32_t kBomb = 64 << 20;
  const std::string content = "zstd frame's content size: expected 8192 bytes";
  const std::string digest = "digest of the decoded bytes";
  const std::string one = Claiming(8192, RepeatedBlock(8192, true));
  const std::string gap = [] {
    std::string shard = SoundShard();
    shard[5000] = 'x';
    return shard;
  }();
  return {
      {"bomb-largest_chunk.tmk", kDataLoss, digest,
       Holding({Claiming(kBomb, ManyRepeated(kBomb)), storage::Codec::kZstd, kBomb})},
      {"bomb-largest_planes.tmk", kDataLoss, digest,
       Holding({Claiming(kBomb, ManyRepeated(kBomb)), storage::Codec::kPlanesZstd, kBomb, 8})},
      {"bomb-claims_a_tib.tmk", kDataLoss, content, Holding({Claiming(uint64_t{1} << 40, RepeatedBlock(8192, true))})},
      {"bomb-claims_everything.tmk", kDataLoss, content,
       Holding({Claiming(kUint64Max - 2, RepeatedBlock(8192, true))})},
      {"bomb-claims_a_byte_more.tmk", kDataLoss, content, Holding({Claiming(8193, RepeatedBlock(8193, true))})},
      {"bomb-holds_more_than_it_claims.tmk", kDataLoss, "zstd frame", Holding({Claiming(8192, ManyRepeated(1 << 20))})},
      {"bomb-holds_less_than_it_claims.tmk", kDataLoss, "zstd frame",
       Holding({Claiming(8192, RepeatedBlock(8191, true))})},
      {"bomb-claims_nothing.tmk", kDataLoss, "zstd frame: expected a content size, found none",
       Holding({std::string(kMagic) + std::string("\0\0", 2) + RepeatedBlock(8192, true)})},
      {"bomb-window_of_two_tib.tmk", kDataLoss, "zstd frame",
       Holding({std::string(kMagic) + "\xc0\xff" + LittleEndian(8192, 8) + RepeatedBlock(8192, true)})},
      {"bomb-frame_within_frame.tmk", kDataLoss, "zstd frame's content size",
       Holding({Claiming(one.size(), LittleEndian(one.size() << 3 | 1, 3) + one)})},
      {"bomb-two_frames.tmk", kDataLoss, "zstd frame's size", Holding({one + one})},
      {"bomb-bytes_behind_frame.tmk", kDataLoss, "zstd frame's size", Holding({one + "more"})},
      {"bomb-skippable_frame.tmk", kDataLoss, "zstd frame",
       Holding({"\x50\x2a\x4d\x18" + LittleEndian(4, 4) + "skip"})},
      {"bomb-skippable_frame_of_four_gib.tmk", kDataLoss, "zstd frame",
       Holding({"\x50\x2a\x4d\x18" + LittleEndian(~uint32_t{0}, 4)})},
      {"bomb-dictionary.tmk", kDataLoss, "zstd frame",
       Holding({std::string(kMagic) + "\xe3" + LittleEndian(0xdeadbeef, 4) + LittleEndian(8192, 8) +
                RepeatedBlock(8192, true)})},
      {"bomb-reserved_block.tmk", kDataLoss, "zstd frame", Holding({Claiming(8192, std::string("\x07\0\0", 3))})},
      {"bomb-no_frame.tmk", kDataLoss, "zstd frame: expected a frame, found no frame header",
       Holding({"no frame at all"})},
      {"bomb-old_frame.tmk", kDataLoss, "zstd frame", Holding({"\x27\xb5\x2f\xfd old"})},
      {"truncation-frame.tmk", kDataLoss, "zstd frame", Holding({one.substr(0, one.size() - 1)})},
      {"truncation-frame_magic.tmk", kDataLoss, "zstd frame", Holding({std::string(kMagic.substr(0, 3))})},
      {"overflow-planes.tmk", kDataLoss, digest, Holding({one, storage::Codec::kPlanesZstd, 8192, 8})},
      {"overlap-byte_of_nobody.tmk", kDataLoss, "padding byte at 5000: expected zero, found 0x78", gap},
  };
}

}  // namespace tidemark::fuzz
