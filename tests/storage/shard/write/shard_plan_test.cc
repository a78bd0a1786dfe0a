#include "storage/shard/write/shard_plan.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/shard/format/aligned_buffer.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using ::testing::ElementsAre;

// Three entries of 10,000 bytes; the first lies behind the others in memory.
class ShardPlanTest : public ::testing::Test {
 protected:
  ShardPlanTest() {
    const auto bytes = std::span<const std::byte>(memory_.span());
    contents_.entries = {{.spec = Tensor("last", Dtype::kUint8, {10000}), .bytes = bytes.subspan(20000, 10000)},
                         {.spec = Tensor("first", Dtype::kUint8, {10000}), .bytes = bytes.subspan(0, 10000)},
                         {.spec = Tensor("second", Dtype::kBfloat16, {5000}), .bytes = bytes.subspan(10000, 10000)},
                         {.spec = Tensor("tied", Dtype::kUint8, {10000}), .bytes = {}, .alias_of = 1}};
  }
  ShardPlan Plan(const ReusableShard* source = nullptr) {
    bool repeats_names = true;
    EXPECT_THAT(ValidateContents(TestIdentity(), contents_, &repeats_names), IsOk());
    EXPECT_FALSE(repeats_names);
    ChunkReuse reuse(source, TestIdentity(), 4096);
    ShardContents contents = contents_;
    auto plan = PlanShard(contents, 4096, &reuse);
    EXPECT_THAT(plan, IsOk());
    return *std::move(plan);
  }
  static std::vector<size_t> EntriesOf(const ShardPlan& plan) {
    std::vector<size_t> entries;
    for (const auto& task : plan.tasks) entries.push_back(task.entry);
    return entries;
  }
  const AlignedBuffer memory_{30000};
  ShardContents contents_;
};

TEST_F(ShardPlanTest, KeepsTheOrderOfTheEntriesWhereAllBytesAreThere) {
  EXPECT_THAT(EntriesOf(Plan()), ElementsAre(0, 0, 0, 1, 1, 1, 2, 2, 2));
}

TEST_F(ShardPlanTest, TakesTheBytesInTheOrderInWhichTheyComeWhereTheyAreWaitedFor) {
  contents_.wait_until_ready = [](size_t, uint64_t) { return absl::OkStatus(); };
  const ShardPlan plan = Plan();
  EXPECT_THAT(EntriesOf(plan), ElementsAre(1, 1, 1, 2, 2, 2, 0, 0, 0));
  // The table stays in the order of the entries.
  EXPECT_EQ(plan.index.entries[0].first_chunk, 0u);
  EXPECT_EQ(plan.index.entries[1].first_chunk, 3u);
  EXPECT_EQ(plan.index.entries[3].first_chunk, 3u);
  EXPECT_EQ(plan.tasks[0].record, &plan.index.chunks[3]);
  EXPECT_EQ(plan.tasks[8].record, &plan.index.chunks[2]);
}

TEST_F(ShardPlanTest, SaysWhatEachChunkIs) {
  const ShardPlan plan = Plan();
  const EncodePipeline::Task& last = plan.tasks[8];
  EXPECT_EQ(last.raw.data(), contents_.entries[2].bytes.data() + 8192);
  EXPECT_EQ(last.raw.size(), 10000u - 8192);
  EXPECT_EQ(last.end, 10000u);
  EXPECT_EQ(last.float_bytes, 2);
  EXPECT_EQ(last.reusable, nullptr);
  EXPECT_EQ(plan.logical_bytes, 30000u);
  EXPECT_EQ(plan.data_bytes_max, 30000u);
}

TEST_F(ShardPlanTest, PointsAtTheSameChunkOfTheSameEntryElsewhere) {
  ReusableShard source{.identity = TestIdentity(1), .chunk_bytes = 4096, .index = {}, .files = {{.bytes = 1 << 20}}};
  source.index.chunks.resize(2);
  source.index.entries = {{.spec = Tensor("second", Dtype::kUint8, {}), .first_chunk = 0, .chunk_count = 2}};
  const ShardPlan plan = Plan(&source);
  for (size_t i = 0; i < plan.tasks.size(); ++i) {
    EXPECT_EQ(plan.tasks[i].reusable, i == 6   ? &source.index.chunks[0]
                                      : i == 7 ? &source.index.chunks[1]
                                               : nullptr)
        << i;
  }
}

}  // namespace
}  // namespace tidemark::storage
