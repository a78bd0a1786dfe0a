// What ShardWriter refers to instead of writing it again.

#include <sys/resource.h>

#include <cstring>
#include <filesystem>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/shard/read/shard_verify.h"
#include "storage/shard/write/shard_writer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ShardWriterReuse : public ::testing::TestWithParam<CodecPolicy> {
 protected:
  // Writes one step of a store, and reads it back.
  WrittenShard Save(int64_t step, TestContents& contents, uint32_t chunk_bytes = kTestChunkBytes) {
    const ShardIdentity identity = TestIdentity(step);
    const std::string folder = directory_ / StepFolderName(step, identity.attempt);
    std::filesystem::create_directories(folder);
    const std::string path = folder + "/" + ShardFileName(0, 1);
    const WrittenShard written =
        WriteShard(path, identity, *contents, {.policy = GetParam(), .chunk_bytes = chunk_bytes, .codec_threads = 2});
    auto reader = ShardReader::Open(PosixFileSystem(), path, directory_.path());
    EXPECT_THAT(reader, IsOk());
    ExpectReadsBack(**reader, contents);
    EXPECT_EQ((*reader)->index(), written.reusable->index);
    EXPECT_EQ(written.reusable->identity, identity);
    EXPECT_EQ(written.reusable->chunk_bytes, chunk_bytes);
    const auto verified = VerifyShard(PosixFileSystem(), path, directory_.path(), &identity, {});
    EXPECT_THAT(verified, IsOk());
    return written;
  }
  // As Save, with what an earlier one wrote at hand.
  WrittenShard SaveAfter(const WrittenShard& earlier, int64_t step, TestContents& contents,
                         uint32_t chunk_bytes = kTestChunkBytes) {
    contents->reuse = earlier.reusable.get();
    return Save(step, contents, chunk_bytes);
  }
  static uint64_t StoredBytes(const ShardIndex& index) {
    uint64_t bytes = 0;
    for (const ChunkRecord& chunk : index.chunks) bytes += chunk.stored_bytes;
    return bytes;
  }

  const TestDirectory directory_;
  std::mt19937_64 random_{1};
};

// Ten chunks of weights, a page of noise and a small tensor; `changes` are chunks of the first to be new in each.
struct Model {
  explicit Model(std::mt19937_64& random)
      : weights(Weights(Dtype::kFloat32, 10 * kTestChunkBytes / 4, random)), noise(RandomBytes(4096, random)) {}
  TestContents Contents() const {
    TestContents contents;
    contents.AddAligned(Tensor("weights", Dtype::kFloat32, {10 * kTestChunkBytes / 4}), weights);
    contents.Add(Tensor("noise", Dtype::kUint8, {4096}), noise);
    contents.Tie(Tensor("tied", Dtype::kFloat32, {10 * kTestChunkBytes / 4}), 0);
    return contents;
  }
  void Change(size_t chunk) { weights[chunk * kTestChunkBytes + 5] ^= std::byte{1}; }
  std::vector<std::byte> weights;
  std::vector<std::byte> noise;
};

TEST_P(ShardWriterReuse, WritesNothingOfAStateThatDidNotChange) {
  TestContents contents = Model(random_).Contents();
  const WrittenShard first = Save(1, contents);
  EXPECT_EQ(first.reused_bytes, 0u);
  const WrittenShard second = SaveAfter(first, 2, contents);
  EXPECT_EQ(second.reused_bytes, StoredBytes(first.reusable->index));
  EXPECT_EQ(second.logical_bytes, first.logical_bytes);
  EXPECT_EQ(second.footer.index_offset, kShardBlockBytes);
  EXPECT_THAT(second.reusable->index.files, ElementsAre(ReferenceTo(TestIdentity(1))));
}

TEST_P(ShardWriterReuse, WritesOnlyTheChunkThatChangedInALargeEntry) {
  Model model(random_);
  TestContents contents = model.Contents();
  const WrittenShard first = Save(1, contents);
  model.Change(7);
  contents = model.Contents();
  const WrittenShard second = SaveAfter(first, 2, contents);
  const ShardIndex& index = second.reusable->index;
  for (size_t i = 0; i < index.chunks.size(); ++i) EXPECT_EQ(index.chunks[i].file, i == 7 ? 0 : 1);
  EXPECT_EQ(second.reused_bytes, StoredBytes(index) - index.chunks[7].stored_bytes);
  EXPECT_LE(second.footer.index_offset, kShardBlockBytes + AlignUp(kTestChunkBytes));
}

