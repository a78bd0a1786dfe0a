#include "storage/bytes/ids.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/shard/shard_testing.h"
#include "xxhash.h"

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

// Whatever loops they use: those of long inputs are chosen for the CPU.
TEST(Ids, DigestsOfEveryLengthAreThoseOfXxhash) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const auto bytes = RandomBytes(100000, random);
  for (size_t size = 0; size < bytes.size(); size += 1 + size / 50) {
    const auto part = std::span(bytes).subspan(random() % (bytes.size() - size), size);
    EXPECT_EQ(ChecksumOf(part), XXH3_64bits(part.data(), size)) << size;
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(part.data(), size));
    EXPECT_TRUE(std::equal(std::begin(canonical.digest), std::end(canonical.digest), DigestOf(part).bytes.begin()))
        << size;
  }
}

TEST(Ids, ChecksumIsTheSameWithTheDigestAtHand) {
  std::vector<std::byte> bytes(70000);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 2654435761u >> 24);
  std::vector<size_t> sizes(2000);
  std::iota(sizes.begin(), sizes.end(), 0);
  for (const size_t size : {4096, 65535, 65536, 70000}) sizes.push_back(size);
  for (const size_t size : sizes) {
    const auto part = std::span(bytes).first(size);
    ASSERT_EQ(ChecksumOf(part, DigestOf(part)), ChecksumOf(part)) << size;
  }
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
