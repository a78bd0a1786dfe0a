#include "storage/shard/chunk_reuse.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Entries "a", of two chunks in the shard itself and in its file 1, and "b", of one chunk in its file 2.
ReusableShard Source() {
  ReusableShard shard{.identity = TestIdentity(10), .chunk_bytes = kTestChunkBytes, .index = {}};
  shard.index.files = {ReferenceTo(TestIdentity(1)), ReferenceTo(TestIdentity(2))};
  for (const uint16_t file : {0, 1, 2}) {
    ChunkRecord& chunk = shard.index.chunks.emplace_back();
    chunk.file = file;
    chunk.raw_bytes = chunk.stored_bytes = 100;
    chunk.offset = 4096 + file * 100;
  }
  shard.index.entries = {{.spec = Tensor("a", Dtype::kUint8, {}), .first_chunk = 0, .chunk_count = 2},
                         {.spec = Tensor("b", Dtype::kUint8, {}), .first_chunk = 2, .chunk_count = 1}};
  return shard;
}

TEST(ChunkReuse, FindsAnEntryByItsNameWhereverItIs) {
  const ReusableShard source = Source();
  ChunkReuse reuse(&source, TestIdentity(20), kTestChunkBytes);
  for (const size_t number : {0, 1, 7}) {
    EXPECT_EQ(reuse.ChunksOf(number, "a").data(), &source.index.chunks[0]);
    EXPECT_EQ(reuse.ChunksOf(number, "a").size(), 2u);
    EXPECT_EQ(reuse.ChunksOf(number, "b").data(), &source.index.chunks[2]);
    EXPECT_THAT(reuse.ChunksOf(number, "c"), IsEmpty());
  }
}

TEST(ChunkReuse, NamesTheFileInWhichTheBytesLie) {
  const ReusableShard source = Source();
  ChunkReuse reuse(&source, TestIdentity(20), kTestChunkBytes);
  ChunkRecord expected = source.index.chunks[2];
  expected.file = 1;
  EXPECT_EQ(reuse.Refer(source.index.chunks[2]), expected);
  EXPECT_EQ(reuse.Refer(source.index.chunks[0]).file, 2);
  EXPECT_EQ(reuse.Refer(source.index.chunks[2]).file, 1);
  // File 1 of the source is not used, and is not listed.
  EXPECT_THAT(reuse.files(), ElementsAre(ReferenceTo(TestIdentity(2)), ReferenceTo(TestIdentity(10))));
}

TEST(ChunkReuse, GivesOneNumberToAFileThatIsListedTwice) {
  ReusableShard source = Source();
  source.index.files[1] = source.index.files[0];
  ChunkReuse reuse(&source, TestIdentity(20), kTestChunkBytes);
  EXPECT_EQ(reuse.Refer(source.index.chunks[1]).file, 1);
  EXPECT_EQ(reuse.Refer(source.index.chunks[2]).file, 1);
  EXPECT_EQ(reuse.files().size(), 1u);
}

TEST(ChunkReuse, FindsNothingInAShardThatDoesNotFit) {
  const ReusableShard source = Source();
  EXPECT_THAT(ChunkReuse(nullptr, TestIdentity(20), kTestChunkBytes).ChunksOf(0, "a"), IsEmpty());
  EXPECT_THAT(ChunkReuse(&source, TestIdentity(20), 2 * kTestChunkBytes).ChunksOf(0, "a"), IsEmpty());
  ShardIdentity elsewhere = TestIdentity(20);
  elsewhere.store.bytes[3] ^= 1;
  EXPECT_THAT(ChunkReuse(&source, elsewhere, kTestChunkBytes).ChunksOf(0, "a"), IsEmpty());
}

TEST(ChunkReuse, NeverRefersToTheNewShardItself) {
  const ReusableShard source = Source();
  ChunkReuse reuse(&source, TestIdentity(1), kTestChunkBytes);
  EXPECT_TRUE(reuse.CanRefer(source.index.chunks[0]));
  EXPECT_FALSE(reuse.CanRefer(source.index.chunks[1]));
  EXPECT_TRUE(reuse.CanRefer(source.index.chunks[2]));
}

TEST(ChunkReuse, NamesTheFilesThatHoldTheMostBytesOfMoreThanAreNamed) {
  constexpr size_t kFiles = kFileReferencesWrittenMax + 3;  // and the source itself
  ReusableShard source = Source();
  source.index.chunks.clear();
  source.index.files.clear();
  for (size_t file = 0; file <= kFiles; ++file) {
    ChunkRecord& chunk = source.index.chunks.emplace_back();
    chunk.file = static_cast<uint16_t>(file);
    chunk.stored_bytes = 1000;
    if (file > 0) source.index.files.push_back(ReferenceTo(TestIdentity(100 + static_cast<int64_t>(file))));
  }
  for (const size_t small : {0, 7}) source.index.chunks[small].stored_bytes = 999;
  ChunkReuse reuse(&source, TestIdentity(20), kTestChunkBytes);
  std::vector<size_t> refused;
  for (const ChunkRecord& chunk : source.index.chunks) {
    if (reuse.CanRefer(chunk)) {
      reuse.Refer(chunk);
    } else {
      refused.push_back(chunk.file);
    }
  }
  EXPECT_THAT(refused, ElementsAre(0, 7, kFiles - 1, kFiles));
  EXPECT_EQ(reuse.files().size(), kFileReferencesWrittenMax);
}

}  // namespace
}  // namespace tidemark::storage