TEST_P(ShardWriterReuse, RefersToWhereTheBytesWereFirstWrittenHoweverLongAgo) {
  Model model(random_);
  TestContents contents = model.Contents();
  const WrittenShard first = Save(1, contents);
  model.Change(3);
  contents = model.Contents();
  const WrittenShard second = SaveAfter(first, 2, contents);
  model.Change(4);
  contents = model.Contents();
  const WrittenShard third = SaveAfter(second, 3, contents);
  const ShardIndex& index = third.reusable->index;
  EXPECT_THAT(index.files, ElementsAre(ReferenceTo(TestIdentity(1)), ReferenceTo(TestIdentity(2))));
  EXPECT_EQ(index.chunks[0].file, 1);
  EXPECT_EQ(index.chunks[3].file, 2);
  EXPECT_EQ(index.chunks[4].file, 0);
  // Nothing of the second shard is left in the fourth, which does not list it.
  model.Change(3);
  contents = model.Contents();
  const WrittenShard fourth = SaveAfter(third, 4, contents);
  EXPECT_THAT(fourth.reusable->index.files, ElementsAre(ReferenceTo(TestIdentity(1)), ReferenceTo(TestIdentity(3))));
}

TEST_P(ShardWriterReuse, ReusesNothingOfAShardWithOtherChunks) {
  TestContents contents = Model(random_).Contents();
  const WrittenShard first = Save(1, contents);
  const WrittenShard second = SaveAfter(first, 2, contents, kTestChunkBytes / 2);
  EXPECT_EQ(second.reused_bytes, 0u);
  EXPECT_THAT(second.reusable->index.files, IsEmpty());
}

TEST_P(ShardWriterReuse, ReusesNothingOfAnotherStore) {
  TestContents contents = Model(random_).Contents();
  const WrittenShard first = Save(1, contents);
  ReusableShard elsewhere = *first.reusable;
  elsewhere.identity.store.bytes[0] ^= 1;
  contents->reuse = &elsewhere;
  EXPECT_EQ(Save(2, contents).reused_bytes, 0u);
}

TEST_P(ShardWriterReuse, ReusesNothingOfAnEntryUnderAnotherName) {
  TestContents contents = Model(random_).Contents();
  const WrittenShard first = Save(1, contents);
  contents->entries[0].spec.name = "renamed";
  const WrittenShard second = SaveAfter(first, 2, contents);
  EXPECT_EQ(second.reused_bytes, first.reusable->index.chunks[10].stored_bytes);
}

TEST_P(ShardWriterReuse, FindsEntriesThatHaveMoved) {
  const Model model(random_);
  TestContents contents = model.Contents();
  const WrittenShard first = Save(1, contents);
  TestContents moved;
  moved.Add(Tensor("new", Dtype::kUint8, {1}), {std::byte{1}});
  moved.Add(Tensor("noise", Dtype::kUint8, {4096}), model.noise);
  moved.Add(Tensor("weights", Dtype::kFloat32, {10 * kTestChunkBytes / 4}), model.weights);
  EXPECT_EQ(SaveAfter(first, 2, moved).reused_bytes, StoredBytes(first.reusable->index));
}

