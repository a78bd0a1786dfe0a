#include "storage/store/repair/repair.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/store/repair/repair_testing.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::UnorderedElementsAre;

TEST_F(RepairTest, FindsNothingToDoInASoundStore) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100, files_);
    CommitStep(*store, 2, 200, files_);
  }
  std::vector<uint64_t> done;
  RepairOptions options = Options();
  options.progress = [&](const RepairProgress& progress) { done = {progress.bytes_done, progress.bytes_total}; };
  for (const bool apply : {false, true}) {
    const auto report = apply ? RepairStore(files_, options) : PlanRepair(files_, options);
    ASSERT_THAT(report, IsOk());
    EXPECT_THAT(Sentences(*report), IsEmpty());
    EXPECT_THAT(Of(report->left_alone), IsEmpty());
    EXPECT_THAT(report->lost, IsEmpty());
    EXPECT_EQ(report->restores, 2);
    ASSERT_EQ(done.size(), 2u);
    EXPECT_EQ(done[0], done[1]);
  }
}

TEST_F(RepairTest, DoesWhatWasPlannedAndThenFindsNothingMore) {
  MakeAMess();
  const FileTree before = ReadTree(files_, path_);
  const auto plan = Plan();
  ASSERT_THAT(plan, IsOk());
  const FileTree after = ReadTree(files_, path_);
  EXPECT_EQ(before.files, after.files) << "a plan changes nothing";
  EXPECT_EQ(before.directories, after.directories);
  EXPECT_THAT(Of(plan->changes),
              UnorderedElementsAre("remove 5", "remove 6", "quarantine 2", "damaged 3", "remove store.json.tmp",
                                   "remove retired.tmk", "remove pin.json.tmp",
                                   "remove " + LeaseFileName(one_.attempt, "validation")));
  EXPECT_THAT(Of(plan->left_alone), UnorderedElementsAre("left x", "left 1", "left notes.txt"));
  ASSERT_EQ(plan->lost.size(), 2u);
  EXPECT_EQ(plan->lost[0].step, 2);
  EXPECT_THAT(plan->lost[0].why, HasSubstr("chunk 0"));
  EXPECT_THAT(plan->lost[0].entries, ElementsAre("value"));
  EXPECT_EQ(plan->lost[1].step, 3);
  EXPECT_THAT(plan->lost[1].why, HasSubstr("index"));
  EXPECT_EQ(plan->restores, 4);

  const auto applied = Apply();
  ASSERT_THAT(applied, IsOk());
  EXPECT_EQ(Sentences(*applied), Sentences(*plan));
  EXPECT_EQ(applied->restores, 4);
  EXPECT_TRUE(IsThere(layout_.quarantine() + "/" + StepFolderName(2, two_.attempt)));
  EXPECT_TRUE(IsThere(FolderOf(three_))) << "step 4 refers to it";
  for (const std::string& path : {FolderOf(two_), FolderOf(six_), layout_.retired(), layout_.identity() + ".tmp",
                                  FolderOf(one_) + "/pin.json.tmp"}) {
    EXPECT_FALSE(IsThere(path)) << path;
  }
  for (const std::string& path : {FolderOf(one_) + "/core.17", path_ + "/notes.txt", layout_.steps() + "/x"}) {
    EXPECT_TRUE(IsThere(path)) << path;
  }
  const auto record = Open()->catalog().Find(2);
  ASSERT_THAT(record, IsOk());
  EXPECT_EQ((*record)->info.state, StepState::kLost);
  EXPECT_THAT((*record)->info.reason, AllOf(HasSubstr("moved to quarantine"), HasSubstr("chunk 0")));
  ExpectInOrder();
}

