// EncodeShardIndex and DecodeShardIndex.

#include <cstring>
#include <functional>
#include <limits>

#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"
#include "storage/shard/format/shard_format.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

constexpr uint64_t kIndexOffset = 1 << 20;

ChunkRecord Chunk(uint64_t offset, uint32_t raw, uint32_t stored, Codec codec, uint8_t float_bytes = 0) {
  ChunkRecord chunk;
  chunk.codec = codec;
  chunk.float_bytes = float_bytes;
  chunk.raw_bytes = raw;
  chunk.stored_bytes = stored;
  chunk.offset = offset;
  chunk.checksum = offset * 3;
  chunk.digest.bytes = {1, 2, 3};
  return chunk;
}

// Two chunks of weights and what is tied to them, a box of one chunk that lies in another shard, nothing, a number.
ShardIndex TestIndex() {
  ShardIndex index;
  index.created_unix_ns = -5;
  index.blocked_ns = 7;
  FileReference file;
  file.attempt.bytes = {9};
  file.step = 900;
  file.rank = 1;
  file.world_size = 2;
  index.files = {file};
  index.chunks = {Chunk(4096, 65536, 40000, Codec::kPlanesZstd, 4), Chunk(44096, 1000, 1000, Codec::kRaw),
                  Chunk(8000, 4000, 3000, Codec::kZstd), Chunk(45096, 8, 8, Codec::kRaw)};
  index.chunks[2].file = 1;
  index.entries = {{Tensor("weight", Dtype::kFloat32, {66536 / 4}), 0, 2},
                   {Tensor("tied", Dtype::kFloat32, {66536 / 4}), 0, 2},
                   {Tensor("box", Dtype::kFloat64, {100, 50}), 2, 1},
                   {Tensor("empty", Dtype::kInt8, {0}), 0, 0},
                   {{.name = "epoch", .kind = EntryKind::kInt64, .dtype = Dtype::kInt64}, 3, 1}};
  index.entries[2].spec.box_offset = {0, 10};
  index.entries[2].spec.box_extent = {100, 5};
  index.metrics = {{"accuracy", 0.5}, {"loss", -1.0}};
  index.user_metadata = R"({"a": 1})";
  index.properties = {{"compression", "space"}, {"io", ""}};
  return index;
}

// Where the parts of TestIndex begin.
constexpr size_t kFilesAt = 56;
constexpr size_t kChunksAt = kFilesAt + 32;
constexpr size_t kEntriesAt = kChunksAt + 4 * 48;

absl::StatusOr<ShardIndex> Decode(const std::string& bytes, bool repeats_names = false) {
  ShardFooter footer;
  footer.index_offset = kIndexOffset;
  footer.index_bytes = bytes.size();
  footer.index_digest = DigestOf(AsBytes(bytes));
  return DecodeShardIndex(AsBytes(bytes), {TestIdentity(), kTestChunkBytes, repeats_names}, footer);
}

