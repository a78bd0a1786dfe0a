#include "storage/shard/read/chunk_scrub.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr uint32_t kChunkBytes = 16 << 10;
constexpr uint64_t kEverything = uint64_t{1} << 40;
bool NeverCancelled() { return false; }

// A shard of 20 chunks of noise in "base" and one of "small"; a second one refers to the first for "base".
class ChunkScrubTest : public testing::Test {
 protected:
  void SetUp() override { SetUpWith(20, kChunkBytes); }

  void SetUpWith(size_t chunks, uint32_t chunk_bytes) {
    base_ = RandomBytes(chunks * chunk_bytes, random_);
    first_ = Save(1, chunk_bytes, nullptr);
    second_ = Save(2, chunk_bytes, first_.get());
    ASSERT_EQ(second_->index.files.size(), 1u);
    files_.Reset();
  }

  std::shared_ptr<const ReusableShard> Save(int64_t step, uint32_t chunk_bytes, const ReusableShard* reuse) {
    const ShardIdentity identity = TestIdentity(step);
    const std::string folder = directory_ / StepFolderName(step, identity.attempt);
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    TestContents contents;
    contents.AddAligned(Tensor("base", Dtype::kUint8, {static_cast<int64_t>(base_.size())}), base_);
    contents.Add(Tensor("small", Dtype::kUint8, {3000}), RandomBytes(3000, random_));
    contents->reuse = reuse;
    return WriteShard(PathOf(step), identity, *contents, {.chunk_bytes = chunk_bytes, .codec_threads = 2}).reusable;
  }

  std::string PathOf(int64_t step) const {
    return directory_ / StepFolderName(step, TestIdentity(step).attempt) + "/" + ShardFileName(0, 1);
  }

  void FlipBit(int64_t step, uint64_t offset) const {
    std::fstream file(PathOf(step), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 1));
  }

  size_t Count(const std::string& operation) const {
    size_t count = 0;
    for (const std::string& made : files_.operations()) count += made == operation ? 1 : 0;
    return count;
  }

  TestDirectory directory_;
  FailingFileSystem files_{PosixFileSystem()};
  std::mt19937_64 random_{1};
  std::vector<std::byte> base_;
  std::shared_ptr<const ReusableShard> first_;
  std::shared_ptr<const ReusableShard> second_;
};

TEST_F(ChunkScrubTest, ReadsEveryChunkOnceInAPassAndBeginsAnew) {
  ChunkScrub scrub(files_, directory_.path());
  for (int pass = 0; pass < 2; ++pass) {
    const ChunkScrub::Result result = scrub.Read(*second_, kEverything, NeverCancelled);
    EXPECT_TRUE(result.pass_ended);
    EXPECT_FALSE(result.damage.has_value());
    EXPECT_GE(result.bytes_read, base_.size());
    EXPECT_LT(result.bytes_read, base_.size() + 64 * 1024);
  }
}

TEST_F(ChunkScrubTest, FindsAFlippedBitOfEveryChunkWhereverItLies) {
  for (const ReusableShard* shard : {first_.get(), second_.get()}) {
    for (size_t i = 0; i < shard->index.chunks.size(); ++i) {
      const ChunkRecord& chunk = shard->index.chunks[i];
      const int64_t step = shard == first_.get() || chunk.file != 0 ? 1 : 2;
      const uint64_t offset = chunk.offset + random_() % chunk.stored_bytes;
      FlipBit(step, offset);
      ChunkScrub scrub(files_, directory_.path());
      const ChunkScrub::Result result = scrub.Read(*shard, kEverything, NeverCancelled);
      ASSERT_TRUE(result.damage.has_value()) << "chunk " << i;
      EXPECT_EQ(result.damage->file.step, step);
      EXPECT_EQ(result.damage->entry, i < 20 ? "base" : "small");
      EXPECT_THAT(result.damage->what,
                  AllOf(HasSubstr(PathOf(step)), HasSubstr("checksum"), HasSubstr(std::to_string(chunk.offset))));
      EXPECT_TRUE(scrub.Read(*shard, kEverything, NeverCancelled).damage.has_value()) << "it begins there again";
      FlipBit(step, offset);
    }
  }
}

// The index of the next shard may be a delta to it.
TEST_F(ChunkScrubTest, FindsAFlippedBitOfTheIndexThatIsStoredWhole) {
  const std::string bytes = ReadWhole(PathOf(1));
  ReusableShard delta = *second_;
  delta.index_base = {.file = 1, .digest = first_->index_base.digest};
  ChunkScrub scrub(files_, directory_.path());
  EXPECT_TRUE(scrub.Read(delta, kEverything, NeverCancelled).pass_ended);
  for (const ReusableShard* shard : {first_.get(), static_cast<const ReusableShard*>(&delta)}) {
    for (const uint64_t back : {4096u + 4090u, 4096u + 4000u}) {
      FlipBit(1, bytes.size() - back);
      const ChunkScrub::Result result = scrub.Read(*shard, kEverything, NeverCancelled);
      ASSERT_TRUE(result.damage.has_value());
      EXPECT_EQ(result.damage->file.step, 1);
      EXPECT_EQ(result.damage->entry, "");
      EXPECT_THAT(result.damage->what, AllOf(HasSubstr(PathOf(1)), HasSubstr("digest of the index")));
      FlipBit(1, bytes.size() - back);
      EXPECT_TRUE(scrub.Read(*shard, kEverything, NeverCancelled).pass_ended);
    }
  }
  WriteWhole(PathOf(1), bytes.substr(0, bytes.size() - 4096));
  const ChunkScrub::Result cut = ChunkScrub(files_, directory_.path()).Read(delta, kEverything, NeverCancelled);
  EXPECT_TRUE(cut.damage.has_value());
}

