// An index that is stored as a delta: EncodeShardIndex with a base, DecodeShardIndexDelta and CheckEncodedShardIndex.

#include <cstring>
#include <functional>

#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"
#include "storage/shard/format/shard_format.h"
#include "storage/shard/format/shard_index_layout.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

constexpr uint64_t kDeltaIndexOffset = 1 << 20;
const Digest128 kBaseDigest = {.bytes = {7, 7}};

ChunkRecord RawChunk(uint16_t file, uint64_t offset, uint32_t bytes) {
  return {.file = file, .raw_bytes = bytes, .stored_bytes = bytes, .offset = offset, .digest = {.bytes = {1}}};
}

// Four entries of a chunk each. The last chunk is in the shard of step 900.
ShardIndex Base() {
  ShardIndex index;
  index.files = {ReferenceTo(TestIdentity(900))};
  for (int i = 0; i < 4; ++i) {
    index.entries.push_back({Tensor("e" + std::to_string(i), Dtype::kUint8, {100}), static_cast<uint64_t>(i), 1});
    index.chunks.push_back(RawChunk(i == 3 ? 1 : 0, 4096 + 100 * i, 100));
  }
  return index;
}

// What a save makes of it in which entry 1 has changed, and entry 2 has another size.
struct Delta {
  ShardIndex index = Base();
  IndexBase base = {.file = 2,
                    .digest = kBaseDigest,
                    .changed_chunks = {false, true, true, false},
                    .changed_entries = {false, false, true, false}};
  Delta() {
    index.files = {ReferenceTo(TestIdentity(900)), ReferenceTo(TestIdentity(950))};
    index.chunks[0].file = 2;
    index.chunks[1] = RawChunk(0, 8192, 100);
    index.chunks[2] = RawChunk(0, 8292, 60);
    index.entries[2].spec.shape = {60};
    index.metrics = {{"loss", std::nan("")}};
    index.properties = {{"io", "threads"}};
    index.user_metadata = R"({"a": 1})";
    index.created_unix_ns = -5;
  }
  std::string Encode() const { return EncodeShardIndex(index, base); }
};

ShardFooter FooterOf(const std::string& bytes) {
  return {.index_offset = kDeltaIndexOffset,
          .index_bytes = bytes.size(),
          .index_digest = DigestOf(AsBytes(bytes)),
          .index_is_delta = true};
}

absl::StatusOr<ShardIndex> DecodeDelta(const std::string& bytes, IndexBase* base,
                                       absl::StatusOr<ShardIndex> whole = Base()) {
  return DecodeShardIndexDelta(
      AsBytes(bytes), {TestIdentity(), kTestChunkBytes}, FooterOf(bytes),
      [&](const FileReference& shard, const Digest128& digest) {
        EXPECT_EQ(shard, ReferenceTo(TestIdentity(950)));
        EXPECT_EQ(digest, kBaseDigest);
        return whole;
      },
      base);
}

// NaN is no equal of itself.
void ExpectSame(const ShardIndex& a, const ShardIndex& b) { EXPECT_EQ(EncodeShardIndex(a), EncodeShardIndex(b)); }

TEST(ShardIndexDelta, SurvivesARoundTripAndHasOnlyWhatChanged) {
  const Delta delta;
  const std::string bytes = delta.Encode();
  EXPECT_EQ(bytes.size(), EncodedShardIndexBytes(delta.index, delta.base));
  EXPECT_EQ(bytes.find("e0"), std::string::npos);
  EXPECT_NE(bytes.find("e2"), std::string::npos);
  IndexBase base;
  const auto decoded = DecodeDelta(bytes, &base);
  ASSERT_THAT(decoded, IsOk());
  ExpectSame(*decoded, delta.index);
  EXPECT_EQ(base, delta.base);
}