// More than there is room for ahead, so that they move while they are read.
TEST(ShardIndex, FindsANameAgainAmongAHundredThousand) {
  ShardIndex index;
  for (int i = 0; i < 100'000; ++i) index.entries.push_back({Tensor("e" + std::to_string(i), Dtype::kInt8, {0}), 0, 0});
  const auto decoded = Decode(EncodeShardIndex(index));
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(decoded->entries, index.entries);
  index.entries.back().spec.name = "e7";
  EXPECT_THAT(Decode(EncodeShardIndex(index)), StatusIs(StatusCode::kDataLoss, HasSubstr("found 'e7' again")));
}

TEST(ShardIndex, SurvivesARoundTrip) {
  const std::string bytes = EncodeShardIndex(TestIndex());
  EXPECT_EQ(bytes.size(), EncodedShardIndexBytes(TestIndex()));
  const auto decoded = Decode(bytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, TestIndex());
}

// TestIndex with more boxes of "box": rows beside its columns, and none.
ShardIndex IndexOfBoxes() {
  ShardIndex index = TestIndex();
  index.chunks.push_back(Chunk(45104, 90, 90, Codec::kRaw));
  index.chunks.back().raw_bytes = index.chunks.back().stored_bytes = 3 * 10 * 8;
  index.entries.push_back({index.entries[2].spec, 4, 1});
  index.entries.back().spec.box_offset = {97, 0};
  index.entries.back().spec.box_extent = {3, 10};
  index.entries.push_back({index.entries[2].spec, 0, 0});
  index.entries.back().spec.box_extent = {0, 5};
  return index;
}

TEST(ShardIndex, HasSeveralBoxesOfATensorIfTheHeaderSaysSo) {
  const std::string bytes = EncodeShardIndex(IndexOfBoxes());
  const auto decoded = Decode(bytes, /*repeats_names=*/true);
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(*decoded, IndexOfBoxes());
  EXPECT_THAT(Decode(bytes),
              StatusIs(StatusCode::kDataLoss, HasSubstr("expected one that no other entry has, found 'box' again")));
}

TEST(ShardIndex, RepeatsANameIfTheHeaderSaysSo) {
  EXPECT_THAT(
      Decode(EncodeShardIndex(TestIndex()), /*repeats_names=*/true),
      StatusIs(StatusCode::kDataLoss, HasSubstr("names of all entries at byte 495: expected one that several have, as "
                                                "version 2 of the header says, found none")));
}

TEST(ShardIndex, RefusesOtherEntriesOfOneName) {
  const std::string expected =
      "name of entry 5 at byte 543: expected one that no other entry has, or another box of its tensor, found ";
  ShardIndex index = IndexOfBoxes();
  index.entries[5].spec.box_offset = {97, 1};
  EXPECT_THAT(
      Decode(EncodeShardIndex(index), true),
      StatusIs(StatusCode::kDataLoss,
               HasSubstr(expected + "'box' again: its box [97:100, 1:11] overlaps with [0:100, 10:15] of entry 2")));
  index = IndexOfBoxes();
  index.entries[5].spec.shape[0] = 101;
  EXPECT_THAT(
      Decode(EncodeShardIndex(index), true),
      StatusIs(
          StatusCode::kDataLoss,
          HasSubstr(expected + "'box' again: it is float64 [101, 50], and entry 2 of that name is float64 [100, 50]")));
  index = IndexOfBoxes();
  index.entries[5].spec.name = "weight";
  EXPECT_THAT(Decode(EncodeShardIndex(index), true),
              StatusIs(StatusCode::kDataLoss, HasSubstr(expected + "'weight' again: another entry has the same name")));
}

TEST(ShardIndex, SurvivesARoundTripWithNothingInIt) {
  const auto decoded = Decode(EncodeShardIndex({}));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(*decoded, ShardIndex());
}

TEST(ShardIndex, KeepsMetricsThatAreNoNumbers) {
  ShardIndex index;
  index.metrics = {{"inf", -std::numeric_limits<double>::infinity()}, {"nan", std::nan("")}};
  const auto decoded = Decode(EncodeShardIndex(index));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->metrics.at("inf"), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(decoded->metrics.at("nan")));
}

TEST(ShardIndex, TakesChunksInAnyOrder) {
  ShardIndex index = TestIndex();
  std::swap(index.chunks[1].offset, index.chunks[3].offset);
  index.chunks[1].offset = 44104;
  index.chunks[3].offset = 44096;
  EXPECT_TRUE(Decode(EncodeShardIndex(index)).ok());
}

TEST(ShardIndex, RefusesAnotherDigest) {
  const std::string bytes = EncodeShardIndex(TestIndex());
  ShardFooter footer;
  footer.index_offset = kIndexOffset;
  footer.index_bytes = bytes.size();
  EXPECT_THAT(DecodeShardIndex(AsBytes(bytes), {TestIdentity(), kTestChunkBytes}, footer).status(),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("shard index: digest: expected 00000000000000000000000000000000, found")));
}

