#include "storage/store/repair/adoption.h"

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/crash_states.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/fault_sweep.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/store/repair/repair_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::AnyOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class AdoptionTest : public RepairTest {
 protected:
  // Step 1 is committed; all shards of step 5 are there, and nothing of step 6.
  void CutSavesShort() {
    auto store = Open();
    one_ = CommitStep(*store, 1, 100, files_);
    five_ = WriteAttempt(*store, 5, 500, files_);
    six_ = *store->BeginAttempt(6);
  }
  absl::StatusOr<RepairReport> PlanAdopting(std::set<int64_t> steps) {
    RepairOptions options = Options();
    options.adopt = std::move(steps);
    return PlanRepair(files_, options);
  }
  absl::StatusOr<RepairReport> Adopt(std::set<int64_t> steps) {
    RepairOptions options = Options();
    options.adopt = std::move(steps);
    return RepairStore(files_, options);
  }
  std::vector<std::string> Attempts() {
    const absl::StatusOr<std::vector<DirectoryEntry>> entries = files_.ListDirectory(layout_.steps());
    EXPECT_THAT(entries, IsOk());
    std::vector<std::string> names;
    for (const DirectoryEntry& entry : *entries) names.push_back(entry.name);
    return names;
  }
  static void ExpectTheSame(const RepairReport& report, const RepairReport& plan) {
    EXPECT_EQ(Sentences(report), Sentences(plan));
    EXPECT_EQ(Of(report.left_alone), Of(plan.left_alone));
    EXPECT_EQ(report.restores, plan.restores);
    EXPECT_EQ(report.lost.size(), plan.lost.size());
    EXPECT_EQ(report.unread.size(), plan.unread.size());
    for (const StoreChange& change : report.changes) EXPECT_FALSE(change.adoptable) << change.path;
  }
};

TEST_F(AdoptionTest, CommitsACopyAndRemovesTheAttempt) {
  CutSavesShort();
  const auto plan = PlanAdopting({5});
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(Of(plan->changes), ElementsAre("adopt 5", "remove 5", "remove 6"));
  EXPECT_EQ(plan->restores, 5);
  EXPECT_TRUE(IsThere(FolderOf(five_)));
  const auto report = Adopt({5});
  ASSERT_THAT(report, IsOk());
  ExpectTheSame(*report, *plan);
  EXPECT_FALSE(IsThere(FolderOf(five_)));
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 5, files_), 500);
  const auto record = store->catalog().Find(5);
  ASSERT_THAT(record, IsOk());
  EXPECT_NE((*record)->info.attempt, ToHex(five_.attempt.bytes));
  EXPECT_EQ((*record)->info.metrics, (Metrics{{"loss", 500}})) << "what was given with the save";
  EXPECT_EQ(ValueAt(*store, 1, files_), 100);
  CommitStep(*store, 7, 700, files_);
  store.reset();
  const auto again = Adopt({5});
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(again->changes, IsEmpty());
  ASSERT_EQ(again->left_alone.size(), 1u);
  EXPECT_THAT(again->left_alone[0].why, HasSubstr("committed already"));
}

TEST_F(AdoptionTest, CopiesAShardWithSeveralBoxesOfATensor) {
  {
    auto store = Open();
    const auto identity = store->BeginAttempt(5);
    ASSERT_THAT(identity, IsOk());
    auto writer = ShardWriter::Create(files_, {.io = IoQueueKind::kThreads});
    ASSERT_THAT(writer, IsOk());
    const int64_t values[2] = {51, 52};
    ShardContents contents;
    for (int64_t i = 0; i < 2; ++i) {
      EntrySpec spec{.name = "w", .dtype = Dtype::kInt64, .shape = {2}, .box_offset = {i}, .box_extent = {1}};
      contents.entries.push_back({.spec = std::move(spec), .bytes = std::as_bytes(std::span(&values[i], 1))});
    }
    ASSERT_THAT((*writer)->Write(ShardOf(*identity), *identity, contents), IsOk());
  }
  ASSERT_THAT(Adopt({5}), IsOk());
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 5, files_), 51) << "of the first box";
  const auto record = store->catalog().Find(5);
  ASSERT_THAT(record, IsOk());
  const AttemptId attempt{*FromHex((*record)->info.attempt)};
  const auto shard = ShardReader::Open(files_, layout_.shard(5, attempt, 0, 1), layout_.steps());
  ASSERT_THAT(shard, IsOk());
  EXPECT_TRUE((*shard)->header().repeats_names);
}

