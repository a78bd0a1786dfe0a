#include "storage/shard/write/chunk_reuse.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/shard/format/aligned_buffer.h"
#include "tests/storage/io/drawn_cases.h"
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
    shard.files.push_back({.bytes = 100});
  }
  shard.index.entries = {{.spec = Tensor("a", Dtype::kUint8, {}), .first_chunk = 0, .chunk_count = 2},
                         {.spec = Tensor("b", Dtype::kUint8, {}), .first_chunk = 2, .chunk_count = 1}};
  return shard;
}

EntrySpec Whole(std::string name) { return Tensor(std::move(name), Dtype::kUint8, {}); }

TEST(ChunkReuse, FindsAnEntryByItsNameWhereverItIs) {
  const ReusableShard source = Source();
  ChunkReuse reuse(&source, TestIdentity(20), kTestChunkBytes);
  for (const size_t number : {0, 1, 7}) {
    EXPECT_EQ(reuse.ChunksOf(number, Whole("a")).data(), &source.index.chunks[0]);
    EXPECT_EQ(reuse.ChunksOf(number, Whole("a")).size(), 2u);
    EXPECT_EQ(reuse.ChunksOf(number, Whole("b")).data(), &source.index.chunks[2]);
    EXPECT_THAT(reuse.ChunksOf(number, Whole("c")), IsEmpty());
  }
}