TEST(ShardIndex, RefusesAnotherSize) {
  EXPECT_THAT(DecodeShardIndex(AsBytes("abc"), {TestIdentity(), kTestChunkBytes}, {.index_bytes = 4}).status(),
              StatusIs(StatusCode::kDataLoss, "shard index: size: expected 4 bytes, found 3 bytes"));
}

TEST(ShardIndex, RefusesEveryTruncation) {
  const std::string bytes = EncodeShardIndex(TestIndex());
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(Decode(bytes.substr(0, size)).status().code(), StatusCode::kDataLoss) << size;
  }
}

// What a writer with a bug, or a stranger, might put down.
struct IndexViolation {
  const char* name;
  std::function<void(ShardIndex*)> change;
  const char* message;
};
void PrintTo(const IndexViolation& violation, std::ostream* out) { *out << violation.name; }

class ShardIndexViolation : public ::testing::TestWithParam<IndexViolation> {};

TEST_P(ShardIndexViolation, IsRefused) {
  ShardIndex index = TestIndex();
  GetParam().change(&index);
  EXPECT_THAT(Decode(EncodeShardIndex(index)).status(), StatusIs(StatusCode::kDataLoss, HasSubstr(GetParam().message)));
}

const IndexViolation kViolations[] = {
    {"FileNegativeStep", [](auto* i) { i->files[0].step = -1; },
     "shard index: step of file 1 at byte 56: expected 0 or more, found -1"},
    {"FileRankBeyondWorld", [](auto* i) { i->files[0].rank = 2; },
     "rank of file 1 at byte 56: expected less than the world size, 2, found 2"},
    {"FileIsThisShard",
     [](auto* i) {
       i->files[0] = {TestIdentity().step, TestIdentity().attempt, 0, 1};
     },
     "attempt of file 1 at byte 56: expected another shard, found this shard itself"},
    {"ChunkCodec", [](auto* i) { i->chunks[1].codec = static_cast<Codec>(3); },
     "shard index: codec of chunk 1 at byte 136: expected 0, 1 or 2, found 3"},
    {"ChunkNoRawBytes", [](auto* i) { i->chunks[1].raw_bytes = 0; },
     "raw bytes of chunk 1 at byte 136: expected 1 to 67108864, found 0"},
    {"ChunkHugeRawBytes", [](auto* i) { i->chunks[0].raw_bytes = (64 << 20) + 4; },
     "raw bytes of chunk 0 at byte 88: expected 1 to 67108864, found 67108868"},
    {"RawChunkOfAnotherSize", [](auto* i) { i->chunks[1].stored_bytes = 999; },
     "stored bytes of chunk 1 at byte 136: expected 1000, the raw bytes of a raw chunk, found 999"},
    {"CompressedChunkNotSmaller", [](auto* i) { i->chunks[2].stored_bytes = 4000; },
     "stored bytes of chunk 2 at byte 184: expected 1 to 3999, fewer than the raw bytes of a compressed chunk, found "
     "4000"},
    {"CompressedChunkOfNothing", [](auto* i) { i->chunks[2].stored_bytes = 0; },
     "stored bytes of chunk 2 at byte 184: expected 1 to 3999"},
    {"FloatBytesWithoutPlanes", [](auto* i) { i->chunks[2].float_bytes = 8; },
     "float bytes of chunk 2 at byte 184: expected 0 where nothing was split, found 8"},
    {"PlanesWithoutFloatBytes", [](auto* i) { i->chunks[0].float_bytes = 0; },
     "float bytes of chunk 0 at byte 88: expected 2, 4 or 8, found 0"},
    {"PlanesOfThree", [](auto* i) { i->chunks[0].float_bytes = 3; }, "expected 2, 4 or 8, found 3"},
    {"PlanesThatDoNotDivide", [](auto* i) { i->chunks[0].raw_bytes = 65534; },
     "raw bytes of chunk 0 at byte 88: expected a multiple of the 4 float bytes, found 65534"},
    {"ChunkOfNoFile", [](auto* i) { i->chunks[2].file = 2; },
     "file of chunk 2 at byte 184: expected at most 1, found 2"},
    {"ChunkInHeader", [](auto* i) { i->chunks[1].offset = 4095; },
     "offset of chunk 1 at byte 136: expected 4096 to 1048576 less the 1000 stored bytes, found 4095"},
    {"ChunkInIndex", [](auto* i) { i->chunks[1].offset = kIndexOffset - 999; },
     "offset of chunk 1 at byte 136: expected 4096 to 1048576 less the 1000 stored bytes, found 1047577"},
    {"ChunkBeyondTheFile", [](auto* i) { i->chunks[1].offset = ~uint64_t{0}; },
     "offset of chunk 1 at byte 136: expected 4096 to 1048576"},
    {"ReferencedChunkInHeader", [](auto* i) { i->chunks[2].offset = 0; },
     "offset of chunk 2 at byte 184: expected 4096 to 9223372036854775807"},
    {"ReferencedChunkBeyondAnyFile", [](auto* i) { i->chunks[2].offset = std::numeric_limits<int64_t>::max() - 2999; },
     "offset of chunk 2 at byte 184: expected 4096 to 9223372036854775807 less the 3000 stored bytes"},
    {"LargeChunkNotAligned",
     [](auto* i) {
       i->chunks[0].codec = Codec::kRaw;
       i->chunks[0].float_bytes = 0;
       i->chunks[0].stored_bytes = 65536;
       i->chunks[0].offset = 100000;
     },
     "offset of chunk 0 at byte 88: expected a multiple of 4096 for a chunk of 65536 stored bytes, found 100000"},
    {"OverlappingChunks", [](auto* i) { i->chunks[1].offset = 44095; },
     "offset of chunk 1 at byte 136: expected 44096 or more, where chunk 0 ends, found 44095"},
    {"OverlappingChunksOutOfOrder", [](auto* i) { i->chunks[3].offset = 44095; },
     "offset of chunk 3 at byte 232: expected 44096 or more, where chunk 0 ends, found 44095"},
    {"TheSameChunkTwice", [](auto* i) { i->chunks[3].offset = 4096; },
     "offset of chunk 3 at byte 232: expected 44096 or more, where chunk 0 ends, found 4096"},
    {"EmptyName", [](auto* i) { i->entries[0].spec.name.clear(); },
     "description of entry 0 at byte 280: expected a valid one, found an entry has an empty name"},
    {"LongName", [](auto* i) { i->entries[0].spec.name.assign(4097, 'n'); },
     "name bytes of entry 0 at byte 280: expected at most 4096, found 4097"},
    {"NameTwice", [](auto* i) { i->entries[1].spec.name = "weight"; },
     "name of entry 1 at byte 318: expected one that no other entry has, found 'weight' again"},
    {"TooManyDimensions", [](auto* i) { i->entries[3].spec.shape.assign(65, 0); },
     "dimensions of entry 3 at byte 429: expected at most 64, found 65"},
    {"NegativeExtent", [](auto* i) { i->entries[3].spec.shape = {-1}; },
     "found entry 'empty': shape [-1] has a negative extent"},
    {"ExtentsThatOverflow",
     [](auto* i) {
       i->entries[3].spec.shape = {1 << 30, 1 << 30, 1 << 30};
     },
     "has more bytes than 63 bits can count"},
    {"UnknownDtype", [](auto* i) { i->entries[3].spec.dtype = static_cast<Dtype>(99); }, "dtype 99 is unknown"},
    {"UnknownKind", [](auto* i) { i->entries[3].spec.kind = static_cast<EntryKind>(7); }, "kind 7 is unknown"},
    {"KindOfAnotherShape", [](auto* i) { i->entries[4].spec.dtype = Dtype::kUint64; },
     "dtype or shape do not fit its kind, int64"},
    {"BoxOutside",
     [](auto* i) {
       i->entries[2].spec.box_offset = {0, 46};
     },
     "box [46, +5) leaves dimension 1 of extent 50"},
    {"TooFewChunks", [](auto* i) { i->entries[0].chunk_count = 1; },
     "chunk count of entry 0 at byte 280: expected 2, for 66536 bytes in chunks of 65536, found 1"},
    {"TooManyChunks", [](auto* i) { i->entries[0].chunk_count = 3; }, "expected 2, for 66536 bytes"},
    {"ChunksOfNothing",
     [](auto* i) {
       i->entries[3].chunk_count = 1;
       i->entries[3].first_chunk = 3;
     },
     "chunk count of entry 3 at byte 429: expected 0, for 0 bytes"},
    {"FirstChunkOfNothing", [](auto* i) { i->entries[3].first_chunk = 3; },
     "first chunk of entry 3 at byte 429: expected 0 for an entry of no bytes, found 3"},
    {"ChunksSkipped", [](auto* i) { i->entries[2].first_chunk = 3; },
     "first chunk of entry 2 at byte 354: expected 2, or the chunks of an earlier entry, found 3"},
    {"ChunksOfHalfAnEntry", [](auto* i) { i->entries[2].first_chunk = 1; },
     "first chunk of entry 2 at byte 354: expected 2, or the chunks of an earlier entry, found 1"},
    {"ChunksBeyondTheTable", [](auto* i) { i->chunks.pop_back(); },
     "chunk count of entry 4 at byte 418: expected at most the 0 chunks that are left, found 1"},
    {"ChunksOfNoEntry", [](auto* i) { i->entries.pop_back(); },
     "chunks of all entries at byte 466: expected all 4 chunks of the table, found 3"},
    {"FirstChunkTooSmall", [](auto* i) { i->chunks[0].raw_bytes = 65532; },
     "chunk 0 of entry 0 at byte 280: expected 65536 raw bytes, found 65532"},
    {"LastChunkTooLarge", [](auto* i) { i->chunks[1].raw_bytes = i->chunks[1].stored_bytes = 1000 - 4; },
     "chunk 1 of entry 0 at byte 280: expected 1000 raw bytes, found 996"},
    {"TiedToOneOfAnotherSize", [](auto* i) { i->entries[1].spec.shape = {66540 / 4}; },
     "chunk 1 of entry 1 at byte 318: expected 1004 raw bytes, found 1000"},
    {"EmptyMetric",
     [](auto* i) {
       i->metrics = {{"", 1.0}};
     },
     "metric name at byte 505: expected 1 to 4096 bytes, found 0 bytes"},
    {"LongMetric",
     [](auto* i) {
       i->metrics = {{std::string(4097, 'm'), 1.0}};
     },
     "metric name at byte 505: expected 1 to 4096 bytes, found 4097 bytes"},
    {"EmptyProperty",
     [](auto* i) {
       i->properties = {{"", "x"}};
     },
     "expected 1 to 4096 bytes, found 0 bytes"},
    {"LongProperty",
     [](auto* i) {
       i->properties = {{"key", std::string(65537, 'p')}};
     },
     "property value bytes at byte 529: expected at most 65536, found 65537"},
    {"LongMetadata", [](auto* i) { i->user_metadata.assign((16 << 20) + 1, ' '); },
     "user metadata bytes at byte 36: expected at most 16777216, found 16777217"},
};
INSTANTIATE_TEST_SUITE_P(All, ShardIndexViolation, ::testing::ValuesIn(kViolations),
                         [](const auto& info) { return info.param.name; });

