// A job that is started again with as many ranks: each rank gets back what it has saved, from its own shard alone.

#include "snapshot/restore/own_shard.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/ranks/replicated_entries.h"
#include "storage/bytes/ids.h"
#include "storage/store/attempt_reader.h"
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
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

// A state of one rank: some elements of "w", [8], and what it calls itself.
struct NamedPart {
  NamedPart(int64_t first, int64_t count, float value, int64_t who)
      : elements(static_cast<size_t>(count), value), name(who) {
    state.AddBox("w", Dtype::kFloat32, {8}, {first}, {count}, elements.data());
    state.AddValue("who", &name);
  }
  std::vector<float> elements;
  int64_t name;
  State state;
};

class OwnShardTest : public TrainerRanksTest {
 protected:
  // The shards that the rank has opened since the last call.
  static std::vector<std::string> OpenedShards(TrainerRanks& job, int32_t rank) {
    std::vector<std::string> names;
    for (const auto& call : job.files(rank).calls()) {
      const std::string name = call.path.substr(call.path.rfind('/') + 1);
      if (absl::StartsWith(call.operation, "Open") && absl::StartsWith(name, "shard-")) names.push_back(name);
    }
    job.files(rank).Reset();
    std::ranges::sort(names);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
  }

  // Of the attempt that the step has.
  static storage::AttemptId IdOf(AsyncCheckpointer& checkpointer, int64_t step) {
    const absl::StatusOr<std::vector<StepInfo>> steps = checkpointer.Steps();
    EXPECT_THAT(steps, IsOk());
    for (const StepInfo& info : *steps) {
      if (info.step == step) return storage::AttemptId{*storage::FromHex(info.attempt)};
    }
    ADD_FAILURE() << "there is no step " << step;
    return {};
  }

  void SaveStep10(int32_t world_size) {
    TrainerRanks job(store_, world_size);
    ASSERT_THAT(job.Open(), Each(IsOk()));
    ASSERT_THAT(job.Save(10), Each(IsOk()));
  }

  static std::vector<absl::Status> Save(TrainerRanks& job, int64_t step, std::deque<NamedPart>& parts) {
    return OnEachRank(job.world_size(), [&](int32_t rank) {
      auto save = job.rank_at(rank).Save(step, parts[static_cast<size_t>(rank)].state);
      return save.ok() ? save->committed().Wait() : save.status();
    });
  }
  static std::vector<absl::StatusOr<RestoreReport>> Restore(TrainerRanks& job, std::deque<NamedPart>& parts,
                                                            const RestoreOptions& options = {}) {
    return OnEachRank(job.world_size(), [&](int32_t rank) {
      return job.rank_at(rank).RestoreLatest(parts[static_cast<size_t>(rank)].state, options);
    });
  }
};

TEST_F(OwnShardTest, ARankOpensNoOtherShard) {
  SaveStep10(3);
  TrainerRanks job(store_, 3);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  for (int32_t rank = 0; rank < 3; ++rank) job.files(rank).Reset();
  const auto restored = job.Restore();
  ASSERT_THAT(restored, Each(IsOk()));
  EXPECT_TRUE(job.AllAreAt(10));
  for (int32_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(OpenedShards(job, rank), ElementsAre(storage::ShardFileName(static_cast<uint32_t>(rank), 3)));
    EXPECT_THAT(restored[static_cast<size_t>(rank)]->unexpected, IsEmpty());
    EXPECT_EQ(restored[static_cast<size_t>(rank)]->info.world_size, 3u);
  }
}

TEST_F(OwnShardTest, AJobOfAnotherSizeOpensAll) {
  SaveStep10(3);
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  job.files(1).Reset();
  ASSERT_THAT(job.Restore(), Each(IsOk()));
  EXPECT_TRUE(job.AllAreAt(10));
  EXPECT_THAT(OpenedShards(job, 1), UnorderedElementsAre(storage::ShardFileName(0, 3), storage::ShardFileName(1, 3),
                                                         storage::ShardFileName(2, 3)));
}

