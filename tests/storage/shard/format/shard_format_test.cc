#include "storage/shard/format/shard_format.h"

#include <cstring>
#include <functional>

#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

template <typename T>
void Set(std::string* bytes, size_t offset, T value) {
  std::memcpy(bytes->data() + offset, &value, sizeof(value));
}

// Makes the checksum right again, so that what lies behind it is reached.
void Seal(std::string* block) { Set(block, 4088, ChecksumOf(AsBytes(std::string_view(*block).substr(0, 4088)))); }

struct BlockViolation {
  const char* name;
  std::function<void(std::string*)> change;
  bool seal;
  StatusCode code;
  const char* message;
};

void PrintTo(const BlockViolation& violation, std::ostream* out) { *out << violation.name; }

ShardHeader TestHeader() { return {TestIdentity(), 1 << 20}; }

TEST(ShardHeader, SurvivesARoundTrip) {
  ShardHeader header = TestHeader();
  header.identity.rank = 6;
  header.identity.world_size = 7;
  const std::string bytes = EncodeShardHeader(header);
  ASSERT_EQ(bytes.size(), kShardBlockBytes);
  const auto decoded = DecodeShardHeader(AsBytes(bytes));
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->identity, header.identity);
  EXPECT_EQ(decoded->chunk_bytes, header.chunk_bytes);
}

TEST(ShardHeader, HasVersion2IfNamesAreRepeated) {
  ShardHeader header = TestHeader();
  const std::string unique = EncodeShardHeader(header);
  header.repeats_names = true;
  const std::string repeated = EncodeShardHeader(header);
  EXPECT_EQ(unique[8], 1);
  EXPECT_EQ(repeated[8], 2);
  EXPECT_FALSE(DecodeShardHeader(AsBytes(unique))->repeats_names);
  EXPECT_TRUE(DecodeShardHeader(AsBytes(repeated))->repeats_names);
}

class ShardHeaderViolation : public ::testing::TestWithParam<BlockViolation> {};

TEST_P(ShardHeaderViolation, IsRefused) {
  std::string bytes = EncodeShardHeader(TestHeader());
  GetParam().change(&bytes);
  if (GetParam().seal) Seal(&bytes);
  EXPECT_THAT(DecodeShardHeader(AsBytes(bytes)).status(), StatusIs(GetParam().code, HasSubstr(GetParam().message)));
}

const BlockViolation kHeaderViolations[] = {
    {"Short", [](auto* b) { b->resize(4095); }, false, StatusCode::kDataLoss,
     "shard header: size at byte 0: expected 4096 bytes, found 4095 bytes"},
    {"Empty", [](auto* b) { b->clear(); }, false, StatusCode::kDataLoss, "expected 4096 bytes, found 0 bytes"},
    {"Magic", [](auto* b) { (*b)[3] = '\n'; }, true, StatusCode::kDataLoss,
     "shard header: magic at byte 0: expected 'TMKSHARD', found 'TMK\\x0aHARD'"},
    {"NewerVersion", [](auto* b) { Set<uint32_t>(b, 8, 3); }, true, StatusCode::kUnimplemented,
     "shard header: version at byte 8: expected at most 2, found 3: written by a newer version"},
    {"NewerVersionOfAnotherLayout", [](auto* b) { Set<uint32_t>(b, 8, 4); }, false, StatusCode::kUnimplemented,
     "found 4"},
    {"VersionZero", [](auto* b) { Set<uint32_t>(b, 8, 0); }, true, StatusCode::kDataLoss,
     "shard header: version at byte 8: expected 1, found 0"},
    {"Checksum", [](auto* b) { (*b)[4088] ^= 1; }, false, StatusCode::kDataLoss, "shard header: checksum at byte 4088"},
    {"ChangedByte", [](auto* b) { (*b)[70] ^= 1; }, false, StatusCode::kDataLoss, "checksum at byte 4088"},
    {"ByteOrder", [](auto* b) { Set<uint32_t>(b, 12, 0x04030201); }, true, StatusCode::kDataLoss,
     "shard header: byte order at byte 12: expected 0x01020304, found 0x04030201"},
    {"NegativeStep", [](auto* b) { Set<int64_t>(b, 48, -1); }, true, StatusCode::kDataLoss,
     "shard header: step at byte 48: expected 0 or more, found -1"},
    {"RankBeyondWorld", [](auto* b) { Set<uint32_t>(b, 64, 1); }, true, StatusCode::kDataLoss,
     "shard header: rank at byte 64: expected less than the world size, 1, found 1"},
    {"NoWorld", [](auto* b) { Set<uint32_t>(b, 68, 0); }, true, StatusCode::kDataLoss,
     "rank at byte 64: expected less than the world size, 0"},
    {"OddChunkBytes", [](auto* b) { Set<uint32_t>(b, 72, 4097); }, true, StatusCode::kDataLoss,
     "shard header: chunk bytes at byte 72: expected a multiple of 4096 up to 67108864, found 4097"},
    {"NoChunkBytes", [](auto* b) { Set<uint32_t>(b, 72, 0); }, true, StatusCode::kDataLoss, "chunk bytes at byte 72"},
    {"HugeChunkBytes", [](auto* b) { Set<uint32_t>(b, 72, (64 << 20) + 4096); }, true, StatusCode::kDataLoss,
     "chunk bytes at byte 72"},
    {"Padding", [](auto* b) { (*b)[4087] = 5; }, true, StatusCode::kDataLoss,
     "shard header: padding at byte 4087: expected zero, found 0x05"},
};
INSTANTIATE_TEST_SUITE_P(All, ShardHeaderViolation, ::testing::ValuesIn(kHeaderViolations),
                         [](const auto& info) { return info.param.name; });

