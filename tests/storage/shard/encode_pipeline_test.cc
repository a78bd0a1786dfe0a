#include "storage/shard/encode_pipeline.h"

#include <random>

#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

class EncodePipelineTest : public ::testing::TestWithParam<int> {
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
  auto pipeline = EncodePipeline::Create(CodecPolicy::kSpace, GetParam());
  ASSERT_THAT(pipeline, IsOk());
  for (int run = 0; run < 3; ++run) {
    (*pipeline)->Start(Tasks());
    for (size_t i = 0; i < chunks_.size(); ++i) ExpectNext(pipeline->get(), i);
    (*pipeline)->Stop();
  }
}

TEST_P(EncodePipelineTest, ForgetsARunThatIsStopped) {
  auto pipeline = EncodePipeline::Create(CodecPolicy::kSpace, GetParam());
  ASSERT_THAT(pipeline, IsOk());
  for (size_t taken = 0; taken < 30; ++taken) {
    (*pipeline)->Start(Tasks());
    for (size_t i = 0; i < taken; ++i) ExpectNext(pipeline->get(), i);
    (*pipeline)->Stop();
  }
  (*pipeline)->Start(Tasks());  // and dies in the middle of one
}

TEST_P(EncodePipelineTest, TakesARunOfNothing) {
  auto pipeline = EncodePipeline::Create(CodecPolicy::kNone, GetParam());
  ASSERT_THAT(pipeline, IsOk());
  (*pipeline)->Start({});
  (*pipeline)->Stop();
  (*pipeline)->Start(Tasks());
  ExpectNext(pipeline->get(), 0);
}

INSTANTIATE_TEST_SUITE_P(Threads, EncodePipelineTest, ::testing::Values(1, 2, 5));

}  // namespace
}  // namespace tidemark::storage