// What no struct can say.
struct ByteViolation {
  const char* name;
  size_t offset;
  std::string bytes;
  const char* message;
};
void PrintTo(const ByteViolation& violation, std::ostream* out) { *out << violation.name; }

class ShardIndexByteViolation : public ::testing::TestWithParam<ByteViolation> {};

TEST_P(ShardIndexByteViolation, IsRefused) {
  std::string bytes = EncodeShardIndex(TestIndex());
  bytes.replace(GetParam().offset, GetParam().bytes.size(), GetParam().bytes);
  EXPECT_THAT(Decode(bytes).status(), StatusIs(StatusCode::kDataLoss, HasSubstr(GetParam().message)));
}

const std::string kAllOnes(8, '\xff');
const ByteViolation kByteViolations[] = {
    {"Magic", 0, "TMKINDEY", "shard index: magic at byte 0: expected 'TMKINDEX', found something else"},
    {"ChunkCount", 8, kAllOnes, "chunk count at byte 88: expected at most"},
    {"ChunkCountByOne", 8, std::string("\5", 1), "of chunk 4 at byte 280"},
    {"EntryCount", 16, kAllOnes, "entry count at byte 280: expected at most"},
    {"FileCount", 24, std::string("\0\0\1", 3), "file count at byte 24: expected at most 65535, found 65536"},
    {"FileCountBeyondTheBytes", 24, "\xff\xff", "file count at byte 56: expected at most"},
    {"MetricCount", 28, "\xff\xff\xff\xff", "metric count at byte 495: expected at most"},
    {"PropertyCount", 32, "\xff\xff\xff\xff", "property count at byte 527: expected at most"},
    {"MetadataBytes", 36, "\x09", "user metadata at byte 557: expected 9 bytes, found 8 bytes left"},
    {"MetadataTooShort", 36, "\x07", "end at byte 564: expected no more bytes, found 1 bytes more"},
    {"ChunkPadding", kChunksAt + 12, "\1", "chunk padding at byte 100: expected zero, found 0x01"},
    {"EntryFlags", kEntriesAt + 3, "\2", "flags of entry 0 at byte 280: expected 0 or 1, found 2"},
    {"BoxWithoutDimensions", 466 + 3, "\1", "flags of entry 4 at byte"},
    {"MetricsOutOfOrder", 505, "zz",
     "metric name at byte 523: expected one after 'zzcuracy' in byte order, found 'loss'"},
};
INSTANTIATE_TEST_SUITE_P(All, ShardIndexByteViolation, ::testing::ValuesIn(kByteViolations),
                         [](const auto& info) { return info.param.name; });

