// AsyncCheckpointer in a job of several ranks: they save, restore and fail together.

#include <atomic>
#include <fstream>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/bytes/ids.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/store/store_layout.h"
#include "tests/snapshot/other_process.h"
#include "tests/snapshot/ranks/trainer_ranks.h"
#include "tests/storage/io/status_matchers.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class CheckpointerRanksTest : public TrainerRanksTest {
 protected:
  // Changes the first chunk of the rank's shard of the step, which only those read that want it.
  void DamageShard(AsyncCheckpointer& checkpointer, int64_t step, uint32_t rank, uint32_t world_size) {
    std::string attempt;
    const absl::StatusOr<std::vector<StepInfo>> steps = checkpointer.Steps();
    ASSERT_THAT(steps, IsOk());
    for (const StepInfo& info : *steps) {
      if (info.step == step) attempt = info.attempt;
    }
    const auto id = storage::FromHex(attempt);
    ASSERT_TRUE(id.has_value());
    const std::string path = storage::StoreLayout(store_).shard(step, storage::AttemptId{*id}, rank, world_size);
    const auto reader = storage::ShardReader::Open(storage::PosixFileSystem(), path, store_ + "/steps");
    ASSERT_THAT(reader, IsOk());
    std::fstream shard(path, std::ios::in | std::ios::out | std::ios::binary);
    shard.seekp(static_cast<std::streamoff>((*reader)->index().chunks.front().offset));
    shard.write("damaged", 7);
    ASSERT_TRUE(shard.flush());
  }
};

TEST_F(CheckpointerRanksTest, SaveOneStepAndRestoreItWithAnyNumberOfRanks) {
  {
    TrainerRanks job(store_, 3);
    ASSERT_THAT(job.Open(), Each(IsOk()));
    EXPECT_THAT(job.Save(10), Each(IsOk()));
    EXPECT_THAT(job.Save(20), Each(IsOk()));
    for (int32_t rank = 0; rank < 3; ++rank) {
      const absl::StatusOr<StepInfo> latest = job.rank_at(rank).LatestStep();
      ASSERT_THAT(latest, IsOk());
      EXPECT_EQ(latest->step, 20);
      EXPECT_EQ(latest->world_size, 3u);
      EXPECT_EQ(latest->entry_count, 6u) << "of all ranks";
    }
    EXPECT_THAT(job.Close(), Each(IsOk()));
    EXPECT_THAT(job.warnings(), IsEmpty());
  }
  for (const int32_t world_size : {1, 2, 3, 5}) {
    TrainerRanks job(store_, world_size);
    ASSERT_THAT(job.Open(), Each(IsOk()));
    // A rank that the saving job did not have finds no number of its own.
    const auto restored = job.Restore({.allow_missing = true, .allow_unexpected = world_size == 1});
    EXPECT_THAT(restored, Each(IsOk())) << world_size;
    for (const auto& report : restored) EXPECT_EQ(report->step, 20);
    EXPECT_TRUE(job.AllAreAt(20, /*seed=*/world_size <= 3)) << world_size;
    EXPECT_THAT(job.Close(), Each(IsOk()));
  }
}

