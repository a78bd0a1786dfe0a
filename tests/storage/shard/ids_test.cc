#include "storage/shard/ids.h"

#include "gtest/gtest.h"
#include "storage/shard/byte_reader.h"

namespace tidemark::storage {
namespace {

TEST(Ids, HexIsLowerCaseAndGoesBothWays) {
  const std::array<uint8_t, 16> bytes = {0x00, 0x0f, 0xf0, 0xff, 0xab, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  EXPECT_EQ(ToHex(bytes), "000ff0ffab05060708090a0b0c0d0e0f");
  EXPECT_EQ(FromHex(ToHex(bytes)), bytes);
  EXPECT_EQ(FromHex("000FF0FFAB05060708090a0b0c0d0e0f"), std::nullopt);
  EXPECT_EQ(FromHex("000ff0ffab05060708090a0b0c0d0e0"), std::nullopt);
  EXPECT_EQ(FromHex("000ff0ffab05060708090a0b0c0d0e0f0"), std::nullopt);
  EXPECT_EQ(FromHex(""), std::nullopt);
}

TEST(Ids, RandomBytesDiffer) { EXPECT_NE(RandomBytes16(), RandomBytes16()); }

// As `xxhsum -H128` and `xxhsum -H3` print them.
TEST(Ids, DigestsAreThoseOfXxhash) {
  EXPECT_EQ(ToHex(DigestOf({}).bytes), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(ToHex(DigestOf(AsBytes("abc")).bytes), "06b05ab6733a618578af5f94892f3950");
  EXPECT_EQ(ChecksumOf(AsBytes("abc")), 0x78af5f94892f3950u);
  EXPECT_EQ(ChecksumOf({}), 0x2d06800538d394c2u);
}

TEST(Ids, NamesOfStepFoldersGoBothWays) {
  AttemptId attempt;
  attempt.bytes = {0xab, 0xcd};
  for (int64_t step : {int64_t{0}, int64_t{1000}, int64_t{9999999999}, int64_t{10000000000}, INT64_MAX}) {
    const std::string name = StepFolderName(step, attempt);
    const auto parsed = ParseStepFolderName(name);
    ASSERT_TRUE(parsed.has_value()) << name;
    EXPECT_EQ(parsed->step, step);
    EXPECT_EQ(parsed->attempt, attempt);
  }
  EXPECT_EQ(StepFolderName(1000, attempt), "0000001000-abcd0000000000000000000000000000");
}

TEST(Ids, RefusesNamesThatNoStepFolderHas) {
  for (const char* name :
       {"", "-", "0000001000", "0000001000-", "1000-abcd0000000000000000000000000000",
        "00000001000-abcd0000000000000000000000000000", "000000100x-abcd0000000000000000000000000000",
        "0000001000-ABCD0000000000000000000000000000", "0000001000-abcd000000000000000000000000000",
        "0000001000-abcd0000000000000000000000000000x", "9223372036854775808-abcd0000000000000000000000000000",
        "99999999999999999999-abcd0000000000000000000000000000"}) {
    EXPECT_FALSE(ParseStepFolderName(name).has_value()) << name;
  }
}

TEST(Ids, ShardFilesAreNamedByRankAndWorldSize) {
  EXPECT_EQ(ShardFileName(0, 1), "shard-00000-of-00001.tmk");
  EXPECT_EQ(ShardFileName(123456, 200000), "shard-123456-of-200000.tmk");
}

}  // namespace
}  // namespace tidemark::storage