TEST_F(RepairTest, IsFinishedByTheNextOneWhereverItIsCutShort) {
  size_t cuts = 0;
  for (const size_t place : {kInChunk, kInIndex}) {
    ASSERT_THAT(RemoveTree(files_, path_), IsOk());
    MakeAMess(place);
    const FileTree mess = ReadTree(files_, path_);
    bool finished = false;
    const size_t stride = OneOf(1, 13);
    for (size_t call = SeedOfCases() % stride; !finished; call += stride, ++cuts) {
      SCOPED_TRACE(testing::Message() << "byte " << place << ", call " << call);
      ASSERT_LT(call, 3000u);
      ASSERT_THAT(RemoveTree(files_, path_), IsOk());
      WriteTree(files_, path_, mess);
      FailingFileSystem failing(files_);
      failing.FailFrom(call, absl::InternalError("EIO"));
      finished = RepairStore(failing, Options()).ok();
      if (!finished) {
        const auto again = Apply();
        ASSERT_THAT(again, IsOk());
        EXPECT_EQ(again->restores, 4);
        EXPECT_EQ(again->lost.size(), 2u);
      }
      ExpectInOrder();
      EXPECT_TRUE(IsThere(layout_.quarantine() + "/" + StepFolderName(2, two_.attempt) + "/" + ShardFileName(0, 1)));
      if (HasFailure()) return;
    }
  }
  std::printf("repairs cut short: %zu\n", cuts);
}

TEST_F(RepairTest, LeavesNothingHalfDoneWhereItIsCancelled) {
  MakeAMess();
  const size_t times = CancelAtEachQuestion(Options(), ReadTree(files_, path_), [&](bool cancelled) {
    if (cancelled) {
      const auto rest = Plan();
      ASSERT_THAT(rest, IsOk());
      // What had been begun and not ended would be "lost": moved away, and not recorded.
      const std::vector<std::string> left = Of(rest->changes);
      EXPECT_THAT(left, Not(Contains("lost 2")));
      EXPECT_NE(std::count(left.begin(), left.end(), "quarantine 2") > 0,
                IsThere(layout_.quarantine() + "/" + StepFolderName(2, two_.attempt)));
      EXPECT_THAT(Apply(), IsOk());
    }
    ExpectInOrder();
  });
  EXPECT_GT(times, 5u) << "while steps are read, and between them";
}

TEST_F(RepairTest, WritesStoreJsonAnewAndRecordsWhatIsLost) {
  {
    auto store = Open();
    one_ = CommitStep(*store, 1, 100, files_);
    two_ = CommitStep(*store, 2, 200, files_);
  }
  ASSERT_THAT(files_.RemoveFile(layout_.identity()), IsOk());
  ASSERT_THAT(RemoveTree(files_, FolderOf(two_)), IsOk());
  const auto applied = Apply();
  ASSERT_THAT(applied, IsOk());
  EXPECT_THAT(Of(applied->changes), ElementsAre("identity store.json", "lost 2"));
  ASSERT_EQ(applied->lost.size(), 1u);
  EXPECT_EQ(applied->lost[0].step, 2);
  EXPECT_EQ(applied->restores, 1);
  // What is lost stays so, and is said again, but there is nothing to do about it.
  const auto again = Apply();
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(again->changes, IsEmpty());
  EXPECT_EQ(again->lost.size(), 1u);
}

TEST_F(RepairTest, SaysOfALostStepThatSomebodyWantedToKeepIt) {
  {
    auto store = Open();
    one_ = CommitStep(*store, 1, 100, files_);
    two_ = CommitStep(*store, 2, 200, files_);
    three_ = CommitStep(*store, 3, 300, files_);
    ASSERT_THAT(store->Pin(2, "for the paper"), IsOk());
    ASSERT_THAT(store->Tag(2, "v1"), IsOk());
  }
  Flip(two_, kInChunk);
  Flip(three_, kInChunk);
  for (const auto& report : {Plan(), Apply(), Apply()}) {
    ASSERT_THAT(report, IsOk());
    ASSERT_EQ(report->lost.size(), 2u);
    EXPECT_TRUE(report->lost[0].pinned);
    EXPECT_EQ(report->lost[0].pin_note, "for the paper");
    EXPECT_THAT(report->lost[0].tags, ElementsAre("v1"));
    EXPECT_FALSE(report->lost[1].pinned);
  }
}