// Anybody reads the step, whatever saved it.
TEST_F(CheckpointerRanksTest, AStepIsReadAsAWhole) {
  TrainerRanks job(store_, 4);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  State whole;
  std::vector<float> weight(RankTrainer::kRows * RankTrainer::kColumns);
  whole.AddTensor("weight", Dtype::kFloat32, {RankTrainer::kRows, RankTrainer::kColumns}, weight.data());
  ASSERT_THAT((*reader)->RestoreLatest(whole, {.allow_unexpected = true}), IsOk());
  for (size_t i = 0; i < weight.size(); ++i) EXPECT_EQ(weight[i], 10'000.0f + static_cast<float>(i));
}

TEST_F(CheckpointerRanksTest, ThePhasesTellWhichRankWasSlow) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  // Rank 1 begins to write when rank 0 has missed its vote once.
  absl::Notification has_missed;
  std::atomic<int> looks = 0;
  job.files(0).SetGate([&](const std::string&, const std::string& path) {
    if (absl::EndsWith(path, "/vote-00001") && ++looks == 2) has_missed.Notify();
  });
  job.files(1).SetGate([&](const std::string&, const std::string& path) {
    if (absl::StrContains(path, "/shard-")) has_missed.WaitForNotification();
  });
  EXPECT_THAT(job.Save(10), Each(IsOk()));
  EXPECT_THAT(job.Close(), Each(IsOk()));
  const auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  const absl::StatusOr<std::vector<SavePhase>> phases = (*reader)->Phases(10);
  ASSERT_THAT(phases, IsOk());
  absl::Duration commit, vote;
  for (const SavePhase& phase : *phases) {
    if (phase.name == "commit") commit += phase.duration;
    if (phase.name == "vote" && phase.lane == "rank 1") vote += phase.duration;
  }
  EXPECT_GT(vote, absl::ZeroDuration());
  EXPECT_LE(vote, commit);
}

TEST_F(CheckpointerRanksTest, ARankThatCannotWriteFailsTheSaveOfAll) {
  for (const int32_t bad : {0, 2}) {
    TrainerRanks job(fmt::format("{}-{}", store_, bad), 3);
    ASSERT_THAT(job.Open(), Each(IsOk()));
    job.files(bad).SetRule([](const storage::FailingFileSystem::Call& call) {
      return absl::StrContains(call.path, "/shard-") && call.operation == "QueueWrite"
                 ? absl::ResourceExhaustedError("the disk is full")
                 : absl::OkStatus();
    });
    EXPECT_THAT(job.Save(10), Each(StatusIs(StatusCode::kAborted, AllOf(HasSubstr("step 10 was not committed"),
                                                                        HasSubstr(fmt::format("rank {}", bad)),
                                                                        HasSubstr("the disk is full")))));
    job.files(bad).Reset();
    EXPECT_THAT(job.Save(20), Each(IsOk()));
    job.trainer(1).TrainTo(30);
    EXPECT_THAT(job.Restore(), Each(IsOk()));
    EXPECT_TRUE(job.AllAreAt(20));
  }
}

