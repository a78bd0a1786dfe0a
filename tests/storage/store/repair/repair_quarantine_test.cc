// What a repair does with damaged steps, and what becomes of them in quarantine.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/repair/repair.h"
#include "tests/storage/store/repair/repair_testing.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RepairQuarantineTest : public RepairTest {};

TEST_F(RepairQuarantineTest, TakesASoundCopyBackThatWasPutInThePlaceOfADamagedOne) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100, files_);
    two_ = CommitStep(*store, 2, 200, files_);
  }
  const auto good = ReadSmallFile(files_, ShardOf(two_), 1 << 20);
  ASSERT_THAT(good, IsOk());
  Flip(two_, kInChunk);
  ASSERT_THAT(Apply(), IsOk());
  EXPECT_EQ(ValueAt(*Open(), 2, files_), -1);
  ASSERT_THAT(files_.CreateDirectory(FolderOf(two_)), IsOk());
  PutFile(files_, ShardOf(two_), *good);
  const auto applied = Apply();
  ASSERT_THAT(applied, IsOk());
  EXPECT_THAT(Of(applied->changes), ElementsAre("again 2"));
  EXPECT_THAT(applied->lost, IsEmpty());
  EXPECT_EQ(ValueAt(*Open(), 2, files_), 200);
}

// Step 1 was deleted, and its files stay for the sake of step 2.
TEST_F(RepairQuarantineTest, KeepsFilesOfADeletedStepForAQuarantinedOneThatRefersToThem) {
  {
    auto store = Open();
    one_ = CommitStep(*store, 1, 100, files_);
    two_ = CommitReferringStep(*store, 2, one_, files_);
    CommitStep(*store, 3, 300, files_);
    const std::string attempt = ToHex(one_.attempt.bytes);
    ASSERT_THAT(store->NoteSteps({{.step = 1, .attempt = attempt, .deleted = true, .reason = "old"}}), IsOk());
    ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  }
  const auto good = ReadSmallFile(files_, ShardOf(two_), 1 << 20);
  ASSERT_THAT(good, IsOk());
  Flip(two_, kInHeader);
  auto applied = Apply();
  ASSERT_THAT(applied, IsOk());
  EXPECT_THAT(Of(applied->changes), ElementsAre("quarantine 2"));
  applied = Apply();
  ASSERT_THAT(applied, IsOk());
  EXPECT_THAT(Of(applied->changes), IsEmpty());
  EXPECT_TRUE(IsThere(ShardOf(one_)));
  // A sound copy has all that it refers to.
  ASSERT_THAT(files_.CreateDirectory(FolderOf(two_)), IsOk());
  PutFile(files_, ShardOf(two_), *good);
  applied = Apply();
  ASSERT_THAT(applied, IsOk());
  EXPECT_THAT(Of(applied->changes), ElementsAre("again 2"));
  EXPECT_EQ(ValueAt(*Open(), 2, files_), 100);
}

TEST_F(RepairQuarantineTest, SaysEachTimeThatAQuarantinedStepIsLost) {
  {
    auto store = Open();
    one_ = CommitStep(*store, 1, 100, files_);
    two_ = CommitStep(*store, 2, 200, files_);
  }
  Flip(one_, kInChunk);
  Flip(two_, kInIndex);
  for (int time = 0; time < 3; ++time) {
    SCOPED_TRACE(testing::Message() << "time " << time);
    const auto applied = Apply();
    ASSERT_THAT(applied, IsOk());
    EXPECT_EQ(applied->changes.size(), time == 0 ? 2u : 0u);
    ASSERT_EQ(applied->lost.size(), 2u);
    EXPECT_EQ(applied->lost[0].step, 1);
    EXPECT_THAT(applied->lost[0].why, AllOf(HasSubstr("moved to quarantine"), HasSubstr("chunk 0")));
    EXPECT_EQ(applied->lost[1].step, 2);
    EXPECT_THAT(applied->lost[1].why, AllOf(HasSubstr("moved to quarantine"), HasSubstr("index")));
    EXPECT_EQ(applied->restores, std::nullopt);
    EXPECT_EQ((*Open()->catalog().Find(2))->info.state, StepState::kLost);
  }
}