constexpr uint64_t kFileBytes = 40960;

ShardFooter TestFooter() {
  ShardFooter footer;
  footer.file_bytes = kFileBytes;
  footer.index_offset = 28672;
  footer.index_bytes = 5000;
  footer.index_digest = DigestOf(AsBytes("index"));
  return footer;
}

TEST(ShardFooter, SurvivesARoundTrip) {
  const std::string bytes = EncodeShardFooter(TestFooter());
  ASSERT_EQ(bytes.size(), kShardBlockBytes);
  const auto decoded = DecodeShardFooter(AsBytes(bytes), kFileBytes);
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->file_bytes, kFileBytes);
  EXPECT_EQ(decoded->index_offset, 28672u);
  EXPECT_EQ(decoded->index_bytes, 5000u);
  EXPECT_EQ(decoded->index_digest, TestFooter().index_digest);
}

class ShardFooterViolation : public ::testing::TestWithParam<BlockViolation> {};

TEST_P(ShardFooterViolation, IsRefused) {
  std::string bytes = EncodeShardFooter(TestFooter());
  GetParam().change(&bytes);
  if (GetParam().seal) Seal(&bytes);
  EXPECT_THAT(DecodeShardFooter(AsBytes(bytes), kFileBytes).status(),
              StatusIs(GetParam().code, HasSubstr(GetParam().message)));
}

const BlockViolation kFooterViolations[] = {
    {"Short", [](auto* b) { b->resize(8); }, false, StatusCode::kDataLoss,
     "shard footer: size at byte 0: expected 4096 bytes, found 8 bytes"},
    {"Magic", [](auto* b) { b->replace(0, 8, "TMKSHARD"); }, true, StatusCode::kDataLoss,
     "shard footer: magic at byte 0: expected 'TMKFOOTR', found 'TMKSHARD'"},
    {"NewerVersion", [](auto* b) { Set<uint32_t>(b, 8, 7); }, false, StatusCode::kUnimplemented,
     "shard footer: version at byte 8: expected at most 2, found 7"},
    {"Checksum", [](auto* b) { (*b)[20] ^= 64; }, false, StatusCode::kDataLoss, "shard footer: checksum at byte 4088"},
    {"FileBytes", [](auto* b) { Set<uint64_t>(b, 16, kFileBytes + 4096); }, true, StatusCode::kDataLoss,
     "shard footer: file bytes at byte 16: expected 40960, the size of the file, found 45056"},
    {"IndexInHeader", [](auto* b) { Set<uint64_t>(b, 24, 0); }, true, StatusCode::kDataLoss,
     "shard footer: index offset at byte 24: expected a multiple of 4096 from 4096 to 40960, found 0"},
    {"IndexNotAligned", [](auto* b) { Set<uint64_t>(b, 24, 28673); }, true, StatusCode::kDataLoss,
     "index offset at byte 24: expected a multiple of 4096 from 4096 to 40960, found 28673"},
    {"IndexPastTheEnd", [](auto* b) { Set<uint64_t>(b, 24, uint64_t{1} << 63); }, true, StatusCode::kDataLoss,
     "index offset at byte 24: expected a multiple of 4096 from 4096 to 40960, found 9223372036854775808"},
    {"NoIndex", [](auto* b) { Set<uint64_t>(b, 32, 0); }, true, StatusCode::kDataLoss,
     "shard footer: index bytes at byte 32: expected 1 to 1073741824, filling the 12288 bytes"},
    {"IndexTooShort", [](auto* b) { Set<uint64_t>(b, 32, 4096); }, true, StatusCode::kDataLoss, "found 4096"},
    {"IndexTooLong", [](auto* b) { Set<uint64_t>(b, 32, 8193); }, true, StatusCode::kDataLoss, "found 8193"},
    {"IndexOfAllBytes", [](auto* b) { Set<uint64_t>(b, 32, ~uint64_t{0}); }, true, StatusCode::kDataLoss,
     "index bytes at byte 32"},
    {"Padding", [](auto* b) { (*b)[56] = 1; }, true, StatusCode::kDataLoss,
     "shard footer: padding at byte 56: expected zero, found 0x01"},
};
INSTANTIATE_TEST_SUITE_P(All, ShardFooterViolation, ::testing::ValuesIn(kFooterViolations),
                         [](const auto& info) { return info.param.name; });

TEST(ShardFooter, RefusesAFileThatIsNoWholeNumberOfBlocks) {
  ShardFooter footer = TestFooter();
  footer.file_bytes = 40961;
  EXPECT_THAT(DecodeShardFooter(AsBytes(EncodeShardFooter(footer)), 40961).status(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("file bytes at byte 16: expected a multiple of 4096")));
}

TEST(ShardFooter, RefusesAnIndexBeyondTheCap) {
  ShardFooter footer = TestFooter();
  footer.index_bytes = kIndexBytesMax + 1;
  footer.file_bytes = footer.index_offset + kIndexBytesMax + 2 * kShardBlockBytes;
  EXPECT_THAT(DecodeShardFooter(AsBytes(EncodeShardFooter(footer)), footer.file_bytes).status(),
              StatusIs(StatusCode::kDataLoss, HasSubstr("found 1073741825")));
}

}  // namespace
}  // namespace tidemark::storage