TEST_F(ChunkScrubTest, FindsAFileThatIsGoneOrCutOrOfAnotherStepOrUnreadable) {
  const auto damage = [&] {
    ChunkScrub scrub(files_, directory_.path());
    const auto result = scrub.Read(*second_, kEverything, NeverCancelled);
    return result.damage ? result.damage->what : "sound";
  };
  const std::string bytes = ReadWhole(PathOf(1));
  std::filesystem::resize_file(PathOf(1), second_->index.chunks[15].offset / 4096 * 4096);
  EXPECT_NE(damage(), "sound");
  WriteWhole(PathOf(1), ReadWhole(PathOf(2)));
  EXPECT_THAT(damage(), HasSubstr("shard header"));
  std::filesystem::remove(PathOf(1));
  EXPECT_THAT(damage(), HasSubstr(PathOf(1)));
  WriteWhole(PathOf(1), bytes);
  EXPECT_EQ(damage(), "sound");
  files_.SetRule([&](const FailingFileSystem::Call& call) {
    return call.operation == "ReadAt" && call.path == PathOf(1) ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT(damage(), HasSubstr("EIO"));
  files_.Reset();
}

// A bit may have flipped on the way, and a full table of descriptors says nothing of the disk.
TEST_F(ChunkScrubTest, ReadsTwiceBeforeItReportsDamageAndReportsNoneForWantOfResources) {
  files_.FailOperation("ReadAt", absl::InternalError("EIO"), /*before=*/5);
  ChunkScrub scrub(files_, directory_.path());
  ChunkScrub::Result result = scrub.Read(*second_, kEverything, NeverCancelled);
  EXPECT_TRUE(result.pass_ended);
  EXPECT_FALSE(result.damage.has_value());
  files_.SetRule([](const FailingFileSystem::Call& call) {
    return call.operation == "OpenForRead" ? absl::ResourceExhaustedError("EMFILE") : absl::OkStatus();
  });
  for (size_t i = 0; i < second_->index.chunks.size(); ++i) {
    result = scrub.Read(*second_, kEverything, NeverCancelled);
    EXPECT_FALSE(result.damage.has_value());
    EXPECT_TRUE(result.skipped);
    EXPECT_LE(result.bytes_read, 2 * kShardBlockBytes) << "the call ends there";
  }
}

TEST_F(ChunkScrubTest, ReadsNoMoreThanItIsToldAndGoesOnThere) {
  ChunkScrub scrub(files_, directory_.path());
  int calls = 0;
  for (bool ended = false; !ended; ++calls) {
    const ChunkScrub::Result result = scrub.Read(*second_, kChunkBytes, NeverCancelled);
    EXPECT_LE(result.bytes_read, 2 * kChunkBytes + 3 * kShardBlockBytes) << "one chunk and what is aligned";
    ended = result.pass_ended;
    ASSERT_LT(calls, 100);
  }
  EXPECT_GE(calls, 10);
}

TEST_F(ChunkScrubTest, ReadsALargeChunkInPiecesAndStopsBetweenThem) {
  SetUpWith(1, 8 << 20);
  ChunkScrub scrub(files_, directory_.path());
  int asked = 0;
  ChunkScrub::Result result = scrub.Read(*second_, kEverything, [&] { return ++asked > 5; });
  EXPECT_FALSE(result.pass_ended);
  EXPECT_LE(result.bytes_read, 5 * ChunkScrub::kBufferBytes + kShardBlockBytes);
  EXPECT_GE(Count("ReadAt"), 3u);
  // The same chunk is read again, from its beginning.
  FlipBit(1, second_->index.chunks[0].offset);
  result = scrub.Read(*second_, kEverything, NeverCancelled);
  ASSERT_TRUE(result.damage.has_value());
}

TEST_F(ChunkScrubTest, GoesOnWithANewerShardWhereItWas) {
  ChunkScrub scrub(files_, directory_.path());
  scrub.Read(*first_, 10 * kChunkBytes, NeverCancelled);
  FlipBit(1, second_->index.chunks[2].offset);
  ChunkScrub::Result result = scrub.Read(*second_, kEverything, NeverCancelled);
  EXPECT_TRUE(result.pass_ended);
  EXPECT_FALSE(result.damage.has_value()) << "that chunk was read before";
  EXPECT_TRUE(scrub.Read(*second_, kEverything, NeverCancelled).damage.has_value());
}

TEST_F(ChunkScrubTest, BeginsAnewWithAShardOfFewerChunks) {
  ChunkScrub scrub(files_, directory_.path());
  scrub.Read(*first_, 10 * kChunkBytes, NeverCancelled);
  base_.resize(kChunkBytes);
  const auto third = Save(3, kChunkBytes, nullptr);
  FlipBit(3, third->index.chunks[0].offset);
  EXPECT_TRUE(scrub.Read(*third, kEverything, NeverCancelled).damage.has_value());
}

TEST_F(ChunkScrubTest, ReadsTheIndexOfAShardWithoutChunks) {
  const ShardIdentity identity = TestIdentity(3);
  std::filesystem::create_directories(directory_ / StepFolderName(3, identity.attempt));
  const auto empty = WriteShard(PathOf(3), identity, *TestContents(), {.codec_threads = 1}).reusable;
  ChunkScrub scrub(files_, directory_.path());
  const ChunkScrub::Result result = scrub.Read(*empty, kEverything, NeverCancelled);
  EXPECT_TRUE(result.pass_ended);
  EXPECT_FALSE(result.damage.has_value());
  std::filesystem::remove(PathOf(3));
  EXPECT_TRUE(scrub.Read(*empty, kEverything, NeverCancelled).damage.has_value());
}

}  // namespace
}  // namespace tidemark::storage
