#include "storage/shard/write/encode_pipeline.h"

#include <algorithm>
#include <random>
#include <thread>

#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

struct Size {
  uint32_t chunk_bytes;
  int threads;
};

class EncodePipelineTest : public ::testing::TestWithParam<Size> {
 protected:
  EncodePipelineTest() {
    std::mt19937_64 random(1);
    for (size_t i = 0; i < 200; ++i) {
      chunks_.push_back(i % 2 == 0 ? Weights(Dtype::kFloat32, 1 + random() % 5000, random)
                                   : RandomBytes(1 + random() % 500, random));
    }
  }
  std::vector<EncodePipeline::Task> Tasks() {
    std::vector<EncodePipeline::Task> tasks;
    records_.assign(chunks_.size(), {});
    for (size_t i = 0; i < chunks_.size(); ++i) {
      tasks.push_back({.raw = chunks_[i], .float_bytes = 4, .entry = i, .end = chunks_[i].size()});
      tasks.back().record = &records_[i];
    }
    return tasks;
  }
  void ExpectChunk(const EncodePipeline::Encoded& encoded, size_t chunk) const {
    ASSERT_EQ(encoded.task->record, &records_[chunk]);
    ASSERT_FALSE(encoded.reused);
    std::vector<std::byte> raw(chunks_[chunk].size());
    ASSERT_EQ(records_[chunk].raw_bytes, raw.size());
    ASSERT_THAT(ChunkDecoder().Decode(records_[chunk], encoded.stored, raw), IsOk());
    ASSERT_EQ(raw, chunks_[chunk]);
  }
  // Takes batches until `count` chunks were seen, or all.
  void ExpectChunks(EncodePipeline* pipeline, size_t count) const {
    size_t seen = 0;
    while (seen < count) {
      const auto batch = pipeline->Next();
      ASSERT_THAT(batch, IsOk());
      ASSERT_FALSE(batch->empty());
      for (const EncodePipeline::Encoded& encoded : *batch) ExpectChunk(encoded, seen++);
    }
  }
  void ExpectEnd(EncodePipeline* pipeline) const {
    EXPECT_TRUE(pipeline->HasNext());
    const auto batch = pipeline->Next();
    ASSERT_THAT(batch, IsOk());
    EXPECT_TRUE(batch->empty());
  }
  std::unique_ptr<EncodePipeline> NewPipeline(CodecPolicy policy) const {
    auto pipeline = EncodePipeline::Create(policy, GetParam().chunk_bytes, GetParam().threads);
    EXPECT_THAT(pipeline, IsOk());
    return *std::move(pipeline);
  }
  std::vector<std::vector<std::byte>> chunks_;
  std::vector<ChunkRecord> records_;
};

TEST_P(EncodePipelineTest, HandsChunksOutInTheirOrder) {
  for (const CodecPolicy policy : {CodecPolicy::kSpace, CodecPolicy::kNone}) {
    const auto pipeline = NewPipeline(policy);
    for (int run = 0; run < 3; ++run) {
      pipeline->Start(Tasks());
      ASSERT_NO_FATAL_FAILURE(ExpectChunks(pipeline.get(), chunks_.size()));
      ExpectEnd(pipeline.get());
      ExpectEnd(pipeline.get());
      pipeline->Stop();
    }
  }
}

TEST_P(EncodePipelineTest, TellsWhenEachThreadEncodedInTheLastRun) {
  uint64_t raw_bytes = 0;
  for (const auto& chunk : chunks_) raw_bytes += chunk.size();
  const auto pipeline = NewPipeline(CodecPolicy::kSpace);
  for (int run = 0; run < 2; ++run) {
    const auto begin = BusySpans::Now();
    pipeline->Start(Tasks());
    ASSERT_NO_FATAL_FAILURE(ExpectChunks(pipeline.get(), chunks_.size()));
    ExpectEnd(pipeline.get());
    pipeline->Stop();
    const auto end = BusySpans::Now();
    uint64_t busy_with = 0;
    EXPECT_LE(pipeline->busy().size(), static_cast<size_t>(GetParam().threads));
    for (const BusySpans& busy : pipeline->busy()) {
      for (const BusySpans::Span& span : busy.spans()) {
        EXPECT_LE(begin, span.begin);
        EXPECT_LE(span.end, end);
        busy_with += span.bytes;
      }
    }
    EXPECT_EQ(busy_with, raw_bytes);
  }
}