TEST_F(CheckpointerRanksTest, ASaveThatOneRankSkipsFailsOnAll) {
  TrainerRanks job(store_, 2);
  job.ChangeOptions([](int32_t rank, CheckpointerOptions& options) {
    if (rank == 1) options.when_full = WhenFull::kSkip;
    options.staging_bytes_max = 1 << 20;
  });
  ASSERT_THAT(job.Open(), Each(IsOk()));
  std::vector<float> large(200'000);
  job.trainer(1).state.AddTensor("large.1", Dtype::kFloat32, {200'000}, large.data());
  // The first one's memory is not free before rank 0 has decided.
  absl::Notification has_saved_both;
  const auto handles = OnEachRank(2, [&](int32_t rank) -> std::vector<absl::Status> {
    if (rank == 1) {
      auto first = job.rank_at(1).Save(10, job.trainer(1).state);
      auto second = job.rank_at(1).Save(20, job.trainer(1).state);
      EXPECT_TRUE(second.ok() && second->skipped());
      has_saved_both.Notify();
      return {first->committed().Wait(), second->committed().Wait()};
    }
    has_saved_both.WaitForNotification();
    return {job.SaveOne(0, 10), job.SaveOne(0, 20)};
  });
  EXPECT_THAT(handles[0], ElementsAre(IsOk(), StatusIs(StatusCode::kAborted, HasSubstr("rank 1"))));
  EXPECT_THAT(handles[1], ElementsAre(IsOk(), StatusIs(StatusCode::kResourceExhausted, HasSubstr("was not saved"))));
}

// A step in which rows are missing could not be restored.
TEST_F(CheckpointerRanksTest, AStepThatCannotBeReadIsNotCommitted) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  std::vector<float> half(8);
  for (int32_t rank = 0; rank < 2; ++rank) {
    job.trainer(rank).state.AddBox("holed", Dtype::kFloat32, {8, 3}, {4 * rank, 0}, {rank == 0 ? 3 : 4, 2},
                                   half.data());
  }
  EXPECT_THAT(
      job.Save(10),
      Each(StatusIs(StatusCode::kAborted,
                    AllOf(HasSubstr("the shards of all ranks make no step that can be read"), HasSubstr("holed")))));
}

// As large as the step before.
TEST_F(CheckpointerRanksTest, AStepThatHasOtherBoxesIsLookedAtAnew) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  std::vector<float> half(30);
  State other;  // the rows of rank 0
  int64_t seed = 0;
  other.AddBox("weight", Dtype::kFloat32, {12, 5}, {0, 0}, {6, 5}, half.data());
  other.AddValue("seed.1", &seed);
  const auto told = OnEachRank(2, [&](int32_t rank) {
    if (rank == 0) return job.SaveOne(0, 20);
    auto save = job.rank_at(1).Save(20, other);
    return save.ok() ? save->committed().Wait() : save.status();
  });
  EXPECT_THAT(told, Each(StatusIs(StatusCode::kAborted, HasSubstr("weight"))));
}

// The other ranks have not heard of it.
TEST_F(CheckpointerRanksTest, AStepThatRank0HasDeletedIsSavedAgain) {
  TrainerRanks job(store_, 3);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  for (const int64_t step : {10, 20}) ASSERT_THAT(job.Save(step), Each(IsOk()));
  ASSERT_THAT(job.rank_at(0).Delete(10), IsOk());
  for (int32_t rank = 0; rank < 3; ++rank) EXPECT_TRUE(job.rank_at(rank).ShouldSave(10)) << rank;
  EXPECT_THAT(job.Save(10), Each(IsOk()));
}

TEST_F(CheckpointerRanksTest, BoxesAreRestoredUnderOtherNames) {
  TrainerRanks job(store_, 3);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  ASSERT_THAT(job.Close(), Each(IsOk()));
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  State state;
  std::vector<float> columns(12 * 2), corner(2 * 3), none(1, -1.0f);
  state.AddBox("other.weight", Dtype::kFloat32, {12, 5}, {0, 1}, {12, 2}, columns.data());
  state.AddBox("other.weight", Dtype::kFloat32, {12, 5}, {10, 3}, {2, 2}, corner.data());
  state.AddBox("other.weight", Dtype::kFloat32, {12, 5}, {12, 0}, {0, 5}, nullptr);
  int64_t seed = -1;
  state.AddValue("seed.2", &seed);
  ASSERT_THAT((*reader)->RestoreLatest(state, {.only = {"other.*"}, .renames = {{"weight", "other.weight"}}}), IsOk());
  for (size_t row = 0; row < 12; ++row) {
    EXPECT_EQ(columns[2 * row], 10'000.0f + static_cast<float>(5 * row + 1));
    EXPECT_EQ(columns[2 * row + 1], 10'000.0f + static_cast<float>(5 * row + 2));
  }
  EXPECT_THAT(std::vector<float>(corner.begin(), corner.begin() + 4), ElementsAre(10'053, 10'054, 10'058, 10'059));
  EXPECT_EQ(seed, -1);
}

TEST_F(CheckpointerRanksTest, DamageThatOneRankFindsMovesAllToAnOlderStep) {
  TrainerRanks job(store_, 3);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  ASSERT_THAT(job.Save(20), Each(IsOk()));
  DamageShard(job.rank_at(0), 20, 1, 3);
  const auto restored = job.Restore();
  EXPECT_THAT(restored, Each(IsOk()));
  for (const auto& report : restored) {
    EXPECT_EQ(report->step, 10);
    ASSERT_EQ(report->passed_over.size(), 1u);
    EXPECT_EQ(report->passed_over.front().first, 20);
    EXPECT_THAT(report->passed_over.front().second, HasSubstr("rank 1"));
  }
  EXPECT_TRUE(job.AllAreAt(10));
  // It may be rank 1's machine that is damaged.
  for (int32_t rank = 0; rank < 3; ++rank) EXPECT_EQ(job.rank_at(rank).LatestStep()->step, 20) << rank;
  EXPECT_THAT(job.warnings(), HasSubstr("step 20 is passed over: rank 1"));
}

// Rank 0 has set a value from the damaged step, and the older step does not have it.
TEST_F(CheckpointerRanksTest, AValueOfADamagedStepIsNotKeptInSilence) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  int64_t later = 7;
  job.trainer(0).state.AddValue("later", &later);
  ASSERT_THAT(job.Save(20), Each(IsOk()));
  DamageShard(job.rank_at(0), 20, 1, 2);
  EXPECT_THAT(job.Restore({.allow_missing = true}),
              Each(StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr("hold parts of a newer"), HasSubstr("later")))));
}