// Six boxes of one tensor, and then in the order from the last to the first.
TEST_P(ShardWriterReuse, FindsBoxesOfATensorThatHaveMoved) {
  const Model model(random_);
  const auto boxes = [&](bool backwards) {
    TestContents contents;
    for (int64_t i = 0; i < 6; ++i) {
      const int64_t box = backwards ? 5 - i : i;
      EntrySpec spec = Tensor("w", Dtype::kUint8, {6, kTestChunkBytes});
      spec.box_offset = {box, 0};
      spec.box_extent = {1, kTestChunkBytes};
      const auto begin = model.weights.begin() + box * kTestChunkBytes;
      contents.Add(spec, std::vector(begin, begin + kTestChunkBytes));
    }
    return contents;
  };
  TestContents contents = boxes(false);
  const WrittenShard first = Save(1, contents);
  EXPECT_TRUE(first.reusable->repeats_names);
  TestContents moved = boxes(true);
  EXPECT_EQ(SaveAfter(first, 2, moved).reused_bytes, StoredBytes(first.reusable->index));
  const auto folder = [&](int64_t step) { return directory_ / StepFolderName(step, TestIdentity(step).attempt); };
  std::filesystem::remove_all(folder(1));
  const auto verified =
      VerifyShard(PosixFileSystem(), folder(2) + "/" + ShardFileName(0, 1), directory_.path(), nullptr, {});
  ASSERT_THAT(verified, IsOk());
  ASSERT_EQ(verified->damage.size(), 1u);
  EXPECT_THAT(verified->damage[0].entries, ElementsAre("w")) << "once, not for each box";
}

TEST_P(ShardWriterReuse, WritesAgainWhatGrewAndReusesTheRest) {
  const Model model(random_);
  TestContents contents = model.Contents();
  const WrittenShard first = Save(1, contents);
  TestContents grown;
  auto more = model.weights;
  more.resize(more.size() + 4);
  grown.Add(Tensor("weights", Dtype::kFloat32, {10 * kTestChunkBytes / 4 + 1}), more);
  auto noise = model.noise;
  noise.resize(noise.size() - 1);
  grown.Add(Tensor("noise", Dtype::kUint8, {4095}), noise);
  const ShardIndex& index = first.reusable->index;
  EXPECT_EQ(SaveAfter(first, 2, grown).reused_bytes, StoredBytes(index) - index.chunks[10].stored_bytes);
}

// A chunk changes in every step, so that each of many steps is the place of some. The chunks are large beside the frame
// and the index of a file, so that the files of so many steps are not too many bytes before they are too many files.
TEST_P(ShardWriterReuse, StaysReadableWithFewDescriptorsHoweverManyStepsThereWere) {
  constexpr size_t kSteps = kFileReferencesWrittenMax + 50;
  constexpr uint32_t kSmallChunk = 128 << 10;
  auto weights = RandomBytes(kSteps * kSmallChunk, random_);
  auto writer = ShardWriter::Create(PosixFileSystem(), {.policy = GetParam(), .chunk_bytes = kSmallChunk});
  ASSERT_THAT(writer, IsOk());
  std::shared_ptr<const ReusableShard> last;
  std::string path;
  TestContents contents;
  for (size_t i = 0; i < kSteps; ++i) {
    weights[i * kSmallChunk] ^= std::byte{1};
    contents = TestContents();
    contents.Add(Tensor("w", Dtype::kUint8, {kSteps * kSmallChunk}), weights);
    contents->reuse = last.get();
    const ShardIdentity identity = TestIdentity(static_cast<int64_t>(i));
    const std::string folder = directory_ / StepFolderName(identity.step, identity.attempt);
    std::filesystem::create_directories(folder);
    path = folder + "/" + ShardFileName(0, 1);
    auto written = (*writer)->Write(path, identity, *contents);
    ASSERT_THAT(written, IsOk());
    last = written->reusable;
    EXPECT_LE(last->index.files.size(), kFileReferencesWrittenMax);
    if (i > 0) {
      EXPECT_GE(written->reused_bytes, (kSteps - 30) * kSmallChunk);
    }
  }
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few = {.rlim_cur = kFileReferencesWrittenMax + 40, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  auto reader = ShardReader::Open(PosixFileSystem(), path, directory_.path());
  EXPECT_THAT(reader, IsOk());
  if (reader.ok()) ExpectReadsBack(**reader, contents);
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

INSTANTIATE_TEST_SUITE_P(Policies, ShardWriterReuse,
                         ::testing::Values(CodecPolicy::kNone, CodecPolicy::kSpace, CodecPolicy::kThroughput),
                         [](const auto& info) { return std::string(CodecPolicyName(info.param)); });

}  // namespace
}  // namespace tidemark::storage