TEST(ShardIndexDelta, IsOfNothingWhereNothingChanged) {
  Delta delta;
  delta.index = Base();
  delta.index.files = {ReferenceTo(TestIdentity(950)), ReferenceTo(TestIdentity(900))};
  for (ChunkRecord& chunk : delta.index.chunks) ++chunk.file;
  delta.base = {.file = 1, .digest = kBaseDigest};
  delta.base.changed_chunks.resize(4);
  delta.base.changed_entries.resize(4);
  IndexBase base;
  const auto decoded = DecodeDelta(delta.Encode(), &base);
  ASSERT_THAT(decoded, IsOk());
  EXPECT_EQ(*decoded, delta.index);
  EXPECT_EQ(delta.Encode().size(), 56u + 32 + 2 * 32 + 2) << "preambles, two files, user metadata";
}

TEST(ShardIndexDelta, ReturnsTheErrorOfItsBase) {
  IndexBase base;
  EXPECT_THAT(DecodeDelta(Delta().Encode(), &base, absl::NotFoundError("gone")),
              StatusIs(StatusCode::kNotFound, "gone"));
}

// Entries 0 and 1 are boxes of one tensor.
TEST(ShardIndexDelta, ObeysTheRulesOfRepeatedNames) {
  const auto box = [](ShardIndex& index, size_t entry, int64_t offset) {
    index.entries[entry].spec = Tensor("w", Dtype::kUint8, {200});
    index.entries[entry].spec.box_offset = {offset};
    index.entries[entry].spec.box_extent = {100};
  };
  ShardIndex whole = Base();
  box(whole, 0, 0);
  box(whole, 1, 100);
  const auto decode = [&](const Delta& delta, bool repeats_names) {
    const std::string bytes = delta.Encode();
    IndexBase base;
    return DecodeShardIndexDelta(
        AsBytes(bytes), {TestIdentity(), kTestChunkBytes, repeats_names}, FooterOf(bytes),
        [&](const FileReference&, const Digest128&) { return whole; }, &base);
  };
  Delta delta;
  box(delta.index, 0, 0);
  box(delta.index, 1, 100);
  const auto decoded = decode(delta, true);
  ASSERT_THAT(decoded, IsOk());
  ExpectSame(*decoded, delta.index);
  EXPECT_THAT(decode(delta, false), StatusIs(StatusCode::kDataLoss, HasSubstr("found 'w' again")));
  box(delta.index, 1, 99);
  delta.base.changed_entries[1] = true;
  EXPECT_THAT(decode(delta, true),
              StatusIs(StatusCode::kDataLoss, HasSubstr("its box [99:199] overlaps with [0:100] of entry 0")));
}

TEST(ShardIndexDelta, RefusesEveryTruncation) {
  const std::string bytes = Delta().Encode();
  IndexBase base;
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(DecodeDelta(bytes.substr(0, size), &base).status().code(), StatusCode::kDataLoss) << size;
  }
}

TEST(ShardIndexDelta, SurvivesEveryByteThatIsAnother) {
  const std::string good = Delta().Encode();
  for (size_t i = 0; i < good.size(); ++i) {
    for (const char value : {'\0', '\1', '\x7f', '\xff'}) {
      std::string bytes = good;
      bytes[i] = value;
      IndexBase base;
      const auto decoded = DecodeShardIndexDelta(
          AsBytes(bytes), {TestIdentity(), kTestChunkBytes}, FooterOf(bytes),
          [](const FileReference&, const Digest128&) { return Base(); }, &base);
      if (decoded.ok()) {
        EXPECT_EQ(EncodeShardIndex(*decoded, base), bytes) << i;
        // It obeys the rules of one that is stored whole.
        const std::string whole = EncodeShardIndex(*decoded);
        ShardFooter footer = FooterOf(whole);
        footer.index_is_delta = false;
        EXPECT_THAT(DecodeShardIndex(AsBytes(whole), {TestIdentity(), kTestChunkBytes}, footer), IsOk()) << i;
      } else {
        EXPECT_EQ(decoded.status().code(), StatusCode::kDataLoss) << i;
      }
    }
  }
}