TEST_P(EncodePipelineTest, ForgetsARunThatIsStopped) {
  const auto pipeline = NewPipeline(CodecPolicy::kSpace);
  for (size_t taken = 0; taken < chunks_.size(); taken += 10) {
    pipeline->Start(Tasks());
    ASSERT_NO_FATAL_FAILURE(ExpectChunks(pipeline.get(), taken));
    pipeline->Stop();
  }
  pipeline->Start(Tasks());  // and dies in the middle of one
}

TEST_P(EncodePipelineTest, TakesARunOfNothing) {
  const auto pipeline = NewPipeline(CodecPolicy::kNone);
  pipeline->Start({});
  ExpectEnd(pipeline.get());
  pipeline->Stop();
  pipeline->Start(Tasks());
  ASSERT_NO_FATAL_FAILURE(ExpectChunks(pipeline.get(), 1));
}

TEST_P(EncodePipelineTest, LooksAtNoByteBeforeItIsReady) {
  const auto pipeline = NewPipeline(CodecPolicy::kSpace);
  const std::vector<std::vector<std::byte>> bytes = chunks_;
  for (auto& chunk : chunks_) std::fill(chunk.begin(), chunk.end(), std::byte{0xee});
  const auto tasks = Tasks();
  // The bytes appear when they are asked for; a chunk that was looked at before has another digest.
  pipeline->Start(tasks, [&](size_t entry, uint64_t end) {
    EXPECT_EQ(end, bytes[entry].size());
    std::copy(bytes[entry].begin(), bytes[entry].end(), chunks_[entry].begin());
    return absl::OkStatus();
  });
  ASSERT_NO_FATAL_FAILURE(ExpectChunks(pipeline.get(), chunks_.size()));
  pipeline->Stop();
  EXPECT_EQ(chunks_, bytes);
}

TEST_P(EncodePipelineTest, ReturnsTheErrorOfAWait) {
  const auto pipeline = NewPipeline(CodecPolicy::kSpace);
  pipeline->Start(Tasks(), [&](size_t entry, uint64_t) {
    return entry < 150 ? absl::OkStatus() : absl::AbortedError("staging failed");
  });
  absl::StatusOr<std::span<const EncodePipeline::Encoded>> batch;
  do {
    batch = pipeline->Next();
    ASSERT_TRUE(!batch.ok() || !batch->empty());
  } while (batch.ok());
  EXPECT_THAT(batch, StatusIs(absl::StatusCode::kAborted, "staging failed"));
  EXPECT_TRUE(pipeline->HasNext());
  EXPECT_THAT(pipeline->Next(), StatusIs(absl::StatusCode::kAborted, "staging failed"));
  pipeline->Stop();
  pipeline->Start(Tasks());
  ASSERT_NO_FATAL_FAILURE(ExpectChunks(pipeline.get(), chunks_.size()));
}

TEST_P(EncodePipelineTest, StopsOnlyWhenNobodyWaitsAnyMore) {
  const auto pipeline = NewPipeline(CodecPolicy::kSpace);
  absl::Mutex mutex;
  int inside = 0;
  bool staged = false;
  pipeline->Start(Tasks(), [&](size_t, uint64_t) {
    absl::MutexLock lock(&mutex);
    ++inside;
    mutex.Await(absl::Condition(&staged));
    --inside;
    return absl::OkStatus();
  });
  {
    absl::MutexLock lock(&mutex);
    mutex.Await(absl::Condition(
        +[](int* inside) { return *inside > 0; }, &inside));
  }
  EXPECT_FALSE(pipeline->HasNext());
  std::thread stager([&] {
    absl::MutexLock lock(&mutex);
    staged = true;
  });
  pipeline->Stop();
  {
    absl::MutexLock lock(&mutex);
    EXPECT_TRUE(staged);
    EXPECT_EQ(inside, 0);
  }
  stager.join();
}