TEST_F(RepairTest, CommitsAStepAgainThatWasMarkedAndIsSound) {
  {
    auto store = Open();
    one_ = CommitStep(*store, 1, 100, files_);
    ASSERT_THAT(store->MarkStep(1, ToHex(one_.attempt.bytes), StepState::kDamaged, "a bad cable"), IsOk());
  }
  const auto applied = Apply();
  ASSERT_THAT(applied, IsOk());
  EXPECT_THAT(Of(applied->changes), ElementsAre("again 1"));
  EXPECT_EQ(applied->restores, 1);
  EXPECT_EQ(ValueAt(*Open(), 1, files_), 100);
}

TEST_F(RepairTest, LeavesAStepAloneThatTheDiskDoesNotGiveOut) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100, files_);
    two_ = CommitStep(*store, 2, 200, files_);
  }
  FailingFileSystem failing(files_);
  failing.SetRule([&](const FailingFileSystem::Call& call) {
    return call.operation == "OpenForRead" && call.path == ShardOf(two_) ? absl::InternalError("EIO")
                                                                         : absl::OkStatus();
  });
  const auto applied = RepairStore(failing, Options());
  ASSERT_THAT(applied, IsOk());
  EXPECT_THAT(applied->changes, IsEmpty());
  ASSERT_EQ(applied->unread.size(), 1u);
  EXPECT_EQ(applied->unread[0].step, 2);
  EXPECT_THAT(applied->unread[0].why, HasSubstr("EIO"));
  EXPECT_EQ(applied->restores, 1);
  EXPECT_EQ(ValueAt(*Open(), 2, files_), 200);
}

// It was read once, and found sound.
TEST_F(RepairTest, LeavesAStepAloneWhoseShardCannotBeOpenedASecondTime) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100, files_);
    two_ = CommitStep(*store, 2, 200, files_);
  }
  for (const absl::Status& error :
       {absl::InternalError("EIO"), absl::ResourceExhaustedError("EMFILE"), absl::PermissionDeniedError("EACCES")}) {
    FailingFileSystem failing(files_);
    size_t opened = 0;
    failing.SetRule([&](const FailingFileSystem::Call& call) {
      const bool second = call.operation == "OpenForRead" && call.path == ShardOf(two_) && ++opened == 2;
      return second ? error : absl::OkStatus();
    });
    const auto applied = RepairStore(failing, Options());
    ASSERT_THAT(applied, IsOk());
    EXPECT_GE(opened, 2u);
    EXPECT_THAT(Of(applied->changes), IsEmpty());
    ASSERT_EQ(applied->unread.size(), 1u);
    EXPECT_EQ(applied->unread[0].step, 2);
    EXPECT_THAT(applied->unread[0].why, HasSubstr(std::string(error.message())));
    EXPECT_EQ(applied->restores, 1);
    EXPECT_EQ(ValueAt(*Open(), 2, files_), 200);
  }
}

TEST_F(RepairTest, LeavesACommittedStepAloneThatHasAShardOfANewerVersionOrOfAnotherStore) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100, files_);
    two_ = CommitStep(*store, 2, 200, files_);
    CommitReferringStep(*store, 3, two_, files_);
  }
  auto newer = ReadSmallFile(files_, ShardOf(two_), 1 << 20);
  ASSERT_THAT(newer, IsOk());
  (*newer)[8] = 3;  // the version
  PutFile(files_, ShardOf(two_), *newer);
  auto applied = Apply();
  ASSERT_THAT(applied, IsOk());
  EXPECT_THAT(Of(applied->changes), IsEmpty());
  ASSERT_EQ(applied->unread.size(), 2u) << "step 3 has its chunk there";
  EXPECT_EQ(applied->unread[0].step, 2);
  EXPECT_THAT(applied->unread[0].why,
              AllOf(HasSubstr(ShardOf(two_)), HasSubstr("found 3: written by a newer version")));
  EXPECT_EQ(applied->unread[1].step, 3);
  EXPECT_THAT(applied->lost, IsEmpty());

  ShardIdentity strange = two_;
  strange.store = StoreId{{9}};
  ASSERT_THAT(files_.RemoveFile(ShardOf(two_)), IsOk());
  ASSERT_THAT(WriteShard(layout_, strange, 900, files_), IsOk());
  applied = Apply();
  ASSERT_THAT(applied, IsOk());
  EXPECT_THAT(Of(applied->changes), IsEmpty());
  ASSERT_EQ(applied->unread.size(), 2u);
  EXPECT_THAT(applied->unread[0].why, AllOf(HasSubstr(ShardOf(two_)), HasSubstr(ToHex(strange.store.bytes))));
  EXPECT_TRUE(IsThere(ShardOf(two_)));
}

