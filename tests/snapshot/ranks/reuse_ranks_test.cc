// Chunks that stay as they are, in a job of several ranks: each rank refers to its own shard of one earlier attempt.

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/bytes/ids.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/store/store_layout.h"
#include "tests/snapshot/ranks/trainer_ranks.h"
#include "tests/storage/io/status_matchers.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

constexpr size_t kFrozenFloats = 512 << 10;  // two chunks

class ReuseRanksTest : public TrainerRanksTest {
 protected:
  // Each rank has a tensor that its training leaves alone, beside what RankTrainer trains.
  class FrozenRanks : public TrainerRanks {
   public:
    FrozenRanks(const std::string& store, int32_t world_size) : TrainerRanks(store, world_size), frozen(world_size) {
      for (int32_t rank = 0; rank < world_size; ++rank) {
        ThawTo(rank, rank);
        trainer(rank).state.AddTensor(fmt::format("frozen.{}", rank), Dtype::kFloat32, {kFrozenFloats},
                                      frozen[static_cast<size_t>(rank)].data());
      }
    }

    static std::vector<float> Numbers(int seed) {
      std::mt19937 random(static_cast<uint32_t>(seed));
      std::vector<float> numbers(kFrozenFloats);
      for (float& number : numbers) number = std::generate_canonical<float, 24>(random);
      return numbers;
    }
    void ThawTo(int32_t rank, int seed) {
      std::vector<float>& own = frozen[static_cast<size_t>(rank)];
      const std::vector<float> numbers = Numbers(seed);
      own.resize(numbers.size());
      std::ranges::copy(numbers, own.begin());
    }

    std::vector<std::vector<float>> frozen;
  };

  StepInfo InfoOf(int64_t step) {
    const auto reader = StoreReader::Open(store_);
    EXPECT_THAT(reader, IsOk());
    for (const StepInfo& info : (*reader)->Steps()) {
      if (info.step == step) return info;
    }
    ADD_FAILURE() << "no step " << step;
    return {};
  }
  std::vector<std::string> ReferencesOf(int64_t step) {
    const auto reader = StoreReader::Open(store_);
    EXPECT_THAT(reader, IsOk());
    return (*reader)->References(step).value_or(std::vector<std::string>{"unknown"});
  }
  bool IsWhole(int64_t step) { return InfoOf(step).reused_bytes == 0 && ReferencesOf(step).empty(); }
  std::string FolderOf(const StepInfo& info) {
    const auto id = storage::FromHex(info.attempt);
    return storage::StoreLayout(store_).attempt(info.step, storage::AttemptId{id.value_or(std::array<uint8_t, 16>())});
  }
  // With as many ranks, and as the training left it.
  void ExpectRestored(int64_t step, const FrozenRanks& trained) {
    FrozenRanks job(store_, trained.world_size());
    for (int32_t rank = 0; rank < job.world_size(); ++rank) job.ThawTo(rank, 99);
    ASSERT_THAT(job.Open(), Each(IsOk()));
    const auto restored = job.Restore();
    ASSERT_THAT(restored, Each(IsOk()));
    for (const auto& report : restored) EXPECT_EQ(report->step, step);
    EXPECT_TRUE(job.AllAreAt(step));
    EXPECT_EQ(job.frozen, trained.frozen);
    EXPECT_THAT(job.Close(), Each(IsOk()));
  }
};

TEST_F(ReuseRanksTest, EachRankRefersToItsShardOfTheFirstStep) {
  FrozenRanks job(store_, 3);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  for (const int64_t step : {10, 20, 30, 40}) ASSERT_THAT(job.Save(step), Each(IsOk())) << step;
  EXPECT_THAT(job.Close(), Each(IsOk()));
  EXPECT_THAT(job.warnings(), IsEmpty());
  EXPECT_TRUE(IsWhole(10));
  const StepInfo first = InfoOf(10);
  for (const int64_t step : {20, 30, 40}) {
    const StepInfo info = InfoOf(step);
    EXPECT_LT(info.stored_bytes, first.stored_bytes / 50) << step;
    EXPECT_GT(info.reused_bytes, first.stored_bytes / 100 * 98) << step;
    EXPECT_THAT(ReferencesOf(step), ElementsAre(first.attempt)) << step;
  }
  ExpectRestored(40, job);
  // Anybody reads it as a whole, and finds every byte.
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT((*reader)->Verify(40), IsOk());
  for (int rank = 0; rank < 3; ++rank) {
    State state;
    std::vector<float> frozen(kFrozenFloats);
    const std::string name = fmt::format("frozen.{}", rank);
    state.AddTensor(name, Dtype::kFloat32, {kFrozenFloats}, frozen.data());
    ASSERT_THAT((*reader)->Restore(40, state, {.only = {name}}), IsOk());
    EXPECT_EQ(frozen, FrozenRanks::Numbers(rank));
  }
}

