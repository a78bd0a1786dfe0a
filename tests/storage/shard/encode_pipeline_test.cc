#include "storage/shard/encode_pipeline.h"

#include <algorithm>
#include <random>

#include "fmt/format.h"
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
  std::vector<EncodePipeline::Task> Tasks() const {
    std::vector<EncodePipeline::Task> tasks;
    for (const auto& chunk : chunks_) tasks.push_back({chunk, 4});
    return tasks;
  }
  void ExpectNext(EncodePipeline* pipeline, size_t chunk) const {
    const EncodePipeline::Encoded& encoded = pipeline->Next();
    std::vector<std::byte> raw(chunks_[chunk].size());
    ASSERT_EQ(encoded.record.raw_bytes, raw.size());
    ASSERT_THAT(ChunkDecoder().Decode(encoded.record, encoded.stored, raw), IsOk());
    ASSERT_EQ(raw, chunks_[chunk]);
  }
  std::vector<std::vector<std::byte>> chunks_;
};

TEST_P(EncodePipelineTest, HandsChunksOutInTheirOrder) {
  auto pipeline = EncodePipeline::Create(CodecPolicy::kSpace, GetParam().chunk_bytes, GetParam().threads);
  ASSERT_THAT(pipeline, IsOk());
  for (int run = 0; run < 3; ++run) {
    (*pipeline)->Start(Tasks());
    for (size_t i = 0; i < chunks_.size(); ++i) ExpectNext(pipeline->get(), i);
    (*pipeline)->Stop();
  }
}

TEST_P(EncodePipelineTest, ForgetsARunThatIsStopped) {
  auto pipeline = EncodePipeline::Create(CodecPolicy::kSpace, GetParam().chunk_bytes, GetParam().threads);
  ASSERT_THAT(pipeline, IsOk());
  for (size_t taken = 0; taken < 30; ++taken) {
    (*pipeline)->Start(Tasks());
    for (size_t i = 0; i < taken; ++i) ExpectNext(pipeline->get(), i);
    (*pipeline)->Stop();
  }
  (*pipeline)->Start(Tasks());  // and dies in the middle of one
}

TEST_P(EncodePipelineTest, TakesARunOfNothing) {
  auto pipeline = EncodePipeline::Create(CodecPolicy::kNone, GetParam().chunk_bytes, GetParam().threads);
  ASSERT_THAT(pipeline, IsOk());
  (*pipeline)->Start({});
  (*pipeline)->Stop();
  (*pipeline)->Start(Tasks());
  ExpectNext(pipeline->get(), 0);
}

INSTANTIATE_TEST_SUITE_P(Threads, EncodePipelineTest,
                         ::testing::Values(Size{1 << 20, 1}, Size{1 << 20, 2}, Size{1 << 20, 5},
                                           Size{kChunkBytesMax, 5}),  // of which one is left, with one slot
                         [](const auto& info) {
                           return fmt::format("{}Of{}KiB", info.param.threads, info.param.chunk_bytes >> 10);
                         });

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