TEST(ShardIndex, RefusesTheSamePropertyTwice) {
  ShardIndex index = TestIndex();
  index.properties = {{"a", ""}, {"b", ""}};
  std::string bytes = EncodeShardIndex(index);
  bytes.replace(bytes.rfind('b', bytes.size() - index.user_metadata.size() - 1), 1, "a");
  EXPECT_THAT(Decode(bytes).status(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("expected one after 'a' in byte order, found 'a'")));
}

TEST(ShardIndex, SurvivesRandomDamageWithoutACrash) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const std::string good = EncodeShardIndex(TestIndex());
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = good;
    for (int changes = 1 + random() % 3; changes > 0; --changes) bytes[random() % bytes.size()] = random();
    const auto decoded = Decode(bytes);  // the digest is made right
    if (!decoded.ok()) {
      EXPECT_EQ(decoded.status().code(), StatusCode::kDataLoss);
    } else {
      EXPECT_EQ(EncodeShardIndex(*decoded).size(), bytes.size());
    }
  }
}

TEST(ValidateShardTexts, NamesWhatBreaksACap) {
  EXPECT_TRUE(ValidateShardTexts({{"loss", 1}}, "{}", {{"a", "b"}}).ok());
  EXPECT_THAT(ValidateShardTexts({{"", 1}}, "{}", {}),
              StatusIs(StatusCode::kInvalidArgument, "metric '': expected a name of 1 to 4096 bytes, found 0 bytes"));
  EXPECT_THAT(ValidateShardTexts({}, std::string(kUserMetadataBytesMax + 1, ' '), {}),
              StatusIs(StatusCode::kInvalidArgument, "user metadata: expected at most 16777216 bytes, found 16777217"));
  EXPECT_THAT(
      ValidateShardTexts({}, "{}", {{std::string(5000, 'k'), ""}}),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("expected a name of 1 to 4096 bytes, found 5000 bytes")));
  EXPECT_THAT(ValidateShardTexts({}, "{}", {{"k", std::string(kPropertyBytesMax + 1, 'v')}}),
              StatusIs(StatusCode::kInvalidArgument, "property 'k': expected at most 65536 bytes, found 65537"));
}

}  // namespace
}  // namespace tidemark::storage