TEST_F(ReuseRanksTest, FilesStayAsLongAsAStepRefersToThem) {
  FrozenRanks job(store_, 2);
  job.ChangeOptions([](int32_t, CheckpointerOptions& options) { options.retention.max_to_keep = 1; });
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  const std::string first = FolderOf(InfoOf(10));
  for (const int64_t step : {20, 30}) ASSERT_THAT(job.Save(step), Each(IsOk()));
  ASSERT_THAT(job.rank_at(0).Tidy(), IsOk());
  EXPECT_EQ(InfoOf(10).state, StepState::kDeleted);
  EXPECT_EQ(InfoOf(20).state, StepState::kDeleted);
  EXPECT_FALSE(std::filesystem::exists(FolderOf(InfoOf(20))));
  EXPECT_TRUE(std::filesystem::exists(first));
  ASSERT_THAT(job.Save(40), Each(IsOk()));
  EXPECT_GT(InfoOf(40).reused_bytes, 0u);
  // One rank goes on referring to the first attempt, the other one has nothing left there.
  job.ThawTo(1, 7);
  ASSERT_THAT(job.Save(50), Each(IsOk()));
  ASSERT_THAT(job.Save(60), Each(IsOk()));
  EXPECT_THAT(ReferencesOf(60), testing::UnorderedElementsAre(InfoOf(10).attempt, InfoOf(50).attempt));
  job.ThawTo(0, 8);
  job.ThawTo(1, 9);
  ASSERT_THAT(job.Save(70), Each(IsOk()));
  EXPECT_TRUE(IsWhole(70));
  ASSERT_THAT(job.Save(80), Each(IsOk()));
  ASSERT_THAT(job.rank_at(0).Tidy(), IsOk());
  EXPECT_FALSE(std::filesystem::exists(first));
  EXPECT_THAT(ReferencesOf(80), ElementsAre(InfoOf(70).attempt));
  EXPECT_THAT(job.Close(), Each(IsOk()));
  ExpectRestored(80, job);
}

TEST_F(ReuseRanksTest, AllRanksWriteEverythingAgainInTheSameSave) {
  FrozenRanks job(store_, 2);
  job.ChangeOptions([](int32_t, CheckpointerOptions& options) { options.tuning.reuse_saves_max = 3; });
  ASSERT_THAT(job.Open(), Each(IsOk()));
  std::vector<int64_t> whole;
  for (int64_t step = 1; step <= 8; ++step) {
    ASSERT_THAT(job.Save(step), Each(IsOk()));
    if (IsWhole(step)) whole.push_back(step);
  }
  EXPECT_THAT(whole, ElementsAre(1, 4, 7));
}

TEST_F(ReuseRanksTest, ARestartWritesEverything) {
  FrozenRanks job(store_, 2);
  for (const int64_t step : {10, 20}) {
    ASSERT_THAT(job.Open(), Each(IsOk()));
    ASSERT_THAT(job.Save(step), Each(IsOk()));
    ASSERT_THAT(job.Close(), Each(IsOk()));
    EXPECT_TRUE(IsWhole(step));
  }
}

TEST_F(ReuseRanksTest, WithoutReuseEveryStepIsWhole) {
  FrozenRanks job(store_, 2);
  job.ChangeOptions([](int32_t, CheckpointerOptions& options) { options.reuse = false; });
  ASSERT_THAT(job.Open(), Each(IsOk()));
  for (const int64_t step : {10, 20}) ASSERT_THAT(job.Save(step), Each(IsOk()));
  EXPECT_TRUE(IsWhole(20));
}

TEST_F(ReuseRanksTest, GoesOnAfterAFailedSave) {
  FrozenRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  for (const int64_t step : {10, 20}) ASSERT_THAT(job.Save(step), Each(IsOk()));
  job.files(1).SetRule([](const storage::FailingFileSystem::Call& call) {
    const bool is_shard = call.operation == "Create" && absl::StrContains(call.path, "/shard-");
    return is_shard ? absl::ResourceExhaustedError("no space left on device") : absl::OkStatus();
  });
  EXPECT_THAT(job.Save(30), Each(StatusIs(StatusCode::kAborted, testing::HasSubstr("rank 1"))));
  job.files(1).Reset();
  for (const int64_t step : {40, 50}) ASSERT_THAT(job.Save(step), Each(IsOk()));
  EXPECT_GT(InfoOf(50).reused_bytes, 0u);
  EXPECT_THAT(job.Close(), Each(IsOk()));
  ExpectRestored(50, job);
}

TEST_F(ReuseRanksTest, AfterADiscardAllRanksWriteEverything) {
  FrozenRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  for (const int64_t step : {10, 20, 30}) ASSERT_THAT(job.Save(step), Each(IsOk()));
  const auto discarded = OnEachRank(2, [&](int32_t rank) { return job.rank_at(rank).DiscardAfter(10, "a test"); });
  ASSERT_THAT(discarded, Each(IsOk()));
  ASSERT_THAT(job.Save(20), Each(IsOk()));
  EXPECT_TRUE(IsWhole(20));
}

// Damage of the file to which all later steps of that rank refer.
TEST_F(ReuseRanksTest, AfterDamageAllRanksWriteEverything) {
  FrozenRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  for (const int64_t step : {10, 20}) ASSERT_THAT(job.Save(step), Each(IsOk()));
  const std::string shard = FolderOf(InfoOf(10)) + "/" + storage::ShardFileName(1, 2);
  const auto reader = storage::ShardReader::Open(storage::PosixFileSystem(), shard, store_ + "/steps");
  ASSERT_THAT(reader, IsOk());
  const std::vector<storage::ChunkRecord>& chunks = (*reader)->index().chunks;
  const auto large = std::ranges::max_element(chunks, {}, [](const auto& chunk) { return chunk.stored_bytes; });
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(large->offset));
  file.write("damaged", 7);
  ASSERT_TRUE(file.flush());
  EXPECT_THAT(job.Restore(), Each(StatusIs(StatusCode::kDataLoss, testing::HasSubstr("checksum"))));
  for (int32_t rank = 0; rank < 2; ++rank) job.ThawTo(rank, rank);
  ASSERT_THAT(job.Save(30), Each(IsOk()));
  EXPECT_TRUE(IsWhole(30));
  EXPECT_THAT(job.Close(), Each(IsOk()));
  ExpectRestored(30, job);
}

}  // namespace
}  // namespace tidemark
