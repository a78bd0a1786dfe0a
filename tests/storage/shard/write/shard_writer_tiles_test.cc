// ShardWriter, of boxes that are stored in tiles.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/shard/format/aligned_buffer.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/shard/write/shard_writer.h"
#include "storage/shard/write/tiles.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kRows = 500;
constexpr int64_t kColumns = 1000;
constexpr uint64_t kBytes = kRows * kColumns * sizeof(float);

// Columns [first, first + kColumns) of a matrix that has three times as many.
EntrySpec Columns(std::string name, int64_t first = kColumns) {
  EntrySpec spec = Tensor(std::move(name), Dtype::kFloat32, {kRows, 3 * kColumns});
  spec.box_offset = {0, first};
  spec.box_extent = {kRows, kColumns};
  return spec;
}

class ShardWriterTiles : public ::testing::TestWithParam<CodecPolicy> {
 protected:
  // The writer also checks that what it has encoded decodes.
  WrittenShard Write(const ShardContents& contents, int64_t step = 1000) {
    return WriteShard(directory_ / std::to_string(step), TestIdentity(step), contents,
                      {.policy = GetParam(), .chunk_bytes = kTestChunkBytes, .codec_threads = 3});
  }
  std::unique_ptr<ShardReader> Open(int64_t step = 1000) {
    auto reader = ShardReader::Open(PosixFileSystem(), directory_ / std::to_string(step), directory_.path());
    EXPECT_THAT(reader, IsOk());
    return *std::move(reader);
  }
  static std::vector<std::byte> Read(const ShardReader& reader, size_t entry) {
    std::vector<std::byte> bytes(reader.RawBytes(entry));
    const EntryRead read{entry, bytes};
    EXPECT_THAT(reader.Read({&read, 1}, {}), IsOk());
    return bytes;
  }
  // The box that the entries from `first` on are the tiles of.
  static std::vector<std::byte> ReadBox(const ShardReader& reader, const EntrySpec& box, size_t first) {
    std::vector<std::byte> bytes(kBytes);
    for (size_t i = first; i < first + 4; ++i) {
      const EntrySpec& tile = reader.index().entries[i].spec;
      EXPECT_EQ(tile.name, box.name);
      const std::vector<std::byte> stored = Read(reader, i);
      const std::byte* from = stored.data();
      TileBytes(box, tile).ForEachRun(0, stored.size(), [&](uint64_t offset, uint64_t count) {
        std::memcpy(bytes.data() + offset, from, count);
        from += count;
      });
    }
    return bytes;
  }
  std::vector<std::byte> NewBox() {
    // One half can be compressed, the other cannot.
    std::vector<std::byte> bytes = Weights(Dtype::kFloat32, kBytes / 8, random_);
    const std::vector<std::byte> noise = RandomBytes(kBytes / 2, random_);
    bytes.insert(bytes.end(), noise.begin(), noise.end());
    return bytes;
  }

  const TestDirectory directory_;
  std::mt19937_64 random_{1};
};

TEST_P(ShardWriterTiles, AreEntriesOfOneNameThatMakeUpTheBox) {
  TestContents contents;
  contents.Add(Tensor("before", Dtype::kUint8, {1000}), RandomBytes(1000, random_));
  contents.Add(Columns("box"), NewBox());
  contents.Add(Tensor("behind", Dtype::kUint8, {1000}), RandomBytes(1000, random_));
  const WrittenShard written = Write(*contents);
  EXPECT_EQ(written.entry_count, 6u);
  EXPECT_EQ(written.logical_bytes, 2000 + kBytes);
  const auto reader = Open();
  ASSERT_EQ(reader->index().entries.size(), 6u);
  EXPECT_TRUE(reader->header().repeats_names);
  EXPECT_THAT(reader->index().entries[2].spec.box_offset, ElementsAre(0, 1250));
  EXPECT_THAT(reader->index().entries[2].spec.box_extent, ElementsAre(kRows, 250));
  EXPECT_TRUE(std::ranges::equal(Read(*reader, 0), contents.bytes(0)));
  EXPECT_TRUE(std::ranges::equal(ReadBox(*reader, Columns("box"), 1), contents.bytes(1)));
  EXPECT_TRUE(std::ranges::equal(Read(*reader, 5), contents.bytes(2)));
}

// A part of the box that is not there yet is not looked at.
TEST_P(ShardWriterTiles, AreWrittenAsTheBoxBecomesReady) {
  const std::vector<std::byte> bytes = NewBox();
  AlignedBuffer arena(kBytes);
  std::fill(arena.data(), arena.data() + arena.size(), std::byte{0xee});
  ShardContents contents;
  contents.entries = {{.spec = Columns("box"), .bytes = arena.span().first(kBytes)}};
  absl::Mutex mutex;
  uint64_t ready = 0;
  contents.wait_until_ready = [&](size_t entry, uint64_t end) {
    EXPECT_EQ(entry, 0u);
    absl::MutexLock lock(&mutex);
    if (end > ready) {
      std::copy(bytes.begin() + static_cast<int64_t>(ready), bytes.begin() + static_cast<int64_t>(end),
                arena.data() + ready);
      ready = end;
    }
    return absl::OkStatus();
  };
  Write(contents);
  EXPECT_EQ(ready, kBytes);
  EXPECT_EQ(ReadBox(*Open(), Columns("box"), 0), bytes);
}