TEST_P(EncodePipelineTest, SaysWhichChunksAreThereAlready) {
  const auto pipeline = NewPipeline(CodecPolicy::kSpace);
  std::vector<ChunkRecord> earlier(chunks_.size());
  auto tasks = Tasks();
  for (size_t i = 0; i < chunks_.size(); ++i) {
    earlier[i].digest = DigestOf(chunks_[i]);
    earlier[i].raw_bytes = chunks_[i].size() + (i % 5 == 1 ? 1 : 0);
    if (i % 5 == 2) earlier[i].digest.bytes[15] ^= 1;
    if (i % 5 != 3) tasks[i].reusable = &earlier[i];
  }
  pipeline->Start(tasks);
  size_t chunk = 0;
  while (chunk < chunks_.size()) {
    const auto batch = pipeline->Next();
    ASSERT_THAT(batch, IsOk());
    for (const EncodePipeline::Encoded& encoded : *batch) {
      if (chunk % 5 == 0 || chunk % 5 == 4) {
        EXPECT_TRUE(encoded.reused);
        EXPECT_TRUE(encoded.stored.empty());
      } else {
        ASSERT_NO_FATAL_FAILURE(ExpectChunk(encoded, chunk));
      }
      ++chunk;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Threads, EncodePipelineTest,
                         ::testing::Values(Size{1 << 20, 1}, Size{1 << 20, 2}, Size{1 << 20, 5},
                                           Size{kChunkBytesMax, 5}),  // of which one is left, with one slot
                         [](const auto& info) {
                           return fmt::format("{}Of{}KiB", info.param.threads, info.param.chunk_bytes >> 10);
                         });

std::vector<size_t> BatchSizes(std::span<const std::vector<std::byte>> chunks) {
  auto pipeline = EncodePipeline::Create(CodecPolicy::kNone, 1 << 20, 1);
  EXPECT_THAT(pipeline, IsOk());
  std::vector<ChunkRecord> records(chunks.size());
  std::vector<EncodePipeline::Task> tasks;
  for (size_t i = 0; i < chunks.size(); ++i) tasks.push_back({.raw = chunks[i], .record = &records[i]});
  (*pipeline)->Start(tasks);
  std::vector<size_t> sizes;
  for (auto batch = (*pipeline)->Next(); !batch->empty(); batch = (*pipeline)->Next()) sizes.push_back(batch->size());
  (*pipeline)->Stop();
  return sizes;
}

TEST(EncodePipelineBatches, HoldManySmallChunksOrOneLargeOne) {
  constexpr size_t kMost = EncodePipeline::kBatchBytes;
  std::vector<std::vector<std::byte>> chunks(2500, std::vector<std::byte>(8));
  EXPECT_THAT(BatchSizes(chunks), ::testing::ElementsAre(1024, 1024, 452));
  chunks.assign(3, std::vector<std::byte>(kMost / 2));
  EXPECT_THAT(BatchSizes(chunks), ::testing::ElementsAre(2, 1));
  chunks = {std::vector<std::byte>(1), std::vector<std::byte>(kMost + 1), std::vector<std::byte>(1)};
  EXPECT_THAT(BatchSizes(chunks), ::testing::ElementsAre(1, 1, 1));
}

TEST(EncodePipelineShape, KeepsAWholeWindowWhereChunksAreSmall) {
  for (const size_t threads : {1, 8, 16}) {
    const auto shape = EncodePipeline::ShapeOf(CodecPolicy::kSpace, 1 << 20, static_cast<int>(threads));
    EXPECT_EQ(shape.threads, threads);
    EXPECT_EQ(shape.slots, 3 * threads);
  }
}

TEST(EncodePipelineShape, BoundsItsBuffersByBytes) {
  for (uint64_t chunk_bytes = kChunkBytesMin; chunk_bytes <= kChunkBytesMax; chunk_bytes *= 2) {
    for (const int threads : {1, 2, 7, 64, 256}) {
      SCOPED_TRACE(fmt::format("{} threads, chunks of {} bytes", threads, chunk_bytes));
      const auto shape = EncodePipeline::ShapeOf(CodecPolicy::kSpace, chunk_bytes, threads);
      EXPECT_GE(shape.threads, 1u);
      EXPECT_LE(shape.threads, static_cast<size_t>(threads));
      EXPECT_GE(shape.slots, shape.threads);
      EXPECT_LE((shape.threads + shape.slots) * chunk_bytes, std::max<uint64_t>(2 * chunk_bytes, 64 << 20));
    }
  }
}

TEST(EncodePipelineShape, HasNoLimitWhereNothingIsBuffered) {
  const auto shape = EncodePipeline::ShapeOf(CodecPolicy::kNone, kChunkBytesMax, 64);
  EXPECT_EQ(shape.threads, 64u);
  EXPECT_EQ(shape.slots, 3 * 64u);
}

}  // namespace
}  // namespace tidemark::storage