// Other ranks do not come to it.
TEST_F(CheckpointerRanksTest, ACallbackCannotRestore) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  absl::Status restored;
  absl::Status discarded;
  ASSERT_THAT(job.rank_at(1).AddEvaluator({.name = "monitor"},
                                          [&](const Snapshot&) -> absl::StatusOr<Verdict> {
                                            restored = job.rank_at(1).RestoreLatest(job.trainer(1).state).status();
                                            discarded = job.rank_at(1).DiscardAfter(5, "a test").status();
                                            return Verdict();
                                          }),
              IsOk());
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  ASSERT_THAT(job.rank_at(1).WaitUntilEvaluated(), IsOk());
  const auto refused = StatusIs(StatusCode::kFailedPrecondition, HasSubstr("called by a callback"));
  EXPECT_THAT(restored, refused);
  EXPECT_THAT(discarded, refused);
}

TEST_F(CheckpointerRanksTest, DamageThatRank0FindsIsMarked) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  ASSERT_THAT(job.Save(20), Each(IsOk()));
  DamageShard(job.rank_at(0), 20, 0, 2);
  EXPECT_THAT(job.Restore(), Each(IsOk()));
  EXPECT_TRUE(job.AllAreAt(10));
  for (int32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(job.rank_at(rank).LatestStep()->step, 10) << rank;
}

// The last step that is left is damaged for one rank: it has failed for all.
TEST_F(CheckpointerRanksTest, WithoutAnyStepTheRestoreFailsOnAllRanks) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  DamageShard(job.rank_at(0), 10, 1, 2);
  EXPECT_THAT(job.Restore(), Each(StatusIs(StatusCode::kDataLoss, HasSubstr("rank 1"))));
}

TEST_F(CheckpointerRanksTest, ResumeSaysTheSameOnAllRanks) {
  const auto resume = [](TrainerRanks& job, const RestoreOptions& options = {}) {
    return OnEachRank(job.world_size(),
                      [&](int32_t rank) { return job.rank_at(rank).Resume(job.trainer(rank).state, options); });
  };
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  for (const absl::StatusOr<int64_t>& first : resume(job)) EXPECT_EQ(first.value_or(-1), 0);
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  for (const absl::StatusOr<int64_t>& next : resume(job)) EXPECT_EQ(next.value_or(-1), 11);
  EXPECT_THAT(resume(job, {.accept = [](const StepInfo&) { return false; }}),
              Each(StatusIs(StatusCode::kFailedPrecondition, HasSubstr("no fresh run is started"))));
}