TEST(ChunkReuse, TellsBoxesOfOneNameApartWhereverTheyAre) {
  ReusableShard source = Source();
  const auto box = [](int64_t offset) {
    EntrySpec spec = Tensor("a", Dtype::kUint8, {10});
    spec.box_offset = {offset};
    spec.box_extent = {5};
    return spec;
  };
  source.index.entries[0].spec = box(0);
  source.index.entries[1].spec = box(5);
  ChunkReuse reuse(&source, TestIdentity(20), kTestChunkBytes);
  for (const size_t number : {0, 1, 7}) {
    EXPECT_EQ(reuse.ChunksOf(number, box(0)).data(), &source.index.chunks[0]);
    EXPECT_EQ(reuse.ChunksOf(number, box(5)).data(), &source.index.chunks[2]);
    EXPECT_THAT(reuse.ChunksOf(number, box(1)), IsEmpty());
    EXPECT_THAT(reuse.ChunksOf(number, Whole("a")), IsEmpty());
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
  EXPECT_THAT(ChunkReuse(nullptr, TestIdentity(20), kTestChunkBytes).ChunksOf(0, Whole("a")), IsEmpty());
  EXPECT_THAT(ChunkReuse(&source, TestIdentity(20), 2 * kTestChunkBytes).ChunksOf(0, Whole("a")), IsEmpty());
  ShardIdentity elsewhere = TestIdentity(20);
  elsewhere.store.bytes[3] ^= 1;
  EXPECT_THAT(ChunkReuse(&source, elsewhere, kTestChunkBytes).ChunksOf(0, Whole("a")), IsEmpty());
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
  source.files.clear();
  for (size_t file = 0; file <= kFiles; ++file) {
    ChunkRecord& chunk = source.index.chunks.emplace_back();
    chunk.file = static_cast<uint16_t>(file);
    chunk.stored_bytes = 1000;
    source.files.push_back({.bytes = 1000});
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

TEST(ChunkReuse, RefersToNoFileOfWhichNothingIsKnown) {
  ReusableShard source = Source();
  source.files[1].bytes = 0;
  source.files.pop_back();
  const ChunkReuse reuse(&source, TestIdentity(20), kTestChunkBytes);
  EXPECT_TRUE(reuse.CanRefer(source.index.chunks[0]));
  EXPECT_FALSE(reuse.CanRefer(source.index.chunks[1]));
  EXPECT_FALSE(reuse.CanRefer(source.index.chunks[2]));
}

TEST(ChunkReuse, WritesAgainWhatLiesInTheFilesOfTheSmallestShare) {
  constexpr uint32_t kBytes = 10 << 20;
  ReusableShard source = Source();
  for (ChunkRecord& chunk : source.index.chunks) chunk.raw_bytes = chunk.stored_bytes = kBytes;
  source.files = {{.bytes = kBytes}, {.bytes = 2 * kBytes + 1}, {.bytes = 2 * kBytes}};
  // The new file is expected to have a third of the whole, as the source has, and more: all would be above 6 * kBytes.
  ChunkReuse reuse(&source, TestIdentity(20), kTestChunkBytes);
  EXPECT_TRUE(reuse.CanRefer(source.index.chunks[0]));
  EXPECT_FALSE(reuse.CanRefer(source.index.chunks[1]));
  EXPECT_TRUE(reuse.CanRefer(source.index.chunks[2]));
}

// Steps of one tensor of 1,024 chunks, or of many tensors of 64 bytes each, whose index is the larger part of a file.
// Each step leaves only the files that the latest of them needs.
class SimulatedSteps {
 public:
  static constexpr size_t kChunks = 1024;
  static constexpr size_t kTinyTensors = 12'000;

  SimulatedSteps() {
    entries_ = {{.spec = Tensor("w", Dtype::kUint8, {kChunks * kChunkBytesMin}), .chunk_count = kChunks}};
  }
  explicit SimulatedSteps(size_t tensors) : chunks_(tensors), chunk_bytes_(64) {
    for (size_t i = 0; i < tensors; ++i) {
      entries_.push_back({.spec = Tensor("layers." + std::to_string(1'000'000 + i) + ".weight", Dtype::kUint8, {64}),
                          .first_chunk = i,
                          .chunk_count = 1});
    }
  }

  // Writes a step in which those chunks have changed that `has_changed` says. Returns the bytes of its file.
  uint64_t Save(const std::function<bool(size_t)>& has_changed, uint64_t saves_max = 0) {
    ShardIdentity identity = TestIdentity(step_);
    identity.sequence = static_cast<uint64_t>(step_++);
    ChunkReuse reuse(latest_.get(), identity, kChunkBytesMin, saves_max);
    auto next = std::make_unique<ReusableShard>();
    next->identity = identity;
    next->chunk_bytes = kChunkBytesMin;
    next->index.entries = entries_;
    const std::span<const ChunkRecord> before =
        latest_ == nullptr ? std::span<const ChunkRecord>() : latest_->index.chunks;
    uint64_t end = kShardBlockBytes;
    for (size_t i = 0; i < chunks_; ++i) {
      ChunkRecord& chunk = next->index.chunks.emplace_back();
      if (!before.empty() && !has_changed(i) && reuse.CanRefer(before[i])) {
        chunk = reuse.Refer(before[i]);
        continue;
      }
      chunk.raw_bytes = chunk.stored_bytes = chunk_bytes_;
      chunk.offset = end;
      end += chunk_bytes_;
    }
    next->index.files = reuse.files();
    next->index_base = reuse.ChooseBase(next->index, /*repeats_names=*/false);
    next->index.files = reuse.files();
    const uint64_t bytes = end + AlignUp(EncodedShardIndexBytes(next->index, next->index_base)) + kShardBlockBytes;
    next->files = reuse.FilesBehind({.bytes = bytes, .sequence = identity.sequence});
    next->anew_bytes = reuse.anew_bytes();
    latest_ = std::move(next);
    return bytes;
  }

  // Saves since the oldest of the files that the latest step needs.
  uint64_t oldest() const {
    uint64_t age = 0;
    for (const ReusableFile& file : latest_->files) age = std::max(age, latest_->files[0].sequence - file.sequence);
    return age;
  }

  // Of the files that the latest step needs.
  uint64_t bytes_on_disk() const {
    uint64_t bytes = 0;
    for (const ReusableFile& file : latest_->files) bytes += file.bytes;
    return bytes;
  }

  bool is_delta() const { return latest_->index_base.file != 0; }

 private:
  size_t chunks_ = kChunks;
  uint32_t chunk_bytes_ = kChunkBytesMin;
  std::vector<ShardEntry> entries_;
  int64_t step_ = 0;
  std::unique_ptr<ReusableShard> latest_;
};

class ReusedBytes : public ::testing::TestWithParam<int> {};

TEST_P(ReusedBytes, AreInFilesOfAtMostTwiceAWholeStep) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  SimulatedSteps steps;
  const uint64_t whole = steps.Save([](size_t) { return true; });
  uint64_t written = 0;
  uint64_t on_disk_max = 0;
  for (int i = 0; i < 200; ++i) {
    written += steps.Save([&](size_t) { return static_cast<int>(random() % 100) < GetParam(); });
    ASSERT_LE(steps.bytes_on_disk(), 2 * whole + kNeededBytesSlack) << "save " << i;
    on_disk_max = std::max(on_disk_max, steps.bytes_on_disk());
  }
  const double share = static_cast<double>(written) / 200 / static_cast<double>(whole);
  std::printf("%d %% change: at most %.2f of a whole step on the disk, %.3f written by a save\n", GetParam(),
              static_cast<double>(on_disk_max) / static_cast<double>(whole), share);
  EXPECT_LT(share, 0.02 + 2 * GetParam() / 100.0) << "that is written anew costs more than what changes";
}

INSTANTIATE_TEST_SUITE_P(Percent, ReusedBytes, ::testing::Values(1, 5, 20, 50));

class TinyTensors : public ::testing::TestWithParam<int> {};

TEST_P(TinyTensors, AreInFilesOfAtMostTwiceAWholeStepWithTheirIndices) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const size_t one_of = OneOf(1, 2);
  for (size_t drawn = seed % one_of; drawn < 2; drawn += one_of) {
    const uint64_t saves_max = drawn == 0 ? 0 : 100;
    SCOPED_TRACE(saves_max);
    SimulatedSteps steps(SimulatedSteps::kTinyTensors);
    const uint64_t whole = steps.Save([](size_t) { return true; });
    uint64_t written = 0;
    uint64_t on_disk_max = 0;
    int deltas = 0;
    constexpr int kSaves = 110;
    for (int i = 0; i < kSaves; ++i) {
      written += steps.Save([&](size_t) { return static_cast<int>(random() % 1000) < GetParam(); }, saves_max);
      ASSERT_LE(steps.bytes_on_disk(), 2 * whole + kNeededBytesSlack) << "save " << i;
      on_disk_max = std::max(on_disk_max, steps.bytes_on_disk());
      deltas += steps.is_delta() ? 1 : 0;
      if (saves_max > 0) {
        ASSERT_LE(steps.oldest(), saves_max);
      }
    }
    const double share = static_cast<double>(written) / kSaves / static_cast<double>(whole);
    std::printf("%.1f %% change: at most %.2f of a whole step on the disk, %.3f written by a save, %d deltas\n",
                GetParam() / 10.0, static_cast<double>(on_disk_max) / static_cast<double>(whole), share, deltas);
    EXPECT_LT(share, 0.06 + 1.5 * std::sqrt(2 * GetParam() / 1000.0));
  }
}

INSTANTIATE_TEST_SUITE_P(PerMille, TinyTensors, ::testing::Values(0, 10, 200));

// Nothing changes, or a little: what the first save wrote at once is written again bit by bit.
TEST(ReusedAge, IsBoundedAndWhatIsOldIsWrittenAgainLittleByLittle) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (const uint64_t saves_max : {1, 2, 3, 30, 100}) {
    SCOPED_TRACE(saves_max);
    SimulatedSteps steps;
    const uint64_t whole = steps.Save([](size_t) { return true; });
    uint64_t written = 0;
    uint64_t oldest = 0;
    for (uint64_t i = 0; i < 10 * saves_max; ++i) {
      const uint64_t bytes = steps.Save([&](size_t) { return random() % 500 == 0; }, saves_max);
      ASSERT_LE(steps.oldest(), saves_max) << "save " << i;
      ASSERT_LE(steps.bytes_on_disk(), 2 * whole + kNeededBytesSlack) << "save " << i;
      oldest = std::max(oldest, steps.oldest());
      written += bytes;
      if (i < saves_max / 2) {
        EXPECT_LT(bytes, whole / 20) << "nothing is old";
      }
    }
    EXPECT_GE(oldest, saves_max * 3 / 4) << "most of it is left alone until it is old";
    const double share = static_cast<double>(written) / static_cast<double>(10 * saves_max * whole);
    EXPECT_LT(share, 0.03 + 1.5 / static_cast<double>(saves_max));
    std::printf("%d saves: %.3f of a whole step written by a save\n", static_cast<int>(saves_max), share);
  }
}

