// What opening a store makes of steps that are gone, doubled, old or somebody else's: the right answer, said.

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/rotting_store.h"

namespace tidemark {
namespace {

using storage::IsOk;
using testing::HasSubstr;

// What opening makes of names that do not belong where they are.
class StrangeFilesTest : public RottingStoreTest {
 protected:
  void ExpectLatestAfterOpening(int64_t expected) {
    std::string warnings;
    RotTrainer trainer;
    auto opened = OpenOn(files_, &warnings);
    ASSERT_THAT(opened, IsOk());
    const auto report = (*opened)->RestoreLatest(trainer.state);
    ASSERT_THAT(report, IsOk());
    EXPECT_EQ(report->step, expected);
    EXPECT_TRUE(trainer.IsAt(report->step)) << "WRONG BYTES were restored";
    // The next save works.
    trainer.SetTo(100);
    ASSERT_THAT((*opened)->Save(100, trainer.state, {.overwrite = true})->committed().Wait(), IsOk());
    ASSERT_THAT((*opened)->Close(), IsOk());
    warnings_ = warnings;
  }
  std::string FolderOf(int64_t number) const {
    return StorePath() + "/steps/" + storage::StepFolderName(number, step(number).identity.attempt);
  }
  void CopyStep(int64_t from, const std::string& folder) {
    ASSERT_THAT(files_.CreateDirectory(folder), IsOk());
    storage::PutFile(files_, folder + "/shard-00000-of-00001.tmk", BytesOf(from));
  }
  std::string warnings_;
};

TEST_F(StrangeFilesTest, AFolderThatIsGoneIsALostStepAndSaid) {
  ASSERT_THAT(storage::RemoveTree(files_, FolderOf(30)), IsOk());
  ExpectLatestAfterOpening(20);
  EXPECT_THAT(warnings_, HasSubstr("step 30 is lost"));
}

TEST_F(StrangeFilesTest, ACopyOfAStepUnderAnotherNumberIsNoStep) {
  CopyStep(30, StorePath() + "/steps/" + storage::StepFolderName(40, step(30).identity.attempt));
  ExpectLatestAfterOpening(30);
}

TEST_F(StrangeFilesTest, ACopyOfAStepUnderAnotherAttemptIsNoStep) {
  CopyStep(30, StorePath() + "/steps/" + storage::StepFolderName(40, storage::AttemptId{{7}}));
  CopyStep(20, StorePath() + "/steps/" + storage::StepFolderName(20, storage::AttemptId{{8}}));
  ExpectLatestAfterOpening(30);
}

TEST_F(StrangeFilesTest, AnEarlierAttemptThatIsPutBackDoesNotReplaceTheLaterOne) {
  const auto header = storage::DecodeShardHeader(std::as_bytes(std::span(*stale_)).first(4096));
  ASSERT_THAT(header, IsOk());
  const std::string folder = StorePath() + "/steps/" + storage::StepFolderName(30, header->identity.attempt);
  ASSERT_THAT(files_.CreateDirectory(folder), IsOk());
  storage::PutFile(files_, folder + "/shard-00000-of-00001.tmk", *stale_);
  ExpectLatestAfterOpening(30);
}

TEST_F(StrangeFilesTest, FilesOfOthersAreLeftWhereTheyAre) {
  for (const std::string& path : {StorePath() + "/notes.txt", StorePath() + "/steps/notes.txt",
                                  FolderOf(30) + "/core.4711", FolderOf(30) + "/shard-00000-of-00002.tmk"}) {
    storage::PutFile(files_, path, "somebody's");
  }
  ASSERT_THAT(files_.CreateDirectory(StorePath() + "/steps/0000000030"), IsOk());
  ExpectLatestAfterOpening(30);
  EXPECT_THAT(warnings_, HasSubstr("notes.txt is not an attempt"));
  for (const std::string& path :
       {StorePath() + "/notes.txt", StorePath() + "/steps/notes.txt", FolderOf(30) + "/core.4711"}) {
    EXPECT_THAT(storage::ReadSmallFile(files_, path, 100), IsOk());
  }
}

}  // namespace
}  // namespace tidemark