// Whatever is wrong with it, it is not removed: it may be all there is of the step.
TEST_F(RepairQuarantineTest, MovesADamagedCopyToQuarantineAgainThatWasPutBack) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100, files_);
    two_ = CommitStep(*store, 2, 200, files_);
  }
  const std::string quarantined = layout_.quarantine() + "/" + StepFolderName(2, two_.attempt);
  const auto good = ReadSmallFile(files_, ShardOf(two_), 1 << 20);
  ASSERT_THAT(good, IsOk());
  Flip(two_, kInHeader);
  ASSERT_THAT(Apply(), IsOk());
  for (const size_t place : {kInHeader, kInChunk, kInIndex, good->size() - 1}) {
    SCOPED_TRACE(testing::Message() << "byte " << place);
    ASSERT_TRUE(IsThere(quarantined));
    ASSERT_THAT(files_.Rename(quarantined, FolderOf(two_)), IsOk());
    PutFile(files_, ShardOf(two_), *good);
    Flip(two_, place);
    Open();
    EXPECT_TRUE(IsThere(ShardOf(two_))) << "nor by a trainer";
    const auto applied = Apply();
    ASSERT_THAT(applied, IsOk());
    EXPECT_THAT(Of(applied->changes), Contains("quarantine 2"));
    ASSERT_EQ(applied->lost.size(), 1u);
    EXPECT_EQ(applied->restores, 1);
    EXPECT_TRUE(IsThere(quarantined + "/" + ShardFileName(0, 1)));
  }
}

// Its own files are sound, and what it refers to may come back.
TEST_F(RepairQuarantineTest, LeavesALostStepThatRefersToWhatIsGone) {
  {
    auto store = Open();
    one_ = CommitStep(*store, 1, 100, files_);
    two_ = CommitReferringStep(*store, 2, one_, files_);
    CommitStep(*store, 3, 300, files_);
  }
  const std::string aside = path_ + "-aside";
  ASSERT_THAT(files_.Rename(FolderOf(one_), aside), IsOk());
  for (int time = 0; time < 2; ++time) {
    ASSERT_THAT(Apply(), IsOk());
    EXPECT_EQ((*Open()->catalog().Find(2))->info.state, StepState::kLost);
    EXPECT_TRUE(IsThere(ShardOf(two_)));
  }
  ASSERT_THAT(files_.Rename(aside, FolderOf(one_)), IsOk());
  const auto applied = Apply();
  ASSERT_THAT(applied, IsOk());
  EXPECT_THAT(Of(applied->changes), ElementsAre("again 1", "again 2"));
  EXPECT_EQ(ValueAt(*Open(), 2, files_), 100);
}

TEST_F(RepairQuarantineTest, RecordsADamagedStepAsLostThatSomebodyHasMoved) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100, files_);
    two_ = CommitStep(*store, 2, 200, files_);
    ASSERT_THAT(store->MarkStep(2, ToHex(two_.attempt.bytes), StepState::kDamaged, "chunk 7 is wrong"), IsOk());
  }
  ASSERT_THAT(RemoveTree(files_, FolderOf(two_)), IsOk());
  const auto applied = Apply();
  ASSERT_THAT(applied, IsOk());
  EXPECT_THAT(Of(applied->changes), ElementsAre("lost 2"));
  ASSERT_EQ(applied->lost.size(), 1u);
  EXPECT_THAT(applied->lost[0].why, AllOf(HasSubstr("not in " + layout_.steps()), HasSubstr("chunk 7 is wrong")));
  EXPECT_EQ((*Open()->catalog().Find(2))->info.state, StepState::kLost);
}

// A byte between chunks, or behind the index. No restore reads it.
TEST_F(RepairQuarantineTest, LeavesAStepInServiceWhereAByteIsWrongThatBelongsToNothing) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100, files_);
    two_ = CommitStep(*store, 2, 200, files_);
  }
  const auto good = ReadSmallFile(files_, ShardOf(two_), 1 << 20);
  ASSERT_THAT(good, IsOk());
  ASSERT_EQ(good->size(), 4u * 4096);
  for (const size_t place : {size_t{8191}, size_t{3 * 4096 - 1}}) {
    SCOPED_TRACE(testing::Message() << "byte " << place);
    PutFile(files_, ShardOf(two_), *good);
    Flip(two_, place);
    ASSERT_EQ(ValueAt(*Open(), 2, files_), 200);
    const auto applied = Apply();
    ASSERT_THAT(applied, IsOk());
    EXPECT_THAT(Of(applied->changes), IsEmpty());
    EXPECT_THAT(applied->lost, IsEmpty());
    ASSERT_EQ(applied->left_alone.size(), 1u);
    EXPECT_EQ(applied->left_alone[0].path, ShardOf(two_));
    EXPECT_THAT(applied->left_alone[0].why,
                AllOf(HasSubstr(std::to_string(place)), HasSubstr("padding byte"), HasSubstr("the step restores")));
    EXPECT_EQ(applied->restores, 2);
    EXPECT_EQ(ValueAt(*Open(), 2, files_), 200);
  }
  // Beside wrong bytes of an entry it is damage like others.
  Flip(two_, kInChunk);
  const auto applied = Apply();
  ASSERT_THAT(applied, IsOk());
  EXPECT_THAT(Of(applied->changes), ElementsAre("quarantine 2"));
  EXPECT_EQ(applied->restores, 1);
}

}  // namespace
}  // namespace tidemark::storage