TEST_F(RepairTest, FinishesTheDeletionThatADeadReaderHeldUp) {
  {
    auto store = Open();
    one_ = CommitStep(*store, 1, 100, files_);
    CommitStep(*store, 2, 200, files_);
  }
  LeaseByADeadProcess(one_);
  LetGo(one_);
  const std::vector<std::string> expected = {"remove " + LeaseFileName(one_.attempt, "validation"), "remove 1"};
  const auto plan = Plan();
  ASSERT_THAT(plan, IsOk());
  EXPECT_EQ(Of(plan->changes), expected);
  const auto applied = Apply();
  ASSERT_THAT(applied, IsOk());
  EXPECT_EQ(Of(applied->changes), expected);
  EXPECT_FALSE(IsThere(FolderOf(one_)));
  const auto again = Apply();
  ASSERT_THAT(again, IsOk());
  EXPECT_THAT(Of(again->changes), IsEmpty());
}

TEST_F(RepairTest, SaysWhatOfADeletedStepCannotBeRemoved) {
  {
    auto store = Open();
    one_ = CommitStep(*store, 1, 100, files_);
    CommitStep(*store, 2, 200, files_);
  }
  LeaseByADeadProcess(one_);
  LetGo(one_);
  FailingFileSystem failing(files_);
  failing.SetRule([&](const FailingFileSystem::Call& call) {
    return call.operation == "RemoveDirectory" && call.path == FolderOf(one_) ? absl::PermissionDeniedError("EACCES")
                                                                              : absl::OkStatus();
  });
  const auto applied = RepairStore(failing, Options());
  ASSERT_THAT(applied, IsOk());
  ASSERT_EQ(Of(applied->left_alone), std::vector<std::string>{"left 1"});
  EXPECT_THAT(applied->left_alone[0].why, HasSubstr("step 1 was deleted, but its files are still there: EACCES"));
}

TEST_F(RepairTest, RefusesAStoreThatSomebodyHolds) {
  const auto store = Open();
  CommitStep(*store, 1, 100, files_);
  for (const bool apply : {false, true}) {
    EXPECT_THAT(apply ? Apply() : Plan(),
                StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr("is open for writing"), HasSubstr("pid"))));
  }
}

TEST_F(RepairTest, RefusesAPlanOfAStoreThatWasOpenedMeanwhile) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100, files_);
  }
  PutFile(files_, layout_.lock(), "{\"pid\":1}\n");
  RepairOptions options = Options();
  options.progress = [&](const RepairProgress&) { PutFile(files_, layout_.lock(), "{\"pid\":2}\n"); };
  EXPECT_THAT(PlanRepair(files_, options),
              StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr("was opened"), HasSubstr("\"pid\":2"))));
}

TEST_F(RepairTest, ReturnsTheErrorOfALookWhetherTheStoreWasOpenedMeanwhile) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100, files_);
  }
  for (const size_t before : {0u, 1u}) {
    FailingFileSystem failing(files_);
    failing.FailOperation("ReadNote", absl::InternalError("EIO"), before);
    EXPECT_THAT(PlanRepair(failing, Options()), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  }
  ASSERT_THAT(files_.RemoveFile(layout_.lock()), IsOk());
  EXPECT_THAT(Plan(), IsOk()) << "nobody has ever had the lock";
}