TEST_F(CheckpointerRanksTest, StepsAreDiscardedOnAllRanks) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  for (const int64_t step : {10, 20, 30}) ASSERT_THAT(job.Save(step), Each(IsOk()));
  for (int32_t rank = 0; rank < 2; ++rank) EXPECT_FALSE(job.rank_at(rank).ShouldSave(20)) << rank;
  const auto discarded = OnEachRank(2, [&](int32_t rank) { return job.rank_at(rank).DiscardAfter(10, "a test"); });
  for (const auto& steps : discarded) EXPECT_THAT(*steps, ElementsAre(30, 20));
  for (int32_t rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(job.rank_at(rank).LatestStep()->step, 10) << rank;
    EXPECT_TRUE(job.rank_at(rank).ShouldSave(20)) << rank;
  }
  EXPECT_THAT(job.Save(20), Each(IsOk()));
}

TEST_F(CheckpointerRanksTest, Rank0DecidesWhetherASaveIsDue) {
  TrainerRanks job(store_, 3);
  job.ChangeOptions([](int32_t rank, CheckpointerOptions& options) {
    options.save_when = [rank](const SaveQuestion& question) { return (question.step == 7) == (rank == 0); };
  });
  ASSERT_THAT(job.Open(), Each(IsOk()));
  const auto ask = [&](int64_t step) {
    return OnEachRank(3, [&](int32_t rank) { return job.rank_at(rank).ShouldSave(step) ? 1 : 0; });
  };
  EXPECT_THAT(ask(7), ElementsAre(1, 1, 1));
  EXPECT_THAT(ask(8), ElementsAre(0, 0, 0));
}

TEST_F(CheckpointerRanksTest, OtherRanksReportAndPinAndLeaveTheRestToRank0) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  EXPECT_THAT(job.rank_at(1).ReportMetrics(10, "validation", {{"loss", 0.5}}).Wait(), IsOk());
  EXPECT_THAT(job.rank_at(1).Pin(10, "by rank 1"), IsOk());
  ASSERT_THAT(job.rank_at(0).Tidy(), IsOk());
  const absl::StatusOr<std::vector<StepInfo>> steps = job.rank_at(0).Steps();
  ASSERT_THAT(steps, IsOk());
  EXPECT_EQ(steps->front().evaluations.size(), 1u);
  EXPECT_EQ(steps->front().pin_note, "by rank 1");
  const auto refused = StatusIs(StatusCode::kFailedPrecondition, HasSubstr("rank 0"));
  EXPECT_THAT(job.rank_at(1).Delete(10), refused);
  EXPECT_THAT(job.rank_at(1).Tidy(), refused);
  EXPECT_THAT(job.rank_at(1).RetentionPlan(), refused);
}

// Rank 0 has no evaluator, and waits for that of rank 1.
TEST_F(CheckpointerRanksTest, AnUnhealthyStepOfOneRankIsPassedOverByAll) {
  TrainerRanks job(store_, 3);
  std::atomic<bool> begins_restore = false;
  absl::Notification restoring;  // rank 0 waits for the others
  job.ChangeOptions([&](int32_t rank, CheckpointerOptions& options) {
    if (rank != 0) return;
    options.ranks.all_gather = [&, gather = options.ranks.all_gather](const std::string& bytes) {
      if (begins_restore.exchange(false)) restoring.Notify();
      return gather(bytes);
    };
  });
  ASSERT_THAT(job.Open(), Each(IsOk()));
  EvaluatorOptions options;
  options.name = "monitor.1";
  const auto evaluator = [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
    if (snapshot.step() == 20) restoring.WaitForNotification();
    return Verdict({}, snapshot.step() == 20 ? "the loss is NaN" : "");
  };
  ASSERT_THAT(job.rank_at(1).AddEvaluator(options, evaluator), IsOk());
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  ASSERT_THAT(job.rank_at(1).WaitUntilEvaluated(), IsOk());
  ASSERT_THAT(job.Save(20), Each(IsOk()));
  begins_restore = true;
  const auto restored = job.Restore({.healthy_only = true});
  EXPECT_THAT(restored, Each(IsOk()));
  EXPECT_TRUE(job.AllAreAt(10));
}