// With any other number of ranks it is that of the lowest rank.
TEST_F(OwnShardTest, AValueIsTheRanksOwn) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  std::deque<NamedPart> saved;
  saved.emplace_back(0, 4, 1.0f, 100);
  saved.emplace_back(4, 4, 2.0f, 101);
  ASSERT_THAT(Save(job, 10, saved), Each(IsOk()));
  std::deque<NamedPart> found;
  for (const int64_t first : {0, 4}) found.emplace_back(first, 4, 0.0f, -1);
  ASSERT_THAT(Restore(job, found), Each(IsOk()));
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(found[rank].elements, Each(static_cast<float>(rank + 1)));
    EXPECT_EQ(found[rank].name, 100 + static_cast<int64_t>(rank));
  }
}

// The ranks have taken each other's places, or split the tensor in another way.
TEST_F(OwnShardTest, ARankWhoseBoxesAreOthersReadsThem) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  std::deque<NamedPart> saved;
  saved.emplace_back(0, 4, 1.0f, 100);
  saved.emplace_back(4, 4, 2.0f, 101);
  ASSERT_THAT(Save(job, 10, saved), Each(IsOk()));
  std::deque<NamedPart> swapped;
  swapped.emplace_back(4, 4, 0.0f, -1);
  swapped.emplace_back(0, 4, 0.0f, -1);
  ASSERT_THAT(Restore(job, swapped), Each(IsOk()));
  EXPECT_THAT(swapped[0].elements, Each(2.0f));
  EXPECT_THAT(swapped[1].elements, Each(1.0f));
  std::deque<NamedPart> uneven;
  uneven.emplace_back(0, 5, 0.0f, -1);
  uneven.emplace_back(5, 3, 0.0f, -1);
  ASSERT_THAT(Restore(job, uneven), Each(IsOk()));
  EXPECT_THAT(uneven[0].elements, ElementsAre(1.0f, 1.0f, 1.0f, 1.0f, 2.0f));
  EXPECT_THAT(uneven[1].elements, Each(2.0f));
}

// What a state makes only where a checkpoint has it, as an optimizer makes its moments, must not be missed because
// another rank has saved it.
TEST_F(OwnShardTest, WhatAnotherRankHasWrittenIsLookedFor) {
  class LazyState final : public State {
   public:
    absl::Status PrepareRestore(std::span<const EntrySpec> saved) override {
      const bool is_there = std::ranges::any_of(saved, [](const EntrySpec& spec) { return spec.name == "b.moment"; });
      if (!is_there || has_moment_) return State::PrepareRestore(saved);
      has_moment_ = true;
      AddTensor("b.moment", Dtype::kFloat32, {2}, moment.data());
      return State::PrepareRestore(saved);
    }
    std::vector<float> moment = std::vector<float>(2, 0.0f);

   private:
    bool has_moment_ = false;
  };
  TrainerRanks job(store_, 2);
  job.ChangeOptions([](int32_t, CheckpointerOptions& options) { options.ranks.replicated = {"*"}; });
  ASSERT_THAT(job.Open(), Each(IsOk()));
  std::vector<float> a(4, 3.0f), moment(2, 5.0f);
  std::vector<State> states(2);
  for (State& state : states) {
    state.AddTensor("a", Dtype::kFloat32, {4}, a.data());
    state.AddTensor("b.moment", Dtype::kFloat32, {2}, moment.data());
  }
  ASSERT_THAT(OnEachRank(2,
                         [&](int32_t rank) {
                           auto save = job.rank_at(rank).Save(10, states[static_cast<size_t>(rank)]);
                           return save.ok() ? save->committed().Wait() : save.status();
                         }),
              Each(IsOk()));
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  auto step = (*reader)->OpenStep(10);
  ASSERT_THAT(step, IsOk());
  EXPECT_EQ((*step)->contents().properties.at(std::string(kReplicatedProperty)), "true");
  ASSERT_EQ((*step)->contents().entries.size(), 2u) << "each is written once, by ranks of their own";
  EXPECT_NE((*step)->contents().entries[0].rank, (*step)->contents().entries[1].rank);
  std::vector<LazyState> restored(2);
  std::vector<std::vector<float>> of_ranks(2, std::vector<float>(4, 0.0f));
  for (size_t rank = 0; rank < 2; ++rank) restored[rank].AddTensor("a", Dtype::kFloat32, {4}, of_ranks[rank].data());
  ASSERT_THAT(OnEachRank(2,
                         [&](int32_t rank) {
                           return job.rank_at(rank).RestoreLatest(restored[static_cast<size_t>(rank)]).status();
                         }),
              Each(IsOk()));
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(of_ranks[rank], Each(3.0f));
    EXPECT_THAT(restored[rank].moment, Each(5.0f)) << rank;
  }
}