TEST_F(AdoptionTest, IsOfferedWhereAllShardsAreThere) {
  CutSavesShort();
  const auto plan = Plan();
  ASSERT_THAT(plan, IsOk());
  ASSERT_THAT(Of(plan->changes), ElementsAre("remove 5", "remove 6"));
  EXPECT_TRUE(plan->changes[0].adoptable);
  EXPECT_FALSE(plan->changes[1].adoptable);
  ASSERT_THAT(Apply(), IsOk());
  EXPECT_FALSE(IsThere(FolderOf(five_)));
  EXPECT_THAT(Adopt({5}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("step 5 is not adopted")));
}

TEST_F(AdoptionTest, IsNotOfferedOfAStepThatIsCommitted) {
  CutSavesShort();
  {
    auto store = Open();
    WriteAttempt(*store, 1, 101, files_);
  }
  const auto plan = Plan();
  ASSERT_THAT(plan, IsOk());
  for (const StoreChange& change : plan->changes) EXPECT_EQ(change.adoptable, change.step == 5) << change.path;
}

TEST_F(AdoptionTest, TakesTheNewestAttemptThatIsWhole) {
  {
    auto store = Open();
    WriteAttempt(*store, 5, 500, files_);
  }
  {
    auto store = Open();
    WriteAttempt(*store, 5, 501, files_);
    ASSERT_THAT(store->BeginAttempt(5), IsOk());
  }
  ASSERT_THAT(Adopt({5}), IsOk());
  EXPECT_EQ(ValueAt(*Open(), 5, files_), 501);
}

TEST_F(AdoptionTest, TakesTheReasonOfAFailureBack) {
  CutSavesShort();
  {
    auto store = Open();
    store->AbandonAttempt(*store->BeginAttempt(5), absl::UnixEpoch(), absl::InternalError("EIO")).IgnoreError();
    ASSERT_EQ((*store->catalog().Find(5))->info.state, StepState::kFailed);
  }
  ASSERT_THAT(Adopt({5}), IsOk());
  EXPECT_EQ(ValueAt(*Open(), 5, files_), 500);
}

TEST_F(AdoptionTest, KeepsWhatTheStepRefersTo) {
  {
    auto store = Open();
    one_ = CommitStep(*store, 1, 100, files_);
    five_ = WriteReferringAttempt(*store, 5, one_, files_);
  }
  ASSERT_THAT(Adopt({5}), IsOk());
  LetGo(one_);
  ASSERT_THAT(Apply(), IsOk());
  EXPECT_TRUE(IsThere(ShardOf(one_)));
  EXPECT_EQ(ValueAt(*Open(), 5, files_), 100);
}

TEST_F(AdoptionTest, RefusesWhatIsNotThereOrNotWhole) {
  CutSavesShort();
  EXPECT_THAT(Adopt({9}),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("step 9"), HasSubstr(layout_.steps()))));
  EXPECT_THAT(Adopt({5, 6}), StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr("step 6"), HasSubstr("shard"))));
  EXPECT_TRUE(IsThere(FolderOf(five_))) << "nothing is removed by a repair that has failed";
  Flip(five_, kInHeader);
  EXPECT_THAT(Adopt({5}), StatusIs(StatusCode::kDataLoss, HasSubstr(ShardOf(five_))));
  EXPECT_EQ(ValueAt(*Open(), 5, files_), -1);
}

TEST_F(AdoptionTest, RefusesWhatWasDeleted) {
  {
    auto store = Open();
    five_ = CommitStep(*store, 5, 500, files_);
    CommitStep(*store, 6, 600, files_);
  }
  LetGo(five_);
  EXPECT_TRUE(IsThere(FolderOf(five_)));
  EXPECT_THAT(Adopt({5}), StatusIs(StatusCode::kInvalidArgument, HasSubstr("has no attempt at step 5")));
}

// Headers and index are read first, chunks later.
TEST_F(AdoptionTest, RefusesADamagedChunkBeforeItChangesAnything) {
  CutSavesShort();
  {
    auto store = Open();
    six_ = WriteAttempt(*store, 6, 600, files_);
  }
  Flip(five_, kInChunk);
  const auto refused = StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr("step 5 is not adopted"),
                                                             HasSubstr(ShardOf(five_)), HasSubstr("chunk 0")));
  const std::vector<std::string> before = Attempts();
  EXPECT_THAT(PlanAdopting({5}), refused);
  EXPECT_THAT(Adopt({5, 6}), refused);
  EXPECT_EQ(Attempts(), before);
  EXPECT_EQ(ValueAt(*Open(), 6, files_), -1) << "all of the steps or none";
}

TEST_F(AdoptionTest, TakesAnOlderAttemptWhereTheNewestIsDamaged) {
  CutSavesShort();
  ShardIdentity newer;
  {
    auto store = Open();
    newer = WriteAttempt(*store, 5, 501, files_);
  }
  Flip(newer, kInChunk);
  const auto plan = PlanAdopting({5});
  ASSERT_THAT(plan, IsOk());
  const auto report = Adopt({5});
  ASSERT_THAT(report, IsOk());
  ExpectTheSame(*report, *plan);
  EXPECT_EQ(ValueAt(*Open(), 5, files_), 500);
}

