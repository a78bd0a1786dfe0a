// Every released version's golden file is read for ever.

#include <bit>
#include <filesystem>

#include "gtest/gtest.h"
#include "storage/shard/byte_reader.h"
#include "storage/shard/shard_verify.h"
#include "tests/format/golden_contents.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

const std::string kGolden = TIDEMARK_SOURCE_DIR "/tests/format/golden/format-1.tmk";

TEST(GoldenFormat1, IsReadBitExact) {
  auto reader = ShardReader::Open(PosixFileSystem(), kGolden, ".");
  ASSERT_THAT(reader, IsOk());
  EXPECT_EQ((*reader)->header().identity, GoldenIdentity());
  EXPECT_EQ((*reader)->header().chunk_bytes, 65536u);
  TestContents contents = GoldenContents();
  const ShardIndex& index = (*reader)->index();
  EXPECT_EQ(index.created_unix_ns, contents->created_unix_ns);
  EXPECT_EQ(index.blocked_ns, contents->blocked_ns());
  EXPECT_EQ(index.metrics, contents->metrics);
  EXPECT_EQ(index.user_metadata, contents->user_metadata);
  EXPECT_EQ(index.properties.at("writer"), "make_golden");
  EXPECT_EQ(index.properties.at("compression"), "space");
  ExpectReadsBack(**reader, contents);
}

TEST(GoldenFormat1, IsSound) {
  const ShardIdentity identity = GoldenIdentity();
  auto result = VerifyShard(PosixFileSystem(), kGolden, ".", &identity, {});
  ASSERT_THAT(result, IsOk());
  EXPECT_TRUE(result->damage.empty()) << result->damage[0].what;
}

TEST(GoldenFormat1, HasEveryCodecAndKind) {
  auto reader = ShardReader::Open(PosixFileSystem(), kGolden, ".");
  ASSERT_THAT(reader, IsOk());
  for (Codec codec : {Codec::kRaw, Codec::kZstd, Codec::kPlanesZstd}) {
    const auto& chunks = (*reader)->index().chunks;
    EXPECT_TRUE(std::any_of(chunks.begin(), chunks.end(), [&](const auto& chunk) { return chunk.codec == codec; }))
        << static_cast<int>(codec);
  }
  for (int kind = 1; kind <= 6; ++kind) {
    const auto& entries = (*reader)->index().entries;
    EXPECT_TRUE(std::any_of(entries.begin(), entries.end(), [&](const auto& entry) {
      return static_cast<int>(entry.spec.kind) == kind;
    })) << kind;
  }
}

// The encoders still put down the same bytes.
TEST(GoldenFormat1, IsWhatTheEncodersWrite) {
  auto reader = ShardReader::Open(PosixFileSystem(), kGolden, ".");
  ASSERT_THAT(reader, IsOk());
  const std::string file = ReadWhole(kGolden);
  const ShardFooter& footer = (*reader)->footer();
  EXPECT_EQ(file.substr(0, kShardBlockBytes), EncodeShardHeader((*reader)->header()));
  EXPECT_EQ(file.substr(footer.index_offset, footer.index_bytes), EncodeShardIndex((*reader)->index()));
  EXPECT_EQ(file.substr(file.size() - kShardBlockBytes), EncodeShardFooter(footer));
}

}  // namespace
}  // namespace tidemark::storage