// Each rank has saved all of the tensor, and a value of its own, which would be another rank's.
TEST_F(OwnShardTest, ADamagedShardIsNotReplacedByThatOfAnotherRank) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  std::deque<NamedPart> saved;
  for (const int64_t who : {100, 101}) saved.emplace_back(0, 8, 1.0f, who);
  ASSERT_THAT(Save(job, 10, saved), Each(IsOk()));
  std::deque<NamedPart> later;
  for (const int64_t who : {200, 201}) later.emplace_back(0, 8, 2.0f, who);
  ASSERT_THAT(Save(job, 20, later), Each(IsOk()));
  const std::string newest = storage::StepFolderName(20, IdOf(job.rank_at(0), 20));
  std::atomic<int> failed = 0;
  job.files(1).SetRule([&](const storage::FailingFileSystem::Call& call) {
    const bool is_own = absl::StrContains(call.path, newest) && absl::EndsWith(call.path, storage::ShardFileName(1, 2));
    if (!is_own || call.operation != "QueueRead") return absl::OkStatus();
    ++failed;
    return absl::DataLossError("damaged");
  });
  std::deque<NamedPart> found;
  for (int i = 0; i < 2; ++i) found.emplace_back(0, 8, 0.0f, -1);
  ASSERT_THAT(Restore(job, found), Each(IsOk()));
  EXPECT_GT(failed, 0);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_THAT(found[rank].elements, Each(1.0f)) << rank;
    EXPECT_EQ(found[rank].name, 100 + static_cast<int64_t>(rank));
  }
}

TEST_F(OwnShardTest, AShardMustBeOfTheAttemptThatWasCommitted) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  storage::FileSystem& files = storage::PosixFileSystem();
  const storage::StoreLayout layout(store_);
  const auto id = storage::FindStoreId(files, layout);
  ASSERT_THAT(id, IsOk());
  auto record = storage::ReadAttemptRecord(files, layout, *id, {10, IdOf(job.rank_at(0), 10)});
  ASSERT_THAT(record, IsOk());
  const RankOptions ranks = {.rank = 1, .world_size = 2};
  const storage::ShardReadOptions read;
  const RestoreSource source = {files, layout, *id, read, {}, &ranks};
  EXPECT_THAT(OpenOwnShard(source, *record), IsOk());
  // The other rank's shard in its place.
  std::filesystem::copy_file(layout.shard(10, IdOf(job.rank_at(0), 10), 0, 2),
                             layout.shard(10, IdOf(job.rank_at(0), 10), 1, 2),
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(OpenOwnShard(source, *record).status(), StatusIs(StatusCode::kDataLoss, HasSubstr("rank 0 of 2")));
  record->info.attempt.clear();
  EXPECT_THAT(OpenOwnShard(source, *record).status(), StatusIs(StatusCode::kNotFound, HasSubstr("no attempt")));
}

// The rank's own shard is gone, and with it half of the tensor.
TEST_F(OwnShardTest, AMissingShardIsDamageOfTheStep) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  std::deque<NamedPart> saved;
  saved.emplace_back(0, 4, 1.0f, 100);
  saved.emplace_back(4, 4, 2.0f, 101);
  ASSERT_THAT(Save(job, 10, saved), Each(IsOk()));
  job.files(1).SetRule([](const storage::FailingFileSystem::Call& call) {
    const bool is_own = absl::StrContains(call.path, storage::ShardFileName(1, 2));
    return is_own ? absl::NotFoundError("no such file") : absl::OkStatus();
  });
  EXPECT_THAT(Restore(job, saved), Each(StatusIs(StatusCode::kDataLoss, HasSubstr("rank 1"))));
}

}  // namespace
}  // namespace tidemark