TEST_P(ShardWriterTiles, LieOneBehindTheOther) {
  TestContents contents;
  contents.Add(Columns("box"), NewBox());
  contents->wait_until_ready = [](size_t, uint64_t) { return absl::OkStatus(); };
  Write(*contents);
  const auto reader = Open();
  EXPECT_TRUE(std::ranges::is_sorted(reader->index().chunks, {}, &ChunkRecord::offset));
}

TEST_P(ShardWriterTiles, OfTiedBoxesAreTiedIfTheBoxesAreTheSame) {
  TestContents contents;
  const size_t box = contents.Add(Columns("box"), NewBox());
  contents.Tie(Columns("tied"), box);
  EXPECT_EQ(Write(*contents).logical_bytes, kBytes);
  const auto reader = Open();
  const ShardIndex& index = reader->index();
  ASSERT_EQ(index.entries.size(), 8u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(index.entries[i].first_chunk, index.entries[4 + i].first_chunk);
  EXPECT_TRUE(std::ranges::equal(ReadBox(*reader, Columns("tied"), 4), contents.bytes(box)));
}

// Their tiles would have other bytes.
TEST_P(ShardWriterTiles, BoxesThatAreTiedToAnythingElseAreStoredAsTheyAre) {
  EntrySpec transposed = Columns("transposed");
  transposed.shape = {kColumns, 3 * kRows};
  transposed.box_offset = {0, kRows};
  transposed.box_extent = {kColumns, kRows};
  for (const EntrySpec& spec : {Tensor("flat", Dtype::kFloat32, {kRows * kColumns}), transposed}) {
    TestContents contents;
    const size_t box = contents.Add(Columns("box"), NewBox());
    const size_t same = contents.Tie(Columns("same"), box);
    contents.Tie(spec, same);
    Write(*contents);
    const auto reader = Open();
    ASSERT_EQ(reader->index().entries.size(), 3u);
    EXPECT_FALSE(reader->header().repeats_names);
    for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::ranges::equal(Read(*reader, i), contents.bytes(box)));
    std::filesystem::remove(directory_ / "1000");
  }
}

TEST_P(ShardWriterTiles, SeveralBoxesOfANameHaveTilesEach) {
  TestContents contents;
  for (const int64_t first : {int64_t{0}, 2 * kColumns}) contents.Add(Columns("box", first), NewBox());
  Write(*contents);
  const auto reader = Open();
  ASSERT_EQ(reader->index().entries.size(), 8u);
  EXPECT_TRUE(std::ranges::equal(ReadBox(*reader, Columns("box", 0), 0), contents.bytes(0)));
  EXPECT_TRUE(std::ranges::equal(ReadBox(*reader, Columns("box", 2 * kColumns), 4), contents.bytes(1)));
}

TEST_P(ShardWriterTiles, BytesThatAreReleasedBehindTheWriterAreStoredAsTheyAre) {
  TestContents contents;
  contents.Add(Columns("box"), NewBox());
  uint64_t released = 0;
  contents->release = [&](size_t, uint64_t end) {
    EXPECT_GT(end, released);
    released = end;
  };
  EXPECT_EQ(Write(*contents).entry_count, 1u);
  EXPECT_EQ(released, kBytes);
  EXPECT_TRUE(std::ranges::equal(Read(*Open(), 0), contents.bytes(0)));
}

TEST_P(ShardWriterTiles, ThatDidNotChangeAreNotWrittenAgain) {
  TestContents contents;
  std::vector<std::byte> bytes = NewBox();
  contents.Add(Columns("box"), bytes);
  const WrittenShard first = Write(*contents, 1000);
  // One column of the second tile has changed.
  for (int64_t row = 0; row < kRows; ++row)
    bytes[static_cast<size_t>(row * kColumns + 300) * sizeof(float)] ^= std::byte{1};
  TestContents changed;
  changed.Add(Columns("box"), bytes);
  changed->reuse = first.reusable.get();
  ShardIdentity identity = TestIdentity(1001);
  identity.sequence = 43;
  auto writer = ShardWriter::Create(PosixFileSystem(), {.policy = GetParam(), .chunk_bytes = kTestChunkBytes});
  ASSERT_THAT(writer, IsOk());
  const auto second = (*writer)->Write(directory_ / "1001", identity, *changed);
  ASSERT_THAT(second, IsOk());
  const ShardIndex& index = second->reusable->index;
  for (size_t i = 0; i < 4; ++i) {
    for (uint64_t chunk = 0; chunk < index.entries[i].chunk_count; ++chunk) {
      EXPECT_EQ(index.chunks[index.entries[i].first_chunk + chunk].file, i == 1 ? 0 : 1) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, ShardWriterTiles,
                         ::testing::Values(CodecPolicy::kNone, CodecPolicy::kSpace, CodecPolicy::kThroughput),
                         [](const auto& info) { return std::string(CodecPolicyName(info.param)); });

}  // namespace
}  // namespace tidemark::storage