// Rank 1 alone knows the verdict at first, so it would save the step, and the others would not.
TEST_F(CheckpointerRanksTest, AnUnhealthyStepIsReplacedOnlyIfAllAreAskedTo) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  const auto evaluator = [](const Snapshot&) -> absl::StatusOr<Verdict> { return Verdict({}, "the loss is NaN"); };
  ASSERT_THAT(job.rank_at(1).AddEvaluator({.name = "monitor"}, evaluator), IsOk());
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  ASSERT_THAT(job.rank_at(1).WaitUntilEvaluated(), IsOk());
  for (int32_t rank = 0; rank < 2; ++rank) EXPECT_FALSE(job.rank_at(rank).ShouldSave(10)) << rank;
  EXPECT_THAT(OnEachRank(2, [&](int32_t rank) { return job.SaveOne(rank, 10, {.overwrite = true}); }), Each(IsOk()));
}

TEST_F(CheckpointerRanksTest, RequestsAreCarriedOutByRank0) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  for (const int64_t step : {10, 20}) ASSERT_THAT(job.Save(step), Each(IsOk()));
  const OtherProcess person(store_);
  ASSERT_THAT(person.AskToDelete(10, "a test"), IsOk());
  ASSERT_THAT(job.rank_at(1).WaitUntilEvaluated(), IsOk());
  EXPECT_EQ(person.OpenRequests(), 1u);
  ASSERT_THAT(job.rank_at(0).Tidy(), IsOk());
  EXPECT_EQ(person.OpenRequests(), 0u);
  EXPECT_THAT(job.warnings(), IsEmpty());
}

TEST_F(CheckpointerRanksTest, BoxesThatShareMemoryAreOneBox) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  State state;
  std::vector<float> rows(2 * 5);
  state.AddBox("weight", Dtype::kFloat32, {12, 5}, {0, 0}, {2, 5}, rows.data());
  state.AddBox("weight", Dtype::kFloat32, {12, 5}, {4, 0}, {2, 5}, rows.data());
  EXPECT_THAT((*reader)->RestoreLatest(state, {.allow_unexpected = true}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("tied")));
}

TEST_F(CheckpointerRanksTest, OnlyRank0KeepsStepsUntilTheyAreEvaluated) {
  TrainerRanks job(store_, 2);
  ASSERT_THAT(job.Open(), Each(IsOk()));
  EvaluatorOptions options;
  options.name = "validation";
  options.when_lagging = WhenLagging::kQueue;
  const auto evaluator = [](const Snapshot&) { return absl::StatusOr<Verdict>(Verdict()); };
  EXPECT_THAT(job.rank_at(1).AddEvaluator(options, evaluator),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("only rank 0")));
  EXPECT_THAT(job.rank_at(0).AddEvaluator(options, evaluator), IsOk());
}

TEST_F(CheckpointerRanksTest, RetentionIsRank0s) {
  TrainerRanks job(store_, 2);
  job.ChangeOptions([](int32_t, CheckpointerOptions& options) { options.retention.max_to_keep = 1; });
  ASSERT_THAT(job.Open(), Each(IsOk()));
  for (const int64_t step : {10, 20, 30}) ASSERT_THAT(job.Save(step), Each(IsOk()));
  ASSERT_THAT(job.rank_at(0).Tidy(), IsOk());
  const absl::StatusOr<std::vector<StepInfo>> steps = job.rank_at(0).Steps();
  ASSERT_THAT(steps, IsOk());
  for (const StepInfo& info : *steps) {
    EXPECT_EQ(info.state, info.step == 30 ? StepState::kCommitted : StepState::kDeleted) << info.step;
  }
  EXPECT_THAT(job.Restore(), Each(IsOk()));
  EXPECT_TRUE(job.AllAreAt(30));
  EXPECT_THAT(job.Close(), Each(IsOk()));
  EXPECT_THAT(job.warnings(), IsEmpty());
}

}  // namespace
}  // namespace tidemark
