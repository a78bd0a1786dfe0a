// Every released version's golden file is read for ever.

#include <bit>
#include <filesystem>

#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"
#include "storage/shard/read/shard_verify.h"
#include "tests/format/golden_contents.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

const std::string kGolden = TIDEMARK_SOURCE_DIR "/tests/format/golden/format-1.tmk";
const std::string kGoldenBoxes = TIDEMARK_SOURCE_DIR "/tests/format/golden/header-2.tmk";
const std::string kGoldenDelta = TIDEMARK_SOURCE_DIR "/tests/format/golden/format-2.tmk";

// Both golden files where a store has them: the index of version 2 is a delta to that of version 1.
class GoldenFormat2 : public ::testing::Test {
 protected:
  GoldenFormat2() {
    Place(kGolden, GoldenIdentity());
    Place(kGoldenDelta, GoldenDeltaIdentity());
  }
  std::string PathOf(const ShardIdentity& identity) const {
    return steps_ / StepFolderName(identity.step, identity.attempt) + "/" +
           ShardFileName(identity.rank, identity.world_size);
  }
  absl::StatusOr<std::unique_ptr<ShardReader>> Open() {
    return ShardReader::Open(PosixFileSystem(), PathOf(GoldenDeltaIdentity()), steps_.path());
  }

  const TestDirectory steps_;

 private:
  void Place(const std::string& golden, const ShardIdentity& identity) {
    std::filesystem::create_directories(std::filesystem::path(PathOf(identity)).parent_path());
    WriteWhole(PathOf(identity), ReadWhole(golden));
  }
};

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

TEST(GoldenHeader2, IsReadBitExact) {
  auto reader = ShardReader::Open(PosixFileSystem(), kGoldenBoxes, ".");
  ASSERT_THAT(reader, IsOk());
  EXPECT_TRUE((*reader)->header().repeats_names);
  EXPECT_EQ((*reader)->header().identity, GoldenBoxesIdentity());
  EXPECT_EQ((*reader)->index().metrics, (std::map<std::string, double>{{"loss", 0.25}}));
  ExpectReadsBack(**reader, GoldenBoxesContents());
}

TEST(GoldenHeader2, IsSound) {
  const ShardIdentity identity = GoldenBoxesIdentity();
  auto result = VerifyShard(PosixFileSystem(), kGoldenBoxes, ".", &identity, {});
  ASSERT_THAT(result, IsOk());
  EXPECT_TRUE(result->damage.empty()) << result->damage[0].what;
}

TEST(GoldenHeader2, IsWhatTheEncodersWrite) {
  auto reader = ShardReader::Open(PosixFileSystem(), kGoldenBoxes, ".");
  ASSERT_THAT(reader, IsOk());
  const std::string file = ReadWhole(kGoldenBoxes);
  const ShardFooter& footer = (*reader)->footer();
  EXPECT_EQ(file.substr(0, kShardBlockBytes), EncodeShardHeader((*reader)->header()));
  EXPECT_EQ(file.substr(footer.index_offset, footer.index_bytes), EncodeShardIndex((*reader)->index()));
  EXPECT_EQ(file.substr(file.size() - kShardBlockBytes), EncodeShardFooter(footer));
}

TEST_F(GoldenFormat2, IsReadBitExact) {
  auto reader = Open();
  ASSERT_THAT(reader, IsOk());
  EXPECT_TRUE((*reader)->footer().index_is_delta);
  EXPECT_EQ((*reader)->header().identity, GoldenDeltaIdentity());
  const ShardIndex& index = (*reader)->index();
  EXPECT_EQ(index.created_unix_ns, 1'700'000'001'000'000'001);
  EXPECT_EQ(index.metrics, (std::map<std::string, double>{{"accuracy", 0.875}, {"loss", 2.5}}));
  EXPECT_EQ(index.user_metadata, R"({"dataset": "golden", "lines": [3]})");
  EXPECT_EQ(index.properties.at("writer"), "make_golden");
  ExpectReadsBack(**reader, GoldenDeltaContents());
}

TEST_F(GoldenFormat2, IsSound) {
  const ShardIdentity identity = GoldenDeltaIdentity();
  auto result = VerifyShard(PosixFileSystem(), PathOf(identity), steps_.path(), &identity, {});
  ASSERT_THAT(result, IsOk());
  EXPECT_TRUE(result->damage.empty()) << result->damage[0].what;
}

TEST_F(GoldenFormat2, IsWhatTheEncodersWrite) {
  auto base = ShardReader::Open(PosixFileSystem(), kGolden, ".");
  ASSERT_THAT(base, IsOk());
  EXPECT_TRUE(MakeGoldenDelta(**base) == ReadWhole(kGoldenDelta));
}

}  // namespace
}  // namespace tidemark::storage