TEST_F(RepairTest, MakesNoStoreWhereThereIsNone) {
  for (const bool apply : {false, true}) {
    const auto run = [&] { return apply ? Apply() : Plan(); };
    ASSERT_THAT(RemoveTree(files_, path_), IsOk());
    EXPECT_THAT(run(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
    ASSERT_THAT(files_.CreateDirectory(path_), IsOk());
    EXPECT_THAT(run(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("no store")));
    PutFile(files_, path_ + "/notes.txt", "not ours");
    EXPECT_THAT(run(), StatusIs(absl::StatusCode::kNotFound, HasSubstr("not a Tidemark store")));
    EXPECT_EQ(ReadTree(files_, path_).files.size(), 1u);
  }
}

// They were never committed here, so they are not this store's to remove.
TEST_F(RepairTest, LeavesAnAttemptOfANewerVersionOrOfAnotherStoreAlone) {
  ShardIdentity strange;
  {
    auto store = Open();
    CommitStep(*store, 1, 100, files_);
    two_ = WriteAttempt(*store, 2, 200, files_);
    strange = *store->BeginAttempt(3);
  }
  auto shard = ReadSmallFile(files_, ShardOf(two_), 1 << 20);
  ASSERT_THAT(shard, IsOk());
  (*shard)[8] = 3;  // the version
  PutFile(files_, ShardOf(two_), *shard);
  strange.store = StoreId{{9}};
  ASSERT_THAT(WriteShard(layout_, strange, 300, files_), IsOk());
  for (int time = 0; time < 2; ++time) {
    const auto applied = Apply();
    ASSERT_THAT(applied, IsOk());
    EXPECT_THAT(applied->changes, IsEmpty());
    ASSERT_THAT(applied->left_alone, testing::SizeIs(2));
    EXPECT_THAT(applied->left_alone[0].why, HasSubstr("written by a newer version"));
    EXPECT_THAT(applied->left_alone[1].why, HasSubstr(ToHex(strange.store.bytes)));
    EXPECT_TRUE(IsThere(ShardOf(two_)));
    EXPECT_TRUE(IsThere(ShardOf(strange)));
  }
}

TEST_F(RepairTest, RefusesANewerStore) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100, files_);
  }
  auto identity = ReadSmallFile(files_, layout_.identity(), 1 << 20);
  ASSERT_THAT(identity, IsOk());
  identity->replace(identity->find("\"format\":2"), 10, "\"format\":9");
  PutFile(files_, layout_.identity(), *identity);
  EXPECT_THAT(Apply(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("format 9")));
}

TEST_F(RepairTest, ReturnsTheErrorOfADiskThatTakesNothingAndPlansAllTheSame) {
  MakeAMess();
  for (const absl::Status& error : {absl::PermissionDeniedError("EROFS"), absl::ResourceExhaustedError("ENOSPC")}) {
    FailingFileSystem failing(files_);
    failing.SetRule([&](const FailingFileSystem::Call& call) {
      static const std::vector<std::string> kWriting = {"CreateDirectory", "Create",        "WriteAt",
                                                        "Rename",          "RemoveFile",    "RemoveDirectory",
                                                        "TryLock",         "OpenForRewrite"};
      return std::find(kWriting.begin(), kWriting.end(), call.operation) == kWriting.end() ? absl::OkStatus() : error;
    });
    EXPECT_THAT(RepairStore(failing, Options()), StatusIs(error.code(), HasSubstr(std::string(error.message()))));
    const auto plan = PlanRepair(failing, Options());
    ASSERT_THAT(plan, IsOk());
    EXPECT_THAT(Of(plan->changes), Contains("quarantine 2"));
  }
}

}  // namespace
}  // namespace tidemark::storage