TEST(ChunkReuse, RefersToNoFileThatIsTooOldAndTellsTheChunksOfAnOldOneApart) {
  ReusableShard source = Source();  // of sequence 42
  source.files = {{.bytes = 100, .sequence = 42}, {.bytes = 100, .sequence = 41}, {.bytes = 100, .sequence = 40}};
  ShardIdentity next = TestIdentity(20);
  const auto referred = [&](uint64_t sequence, uint64_t saves_max) {
    next.sequence = sequence;
    const ChunkReuse reuse(&source, next, kTestChunkBytes, saves_max);
    std::vector<size_t> numbers;
    for (size_t i = 0; i < 3; ++i) {
      if (reuse.CanRefer(source.index.chunks[i])) numbers.push_back(i);
    }
    return numbers;
  };
  EXPECT_THAT(referred(43, 1), ElementsAre(0));
  EXPECT_THAT(referred(43, 4), ElementsAre(0, 1)) << "chunk 2 at an age of 2 at most, chunk 1 of 3, chunk 0 of 4";
  EXPECT_THAT(referred(44, 4), ElementsAre(0, 1));
  EXPECT_THAT(referred(45, 4), ElementsAre(0));
  EXPECT_THAT(referred(47, 4), IsEmpty());
  EXPECT_THAT(referred(1000, 0), ElementsAre(0, 1, 2));
  EXPECT_THAT(referred(3, 1), ElementsAre(0, 1, 2)) << "of an attempt whose number was given again";
}

}  // namespace
}  // namespace tidemark::storage
