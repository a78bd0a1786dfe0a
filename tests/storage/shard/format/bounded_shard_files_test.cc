// A shard whose index is larger than the bounds is not opened. What the bounds save a reader is in
// tests/fuzz/hostile_reader_test.cc.

#include "storage/shard/format/bounded_shard_files.h"

#include <filesystem>
#include <string>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"
#include "storage/shard/format/shard_index_layout.h"
#include "storage/shard/read/shard_reader.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::EndsWith;
using testing::StartsWith;

constexpr IndexBounds kBounds = {.bytes = 1000, .text_bytes = 400, .entries = 3, .metrics = 2, .properties = 1};

class BoundedShardFilesTest : public testing::Test {
 protected:
  // Entries of no bytes.
  static ShardIndex Index(int entries) {
    ShardIndex index;
    for (int i = 0; i < entries; ++i)
      index.entries.push_back({.spec = Tensor(fmt::format("e{}", i), Dtype::kUint8, {0})});
    return index;
  }

  absl::Status Open(const ShardIndex& index) {
    WriteWhole(path_, BuildShard({TestIdentity(), kChunkBytesMin}, "", index));
    return Open();
  }

  absl::Status Open() {
    BoundedShardFiles files(PosixFileSystemAt(directory_.path()), kBounds);
    return ShardReader::Open(files, path_, directory_.path()).status();
  }

  auto Refuses(std::string_view at_most, std::string_view found) const {
    return StatusIs(StatusCode::kResourceExhausted,
                    AllOf(StartsWith(path_ + " at 4096: shard index: expected at most " + std::string(at_most) +
                                     " in a store that is not trusted"),
                          EndsWith("found " + std::string(found))));
  }

  const TestDirectory directory_;
  const std::string path_ = directory_ / "shard-00000-of-00001.tmk";
};

TEST_F(BoundedShardFilesTest, OpensAsManyAsTheBounds) {
  ShardIndex index = Index(3);
  index.metrics = {{"a", 1}, {"b", 1}};
  index.properties = {{"a", ""}};
  EXPECT_THAT(Open(index), IsOk());
  index.user_metadata.resize(index.user_metadata.size() + 1000 - EncodeShardIndex(index).size(), ' ');
  ASSERT_EQ(EncodeShardIndex(index).size(), 1000u);
  EXPECT_THAT(Open(index), IsOk());
}

TEST_F(BoundedShardFilesTest, RefusesOneMore) {
  ShardIndex index;
  index.user_metadata.resize(index.user_metadata.size() + 1001 - EncodeShardIndex(index).size(), ' ');
  EXPECT_THAT(Open(index), Refuses("1000 bytes", "1001"));
  EXPECT_THAT(Open(Index(4)), Refuses("3 entries", "4"));
  index = {};
  index.metrics = {{"a", 1}, {"b", 1}, {"c", 1}};
  EXPECT_THAT(Open(index), Refuses("2 metrics", "3"));
  index = {};
  index.properties = {{"a", ""}, {"b", ""}};
  EXPECT_THAT(Open(index), Refuses("1 properties", "2"));
}

TEST_F(BoundedShardFilesTest, CountsNamesApart) {
  const auto named = [](size_t bytes) {
    ShardIndex index = Index(1);
    index.user_metadata = "";
    const uint64_t others = EncodeShardIndex(index).size();
    index.files = {ReferenceTo(TestIdentity(950))};
    index.user_metadata = std::string(200, ' ');
    index.entries[0].spec.name.resize(index.entries[0].spec.name.size() + bytes - others, 'x');
    return index;
  };
  EXPECT_THAT(Open(named(400)), IsOk());
  EXPECT_THAT(Open(named(401)), Refuses("400 bytes of names, shapes and properties", "401"));
}

TEST_F(BoundedShardFilesTest, CountsTheChunksOfADelta) {
  const ShardIndex base = Index(1);
  const ShardIdentity other = TestIdentity(950);
  const std::string folder = directory_ / StepFolderName(other.step, other.attempt);
  std::filesystem::create_directory(folder);
  WriteWhole(folder + "/" + ShardFileName(0, 1), BuildShard({other, kChunkBytesMin}, "", base));
  const auto open = [&](size_t name_bytes) {
    ShardIndex index = base;
    index.files = {ReferenceTo(other)};
    index.entries[0].spec.name.resize(name_bytes, 'x');
    const IndexBase delta = {.file = 1,
                             .digest = DigestOf(AsBytes(EncodeShardIndex(base))),
                             .changed_chunks = {},
                             .changed_entries = {true}};
    WriteWhole(path_, BuildShard({TestIdentity(), kChunkBytesMin}, "", index, delta));
    return Open();
  };
  // The preambles of both kinds, the entry's number, its extent and its other fields.
  const size_t name_bytes = 400 - kIndexPreambleBytes - kDeltaPreambleBytes - kDeltaNumberBytes - 8 - kEntryBytesMin;
  EXPECT_THAT(open(name_bytes), IsOk());
  EXPECT_THAT(open(name_bytes + 1), Refuses("400 bytes of names, shapes and properties", "401"));
}

TEST_F(BoundedShardFilesTest, LeavesDamageToTheReader) {
  std::string index = EncodeShardIndex({});
  index[16] = '\x7f';  // a huge count of entries; the index has none
  const ShardHeader header{TestIdentity(), kChunkBytesMin};
  ShardFooter footer{.index_offset = kShardBlockBytes, .index_bytes = index.size()};
  footer.file_bytes = 3 * kShardBlockBytes;
  footer.index_digest = DigestOf(AsBytes(index));
  WriteWhole(path_, EncodeShardHeader(header) + index + std::string(kShardBlockBytes - index.size(), '\0') +
                        EncodeShardFooter(footer));
  EXPECT_THAT(Open(), StatusIs(StatusCode::kDataLoss, testing::HasSubstr("entry count at byte")));
  WriteWhole(path_, std::string(3 * kShardBlockBytes, 'x'));
  EXPECT_THAT(Open(), StatusIs(StatusCode::kDataLoss, testing::HasSubstr("shard header")));
  WriteWhole(path_, "x");
  EXPECT_THAT(Open(), StatusIs(StatusCode::kDataLoss, testing::HasSubstr("size of a shard")));
}

TEST_F(BoundedShardFilesTest, OpensOtherFilesAsTheyAre) {
  const std::string other = directory_ / "store.json";
  WriteWhole(other, BuildShard({TestIdentity(), kChunkBytesMin}, "", Index(4)));
  BoundedShardFiles files(PosixFileSystemAt(directory_.path()), kBounds);
  EXPECT_THAT(files.OpenForRead(other, /*direct=*/false), IsOk());
}

}  // namespace
}  // namespace tidemark::storage
