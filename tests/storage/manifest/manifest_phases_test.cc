// The phases of saves beside the records of steps: which batches take them along, and whose they are.

#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/write_batch.h"
#include "storage/manifest/database.h"
#include "storage/manifest/manifest.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/made_records.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// One phase of that name.
PhasesRecord MakePhases(int64_t step, uint8_t attempt, const std::string& name) {
  PhasesRecord record{.step = step, .attempt = ToHex(AttemptId{{attempt}}.bytes)};
  record.phases = {{.name = name, .lane = "trainer", .begin = {}, .duration = absl::Microseconds(3), .busy = {}}};
  return record;
}

class ManifestPhasesTest : public testing::Test {
 protected:
  // Names of the phases of an attempt.
  std::vector<std::string> Names(int64_t step, uint8_t attempt) {
    const auto phases = manifest_->Phases(step, ToHex(AttemptId{{attempt}}.bytes));
    EXPECT_THAT(phases, IsOk());
    std::vector<std::string> names;
    for (const SavePhase& phase : *phases) names.push_back(phase.name);
    return names;
  }

  void Reopen() {
    manifest_.reset();
    manifest_ = *Manifest::Open(files_, path_);
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "manifest";
  FailingFileSystem files_{PosixFileSystem()};
  std::unique_ptr<Manifest> manifest_ = *Manifest::Create(files_, path_, StoreId{{7}});
};

TEST_F(ManifestPhasesTest, AreThereWithTheCommitAndAfterIt) {
  const PhasesRecord phases = MakePhases(10, 1, "write");
  ASSERT_THAT(manifest_->Commit(MakeRecord(10, 1), &phases), IsOk());
  ASSERT_THAT(manifest_->Commit(MakeRecord(20, 2)), IsOk());
  EXPECT_THAT(Names(10, 1), ElementsAre("write"));
  EXPECT_THAT(Names(20, 2), IsEmpty());
  EXPECT_THAT(Names(30, 3), IsEmpty());
  Reopen();
  EXPECT_THAT(Names(10, 1), ElementsAre("write"));
  const auto read = *manifest_->Phases(10, phases.attempt);
  EXPECT_EQ(read[0].lane, "trainer");
  EXPECT_EQ(read[0].duration, absl::Microseconds(3));
}

TEST_F(ManifestPhasesTest, NotedOnesGoOutWithTheNextBatchAndCauseNone) {
  const PhasesRecord phases = MakePhases(10, 1, "write");
  ASSERT_THAT(manifest_->Commit(MakeRecord(10, 1), &phases), IsOk());
  files_.Reset();
  manifest_->NotePhases(MakePhases(10, 1, "commit"));
  EXPECT_THAT(files_.calls(), IsEmpty());
  EXPECT_THAT(Names(10, 1), ElementsAre("write"));
  StepRecord kept = MakeRecord(10, 1);
  kept.info.kept = "among the latest";
  ASSERT_THAT(manifest_->Update(kept), IsOk());
  EXPECT_THAT(Names(10, 1), ElementsAre("commit"));
  manifest_->NotePhases(MakePhases(10, 1, "closing"));
  ASSERT_THAT(manifest_->SetSettledMark({}), IsOk());
  Reopen();
  EXPECT_THAT(Names(10, 1), ElementsAre("closing"));
  ASSERT_THAT(manifest_->Update(kept), IsOk());
  EXPECT_THAT(Names(10, 1), ElementsAre("closing"));
}

TEST_F(ManifestPhasesTest, NotedOnesAreLostWithAWriteThatFailedAndWithTheProcess) {
  ASSERT_THAT(manifest_->Commit(MakeRecord(10, 1)), IsOk());
  manifest_->NotePhases(MakePhases(10, 1, "commit"));
  files_.SetRule([](const FailingFileSystem::Call&) { return absl::InternalError("EIO"); });
  EXPECT_THAT(manifest_->Update(MakeRecord(10, 1)), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  files_.Reset();
  ASSERT_THAT(manifest_->Update(MakeRecord(10, 1)), IsOk());
  EXPECT_THAT(Names(10, 1), IsEmpty());
  manifest_->NotePhases(MakePhases(10, 1, "commit"));
  Reopen();
  EXPECT_THAT(Names(10, 1), IsEmpty());
}

TEST_F(ManifestPhasesTest, ThatCouldNotBeReadAreLeftOut) {
  PhasesRecord unreadable = MakePhases(10, 1, "write");
  unreadable.attempt = "no id";
  EXPECT_THAT(manifest_->Commit(MakeRecord(10, 1), &unreadable), IsOk());
  EXPECT_TRUE(manifest_->Find(10)->has_value());
  EXPECT_THAT(Names(10, 1), IsEmpty());
  manifest_->NotePhases(unreadable);
  EXPECT_THAT(manifest_->SetSettledMark({}), IsOk());
  EXPECT_THAT(Names(10, 1), IsEmpty());
}

TEST_F(ManifestPhasesTest, OfAnAttemptThatWasReplacedAreNotThoseOfTheNext) {
  const PhasesRecord first = MakePhases(10, 1, "first");
  ASSERT_THAT(manifest_->Commit(MakeRecord(10, 1), &first), IsOk());
  // As a library does that knows nothing of phases.
  ASSERT_THAT(manifest_->Commit(MakeRecord(10, 2)), IsOk());
  EXPECT_THAT(Names(10, 2), IsEmpty());
  const PhasesRecord third = MakePhases(10, 3, "third");
  manifest_->NotePhases(MakePhases(10, 2, "second"));
  ASSERT_THAT(manifest_->Commit(MakeRecord(10, 3), &third), IsOk());
  EXPECT_THAT(Names(10, 3), ElementsAre("third")) << "what was noted of the attempt before must not hide them";
}

TEST_F(ManifestPhasesTest, StayWithTheRecordOfAStepThatIsDeleted) {
  const PhasesRecord phases = MakePhases(10, 1, "write");
  ASSERT_THAT(manifest_->Commit(MakeRecord(10, 1), &phases), IsOk());
  StepRecord deleted = MakeRecord(10, 1);
  MakeDeleted(deleted, "not among the latest");
  ASSERT_THAT(manifest_->Update(deleted), IsOk());
  EXPECT_THAT(Names(10, 1), ElementsAre("write"));
}

TEST_F(ManifestPhasesTest, SayWhichRecordCannotBeRead) {
  ASSERT_THAT(manifest_->Commit(MakeRecord(10, 1)), IsOk());
  manifest_.reset();
  {
    auto database = Database::Open(PosixFileSystem(), path_);
    rocksdb::WriteBatch batch;
    batch.Put(PhasesKey(10), "{}");
    ASSERT_THAT((*database)->Write(batch), IsOk());
  }
  manifest_ = *Manifest::Open(files_, path_);
  EXPECT_THAT(manifest_->Phases(10, MakeRecord(10, 1).info.attempt),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("phases/10")));
  EXPECT_THAT(manifest_->Find(10), IsOk());
}

TEST_F(ManifestPhasesTest, AreSeenByWhoFollowsTheManifest) {
  auto follower = Manifest::OpenFollowing(PosixFileSystem(), path_);
  ASSERT_THAT(follower, IsOk());
  const PhasesRecord phases = MakePhases(10, 1, "write");
  ASSERT_THAT(manifest_->Commit(MakeRecord(10, 1), &phases), IsOk());
  ASSERT_THAT((*follower)->CatchUp(), IsOk());
  const auto seen = (*follower)->Phases(10, phases.attempt);
  ASSERT_THAT(seen, IsOk());
  EXPECT_EQ(seen->size(), 1u);
}

}  // namespace
}  // namespace tidemark::storage