TEST_F(AdoptionTest, TakesThePlaceOfACommittedStepThatIsDamaged) {
  {
    auto store = Open();
    five_ = CommitStep(*store, 5, 500, files_);
    WriteAttempt(*store, 5, 501, files_);
  }
  Flip(five_, kInChunk);
  const auto plan = PlanAdopting({5});
  ASSERT_THAT(plan, IsOk());
  EXPECT_THAT(Of(plan->changes), ElementsAre("quarantine 5", "adopt 5", "remove 5"));
  const auto report = Adopt({5});
  ASSERT_THAT(report, IsOk());
  ExpectTheSame(*report, *plan);
  EXPECT_THAT(report->lost, IsEmpty());
  EXPECT_EQ(ValueAt(*Open(), 5, files_), 501);
}

TEST_F(AdoptionTest, LeavesAStepAloneThatTheRepairCommitsAgain) {
  {
    auto store = Open();
    five_ = CommitStep(*store, 5, 500, files_);
    WriteAttempt(*store, 5, 501, files_);
    ASSERT_THAT(store->MarkStep(5, ToHex(five_.attempt.bytes), StepState::kDamaged, "a bad cable"), IsOk());
  }
  const auto plan = PlanAdopting({5});
  ASSERT_THAT(plan, IsOk());
  const auto report = Adopt({5});
  ASSERT_THAT(report, IsOk());
  ExpectTheSame(*report, *plan);
  EXPECT_THAT(Of(report->changes), ElementsAre("again 5", "remove 5"));
  EXPECT_EQ(ValueAt(*Open(), 5, files_), 500);
}

TEST_F(AdoptionTest, SaysThatADamagedStepHasNoOtherAttempt) {
  {
    auto store = Open();
    five_ = CommitStep(*store, 5, 500, files_);
  }
  Flip(five_, kInChunk);
  EXPECT_THAT(Adopt({5}), StatusIs(StatusCode::kDataLoss, HasSubstr("no other attempt")));
}

TEST_F(AdoptionTest, KeepsADamagedStepInPlaceOfWhichItNeedsAChunk) {
  {
    auto store = Open();
    one_ = CommitStep(*store, 1, 100, files_);
    five_ = WriteReferringAttempt(*store, 5, one_, files_);
  }
  Flip(one_, kInIndex);
  ASSERT_THAT(Adopt({5}), IsOk());
  EXPECT_EQ(ValueAt(*Open(), 5, files_), 100);
  EXPECT_EQ(ValueAt(*Open(), 1, files_), -1);
}

TEST_F(AdoptionTest, RefusesWhatRefersToAnAttemptThatNoStepNeeds) {
  {
    auto store = Open();
    five_ = WriteAttempt(*store, 5, 500, files_);
    WriteReferringAttempt(*store, 6, five_, files_);
  }
  EXPECT_THAT(Adopt({5, 6}),
              StatusIs(StatusCode::kDataLoss, AllOf(HasSubstr("step 6"), HasSubstr(StepFolderName(5, five_.attempt)))));
  EXPECT_THAT(Adopt({5}), IsOk());
}

TEST_F(AdoptionTest, NeedsTheShardsOfAllRanks) {
  {
    auto store = Open();
    five_ = *store->BeginAttempt(5);
    five_.world_size = 2;
    for (five_.rank = 0; five_.rank < 2; ++five_.rank) {
      ASSERT_THAT(WriteShard(store->layout(), five_, 500 + five_.rank, files_), IsOk());
    }
  }
  const std::string last = layout_.shard(5, five_.attempt, 1, 2);
  const auto bytes = ReadSmallFile(files_, last, 1 << 20);
  ASSERT_THAT(bytes, IsOk());
  ASSERT_THAT(files_.RemoveFile(last), IsOk());
  EXPECT_THAT(Adopt({5}), StatusIs(StatusCode::kDataLoss, HasSubstr(last)));
  PutFile(files_, last, *bytes);
  ASSERT_THAT(Adopt({5}), IsOk());
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 5, files_), 500);
  const StepRecord record = **store->catalog().Find(5);
  EXPECT_EQ(record.info.world_size, 2);
  const auto found = ReadAttemptRecord(files_, layout_, store->id(), {5, AttemptId{*FromHex(record.info.attempt)}});
  ASSERT_THAT(found, IsOk());
  EXPECT_EQ(record.shards, found->shards);
}