TEST(ShardIndexDelta, IsToldApartFromAWholeIndexByTheFooter) {
  const std::string bytes = Delta().Encode();
  const ShardHeader header{TestIdentity(), kTestChunkBytes};
  EXPECT_THAT(DecodeShardIndex(AsBytes(bytes), header, FooterOf(bytes)),
              StatusIs(StatusCode::kDataLoss, "shard index: expected one that is whole, found a delta"));
  ShardFooter footer = FooterOf(bytes);
  footer.index_is_delta = false;
  EXPECT_THAT(DecodeShardIndex(AsBytes(bytes), header, footer),
              StatusIs(StatusCode::kDataLoss, HasSubstr("'TMKINDEX'")));
}

struct DeltaViolation {
  const char* name;
  std::function<void(Delta*)> change;
  const char* message;
};
void PrintTo(const DeltaViolation& violation, std::ostream* out) { *out << violation.name; }

class ShardIndexDeltaViolation : public ::testing::TestWithParam<DeltaViolation> {};

TEST_P(ShardIndexDeltaViolation, IsRefused) {
  Delta delta;
  GetParam().change(&delta);
  IndexBase base;
  EXPECT_THAT(DecodeDelta(delta.Encode(), &base), StatusIs(StatusCode::kDataLoss, HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Rules, ShardIndexDeltaViolation,
    ::testing::Values(
        DeltaViolation{"BaseNotListed", [](Delta* d) { d->base.file = 3; }, "base file at byte 72: expected 1 to 2"},
        DeltaViolation{"MoreChunks",
                       [](Delta* d) {
                         d->index.chunks.push_back(RawChunk(0, 9000, 1));
                         d->base.changed_chunks.push_back(true);
                       },
                       "counts at byte 8: expected the 4 chunks and 4 entries of its base, found 5 and 4"},
        DeltaViolation{"FewerEntries",
                       [](Delta* d) {
                         d->index.entries.pop_back();
                         d->base.changed_entries.pop_back();
                       },
                       "found 4 and 3"},
        DeltaViolation{"FileOfTheBaseNotListed", [](Delta* d) { d->index.files[0].step = 901; },
                       "file of chunk 3 at byte"},
        DeltaViolation{"OverlappingChunks", [](Delta* d) { d->index.chunks[2].offset = 8200; },
                       "offset of chunk 2 at byte"},
        DeltaViolation{"ChunkBehindTheIndex", [](Delta* d) { d->index.chunks[1].offset = kDeltaIndexOffset; },
                       "offset of chunk 1"},
        DeltaViolation{"ChunkOfAFileNotListed", [](Delta* d) { d->index.chunks[1].file = 3; }, "file of chunk 1"},
        DeltaViolation{"SizeOfTheEntry",
                       [](Delta* d) { d->index.chunks[1].raw_bytes = d->index.chunks[1].stored_bytes = 50; },
                       "chunk 1 of entry 1"},
        DeltaViolation{"SizeWithoutTheEntry", [](Delta* d) { d->base.changed_entries[2] = false; },
                       "raw bytes of chunk 2 at byte"},
        DeltaViolation{"NameTwice", [](Delta* d) { d->index.entries[2].spec.name = "e1"; }, "found 'e1' again"},
        DeltaViolation{"ChunksOfAnother", [](Delta* d) { d->index.entries[2].first_chunk = 1; }, "chunks of entry 2"},
        DeltaViolation{"TheShardItself", [](Delta* d) { d->index.files[0] = ReferenceTo(TestIdentity()); },
                       "this shard itself"}),
    [](const auto& info) { return info.param.name; });

template <typename T>
std::string Patched(size_t offset, T value) {
  std::string bytes = Delta().Encode();
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
  return bytes;
}

TEST(ShardIndexDelta, RefusesNumbersOutOfOrder) {
  constexpr size_t kFilesAt = kIndexPreambleBytes + kDeltaPreambleBytes;
  constexpr size_t kChunksAt = kFilesAt + 2 * kFileReferenceBytes;
  constexpr size_t kSecondChunk = kChunksAt + kDeltaNumberBytes + kChunkRecordBytes;
  constexpr size_t kEntriesAt = kSecondChunk + kDeltaNumberBytes + kChunkRecordBytes;
  IndexBase base;
  const auto refuses = [&](const std::string& bytes, const std::string& message) {
    EXPECT_THAT(DecodeDelta(bytes, &base), StatusIs(StatusCode::kDataLoss, HasSubstr(message)));
  };
  refuses(Patched(kChunksAt, uint64_t{4}), "chunk number at byte 152: expected 0 to 3, found 4");
  refuses(Patched(kSecondChunk, uint64_t{1}), "chunk number at byte 208: expected 2 to 3, found 1");
  refuses(Patched(kEntriesAt, ~uint64_t{0}), "entry number at byte 264: expected 0 to 3, found 18446744073709551615");
  refuses(Patched(80, ~uint64_t{0}), "changed chunk count");
  refuses(Patched(76, ~uint32_t{0}), "changed entry count");
}

TEST(CheckEncodedShardIndex, ComparesEveryRecordOfAWholeIndex) {
  const ShardIndex index = Base();
  const std::string bytes = EncodeShardIndex(index);
  ShardFooter footer = FooterOf(bytes);
  footer.index_is_delta = false;
  const ShardHeader header{TestIdentity(), kTestChunkBytes};
  EXPECT_THAT(CheckEncodedShardIndex(AsBytes(bytes), header, footer, index), IsOk());
  const auto refuses = [&](const std::function<void(ShardIndex*)>& change, const std::string& message) {
    ShardIndex other = index;
    change(&other);
    EXPECT_THAT(CheckEncodedShardIndex(AsBytes(bytes), header, footer, other),
                StatusIs(StatusCode::kInternal, HasSubstr(message)));
  };
  refuses([](ShardIndex* other) { other->chunks[2].checksum = 1; }, "chunk 2");
  refuses([](ShardIndex* other) { other->chunks.pop_back(); }, "chunks 4");
  refuses([](ShardIndex* other) { other->entries[1].spec.name = "x"; }, "entry 1");
  refuses([](ShardIndex* other) { other->entries.emplace_back(); }, "entries 4");
  refuses([](ShardIndex* other) { other->metrics["a"] = 1; }, "all but the");
  refuses([](ShardIndex* other) { other->files.clear(); }, "all but the");
}

TEST(CheckEncodedShardIndex, RefusesAnIndexThatCouldNotBeRead) {
  ShardIndex index = Base();
  index.entries[1].spec.name = "e0";
  const std::string bytes = EncodeShardIndex(index);
  ShardFooter footer = FooterOf(bytes);
  footer.index_is_delta = false;
  EXPECT_THAT(CheckEncodedShardIndex(AsBytes(bytes), {TestIdentity(), kTestChunkBytes}, footer, index),
              StatusIs(StatusCode::kInternal, HasSubstr("found 'e0' again")));
}

TEST(CheckEncodedShardIndex, ComparesEveryRecordOfADelta) {
  const Delta delta;
  const std::string bytes = delta.Encode();
  const ShardHeader header{TestIdentity(), kTestChunkBytes};
  const auto check = [&](const Delta& other) {
    return CheckEncodedShardIndex(AsBytes(bytes), header, FooterOf(bytes), other.index, other.base);
  };
  EXPECT_THAT(check(delta), IsOk());
  Delta other;
  other.index.chunks[1].checksum = 1;
  EXPECT_THAT(check(other), StatusIs(StatusCode::kInternal, HasSubstr("chunk 1")));
  other = {};
  other.index.entries[2].spec.name = "x";
  EXPECT_THAT(check(other), StatusIs(StatusCode::kInternal, HasSubstr("entry 2")));
  other = {};
  other.base.digest = {};
  EXPECT_THAT(check(other), StatusIs(StatusCode::kInternal, HasSubstr("base 2")));
}

}  // namespace
}  // namespace tidemark::storage