TEST_F(AdoptionTest, LeavesNothingOfACopyWhereItIsCancelled) {
  CutSavesShort();
  RepairOptions options = Options();
  options.adopt = {5};
  const size_t times = CancelAtEachQuestion(options, ReadTree(files_, path_), [&](bool cancelled) {
    if (cancelled) {
      EXPECT_THAT(Attempts(), SizeIs(3)) << "of steps 1, 5 and 6";
      ASSERT_THAT(Adopt({5}), IsOk());
    }
    EXPECT_EQ(ValueAt(*Open(), 5, files_), 500);
  });
  EXPECT_GT(times, 5u) << "while it is read, copied and read again";
}

TEST_F(AdoptionTest, ShowsHowMuchIsReadAndCopied) {
  CutSavesShort();
  std::vector<uint64_t> done;
  RepairOptions options = Options();
  options.adopt = {5};
  options.progress = [&](const RepairProgress& progress) { done = {progress.bytes_done, progress.bytes_total}; };
  for (const bool apply : {false, true}) {
    ASSERT_THAT(apply ? RepairStore(files_, options) : PlanRepair(files_, options), IsOk());
    ASSERT_EQ(done.size(), 2u);
    // All but the header is copied.
    EXPECT_GE(done[0] + kShardBlockBytes, done[1]) << apply;
  }
}

TEST_F(AdoptionTest, IsDoneOrNotWhicheverCallFails) {
  CutSavesShort();
  const FileTree before = ReadTree(files_, path_);
  FailingFileSystem failing(files_);
  const auto prepare = [&] {
    ASSERT_THAT(RemoveTree(files_, path_), IsOk());
    WriteTree(files_, path_, before);
  };
  const auto act = [&] {
    RepairOptions options = Options();
    options.adopt = {5};
    return RepairStore(failing, options).status();
  };
  const auto check = [&](const absl::Status& status, const InjectedFault& fault) {
    EXPECT_TRUE(status.ok() || fault.IsNamedIn(status)) << status;
    if (status.ok()) {
      EXPECT_EQ(ValueAt(*Open(), 5, files_), 500);
    }
    // Nothing was lost that could be adopted.
    EXPECT_THAT(Adopt({5}), IsOk());
    auto store = Open();
    EXPECT_EQ(ValueAt(*store, 5, files_), 500);
    EXPECT_EQ(ValueAt(*store, 1, files_), 100);
    EXPECT_THAT(store->SweepUncommitted(), IsOk());
    CommitStep(*store, 7, 700, files_);
  };
  const auto figures =
      SweepFaults(failing, {.name = "adoption", .prepare = prepare, .act = act, .check = check, .one_thread = true},
                  FaultsToRun(8));
  EXPECT_TRUE(figures.any_reported());
}

TEST(AdoptionCrashTest, LosesNothingAndTheStepIsCommittedOnceItIsDone) {
  std::string warnings;
  SimulatedDisk first;
  {
    auto store = OpenSoundStore("/store", &warnings, first);
    CommitStep(*store, 1, 100, first);
    WriteAttempt(*store, 5, 500, first);
  }
  const RepairOptions options{.directory = "/store", .adopt = {5}, .read = {.io = IoQueueKind::kThreads}};
  SimulatedDisk disk(first.image());
  ASSERT_THAT(RepairStore(disk, options), IsOk());
  const DiskLog log = disk.log();
  std::unordered_set<uint64_t> seen;
  const CrashOptions crashes{.all_subsets_up_to = 3, .samples = 2, .torn = 1, .seed = SeedOfCases()};
  const size_t stride = OneOf(4, 40);
  size_t states = 0;
  size_t committed = 0;
  ForEachCrash(log, crashes, seen, [&](const Crash& crash, const DiskImage& left) {
    const bool done = crash.prefix == log.operations.size();
    if (!done && ++states % stride != 0) return true;
    SCOPED_TRACE(testing::Message() << "seed " << crashes.seed << ", " << crash.ToString(log));
    SimulatedDisk after(left);
    {
      const auto store = OpenSoundStore("/store", &warnings, after);
      if (store == nullptr) return false;
      EXPECT_EQ(ValueAt(*store, 1, after), 100);
      const int64_t value = ValueAt(*store, 5, after);
      committed += value == 500 ? 1 : 0;
      EXPECT_THAT(value, AnyOf(done ? 500 : -1, 500));
    }
    EXPECT_THAT(RepairStore(after, options), IsOk()) << "what could be adopted still can be";
    const auto store = OpenSoundStore("/store", &warnings, after);
    if (store == nullptr) return false;
    EXPECT_EQ(ValueAt(*store, 5, after), 500);
    CommitStep(*store, 7, 700, after);
    return !testing::Test::HasFailure();
  });
  EXPECT_GT(committed, 0u);
  EXPECT_GT(states, stride);
}

}  // namespace
}  // namespace tidemark::storage
