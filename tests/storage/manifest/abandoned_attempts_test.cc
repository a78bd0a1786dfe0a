// What failed saves leave in steps/: it is of use until something else is acknowledged, and undoes nothing that is.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/deletion_mark.h"
#include "storage/manifest/store.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

namespace fs = std::filesystem;

bool AddRow(StepRecord& record) {
  record.info.evaluations.push_back({.evaluator = "e", .metrics = {{"loss", 0.5}}});
  return true;
}

enum class Failing { kSyncOfSteps, kManifest, kSyncOfManifest };

class AbandonedAttemptsTest : public testing::Test {
 protected:
  AbandonedAttemptsTest() { Reopen(); }

  void Reopen() {
    store_.reset();
    files_.Reset();
    store_ = OpenSoundStore(path_, &warnings_, files_);
    ASSERT_NE(store_, nullptr);
  }

  bool IsThere(const ShardIdentity& identity) { return fs::exists(layout_.attempt(identity.step, identity.attempt)); }

  StepInfo Info(int64_t step) {
    auto record = store_->manifest().Find(step);
    EXPECT_THAT(record, IsOk());
    return record.ok() && record->has_value() ? (*record)->info : StepInfo{};
  }

  std::ptrdiff_t FoldersInSteps() const {
    return std::distance(fs::directory_iterator(layout_.steps()), fs::directory_iterator());
  }

  size_t Deletions() { return store_->manifest().Deletions()->size(); }

  // From now on.
  void Fail(Failing what) {
    files_.SetRule([this, what](const FailingFileSystem::Call& call) {
      const bool of_manifest = call.path.starts_with(layout_.manifest());
      const bool writes = call.operation == "WriteAt" || call.operation == "Create";
      const bool fails = what == Failing::kSyncOfSteps
                             ? call.operation == "SyncDirectory" && call.path == layout_.steps()
                             : of_manifest && (call.operation == "SyncData" || (what == Failing::kManifest && writes));
      return fails ? absl::InternalError("EIO") : absl::OkStatus();
    });
  }

  // A whole attempt whose commit fails so; the disk works again after it.
  ShardIdentity FailToCommit(int64_t step, int64_t value, Failing what) {
    const ShardIdentity identity = WriteAttempt(*store_, step, value, files_);
    StepRecord record = ReadAttempt(files_, layout_, store_->id(), {step, identity.attempt})->record;
    record.info.created = absl::Now();
    Fail(what);
    EXPECT_THAT(store_->CommitAttempt(record), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
    files_.Reset();
    EXPECT_TRUE(IsThere(identity));
    return identity;
  }

  // That somebody has, or has left behind.
  std::string Lease(const ShardIdentity& identity) {
    fs::create_directories(layout_.leases());
    std::string path = layout_.leases() + "/" + ToHex(identity.attempt.bytes) + "-" + std::string(32, '0') + ".lease";
    std::ofstream(path) << "{}";
    return path;
  }

  // From now on.
  void RefuseToRemove(const ShardIdentity& identity) {
    files_.SetRule([folder = layout_.attempt(identity.step, identity.attempt)](const FailingFileSystem::Call& call) {
      const bool fails = call.operation == "RemoveDirectory" && call.path == folder;
      return fails || (call.path.ends_with(".tmk") && call.path.starts_with(folder + "/") &&
                       (call.operation == "RemoveFile"))
                 ? absl::InternalError("EIO")
                 : absl::OkStatus();
    });
  }

  static Store::StepNote Deletion(const ShardIdentity& identity) {
    return {.step = identity.step, .attempt = ToHex(identity.attempt.bytes), .deleted = true, .reason = "too old"};
  }

  absl::StatusOr<Store::NotedSteps> Delete(const ShardIdentity& identity) {
    return store_->NoteSteps({Deletion(identity)});
  }

  const TestDirectory directory_ = TestDirectory::InMemory();
  const std::string path_ = directory_ / "store";
  const StoreLayout layout_{path_};
  std::string warnings_;
  FailingFileSystem files_{PosixFileSystem()};
  std::unique_ptr<Store> store_;
};

class FailedCommitTest : public AbandonedAttemptsTest, public testing::WithParamInterface<Failing> {};

INSTANTIATE_TEST_SUITE_P(, FailedCommitTest, testing::Values(Failing::kSyncOfSteps, Failing::kManifest));

// Nothing else has been acknowledged, and a whole step is better than none.
TEST_P(FailedCommitTest, IsAdoptedByTheNextOpen) {
  CommitStep(*store_, 1, 100, files_);
  FailToCommit(2, 200, GetParam());
  Reopen();
  EXPECT_EQ(ValueAt(*store_, 2), 200);
}

// A trainer that went back, and on from there, would otherwise be given the branch that it left.
TEST_P(FailedCommitTest, IsDeletedOnceALaterSaveIsCommitted) {
  CommitStep(*store_, 1, 100, files_);
  const ShardIdentity failed = FailToCommit(3, 300, GetParam());
  CommitStep(*store_, 2, 200, files_);
  EXPECT_EQ(warnings_, "");
  EXPECT_EQ(Info(3).state, StepState::kFailed);
  EXPECT_THAT(Info(3).reason, HasSubstr("EIO"));
  EXPECT_FALSE(IsThere(failed));
  EXPECT_EQ(Deletions(), 0u);
  Reopen();
  EXPECT_EQ(*store_->manifest().LatestCommitted(), 2);
  EXPECT_EQ(ValueAt(*store_, 3), -1);
}

TEST_P(FailedCommitTest, DoesNotBringADeletedStepBack) {
  const ShardIdentity old = CommitStep(*store_, 1, 100, files_);
  CommitStep(*store_, 2, 200, files_);
  FailToCommit(1, 101, GetParam());
  auto noted = Delete(old);
  ASSERT_THAT(noted, IsOk());
  EXPECT_THAT(noted->deleted, SizeIs(1));
  Reopen();
  EXPECT_EQ(Info(1).state, StepState::kDeleted);
  EXPECT_EQ(Info(1).reason, "too old");
}

// By the time it fails the folder has the step's pin.
TEST_P(FailedCommitTest, DoesNotBringAPinBack) {
  CommitStep(*store_, 1, 100, files_);
  ASSERT_THAT(store_->Tag(1, "release"), IsOk());
  const ShardIdentity failed = FailToCommit(1, 101, GetParam());
  ASSERT_THAT(store_->Untag(1, "release"), IsOk());
  EXPECT_FALSE(IsThere(failed));
  ASSERT_THAT(store_->Unpin(1), IsOk());
  Reopen();
  EXPECT_EQ(ValueAt(*store_, 1), 100);
  EXPECT_FALSE(Info(1).pinned);
  EXPECT_THAT(Info(1).tags, IsEmpty());
}

// The save that is tried again, or the next one, fails before its shard is whole.
TEST_P(FailedCommitTest, StaysThoughALaterSaveCannotBeWritten) {
  CommitStep(*store_, 1, 100, files_);
  FailToCommit(2, 200, GetParam());
  for (const int64_t step : {2, 3}) {
    const ShardIdentity broken = *store_->BeginAttempt(step);
    store_->AbandonAttempt(broken, absl::Now(), absl::InternalError("the writer failed"));
    EXPECT_FALSE(IsThere(broken));
  }
  Reopen();
  EXPECT_EQ(ValueAt(*store_, 2), 200);
}

TEST_P(FailedCommitTest, DoesNotBringThePinsOldNoteBack) {
  CommitStep(*store_, 1, 100, files_);
  ASSERT_THAT(store_->Pin(1, "old"), IsOk());
  FailToCommit(1, 101, GetParam());
  ASSERT_THAT(store_->Pin(1, "new"), IsOk());
  Reopen();
  EXPECT_EQ(Info(1).pin_note, "new");
}

TEST_P(FailedCommitTest, DoesNotTakeTheRowsOfAStepThatWasOnlyEvaluated) {
  CommitStep(*store_, 1, 100, files_);
  FailToCommit(2, 200, GetParam());
  ASSERT_THAT(store_->RecordUnsaved({.step = 2, .state = StepState::kUnsaved}), IsOk());
  EXPECT_EQ(Info(2).state, StepState::kFailed) << "as where it was recorded before";
  EXPECT_THAT(Info(2).reason, HasSubstr("EIO"));
  ASSERT_THAT(store_->UpdateStep(2, "", AddRow), IsOk());
  Reopen();
  EXPECT_THAT(Info(2).evaluations, SizeIs(1));
}

TEST_P(FailedCommitTest, DoesNotTakeTheRowsOfTheStepThatItWasToReplace) {
  const ShardIdentity old = CommitStep(*store_, 1, 100, files_);
  FailToCommit(1, 101, GetParam());
  ASSERT_THAT(store_->UpdateStep(1, ToHex(old.attempt.bytes), AddRow), IsOk());
  Reopen();
  EXPECT_EQ(ValueAt(*store_, 1), 100);
  EXPECT_THAT(Info(1).evaluations, SizeIs(1));
}

// What was to replace it is all the better then.
TEST_P(FailedCommitTest, TakesThePlaceOfAStepThatIsFoundToBeDamaged) {
  const ShardIdentity old = CommitStep(*store_, 1, 100, files_);
  FailToCommit(1, 101, GetParam());
  ASSERT_THAT(store_->MarkStep(1, ToHex(old.attempt.bytes), StepState::kDamaged, "a chunk's checksum"), IsOk());
  ASSERT_THAT(store_->UpdateStep(1, ToHex(old.attempt.bytes), AddRow), IsOk()) << "which is worth less";
  Reopen();
  EXPECT_EQ(Info(1).state, StepState::kCommitted);
  EXPECT_EQ(ValueAt(*store_, 1), 101);
}

TEST_P(FailedCommitTest, StaysWhereItsStepIsPinnedAgainstDeletion) {
  const ShardIdentity first = CommitStep(*store_, 1, 100, files_);
  const ShardIdentity second = CommitStep(*store_, 2, 200, files_);
  CommitStep(*store_, 3, 300, files_);
  ASSERT_THAT(store_->Pin(1, "mine"), IsOk());
  const ShardIdentity failed = FailToCommit(1, 101, GetParam());
  auto noted = store_->NoteSteps({Deletion(first), Deletion(second)});
  ASSERT_THAT(noted, IsOk());
  EXPECT_THAT(noted->deleted, ElementsAre(2));
  EXPECT_TRUE(IsThere(failed));
}

// Else it would take the room of every save to come.
TEST_P(FailedCommitTest, IsDeletedToMakeRoom) {
  CommitStep(*store_, 1, 100, files_);
  const ShardIdentity failed = FailToCommit(2, 200, GetParam());
  store_->AbandonAttempt(*store_->BeginAttempt(3), absl::Now(), absl::ResourceExhaustedError("out of memory"));
  EXPECT_TRUE(IsThere(failed)) << "it was not the disk that had no room";
  store_->MakeRoom();
  EXPECT_FALSE(IsThere(failed));
  EXPECT_EQ(Info(2).state, StepState::kFailed);
  EXPECT_THAT(Info(2).reason, HasSubstr("EIO"));
  EXPECT_EQ(warnings_, "");
}

TEST_P(FailedCommitTest, MakesNoRoomWhereItIsCommittedAllTheSame) {
  CommitStep(*store_, 1, 100, files_);
  FailToCommit(2, 200, Failing::kSyncOfManifest);
  FailToCommit(3, 300, GetParam());
  store_->MakeRoom();
  EXPECT_EQ(ValueAt(*store_, 2), 200);
  EXPECT_EQ(Info(3).state, StepState::kFailed);
}

TEST_P(FailedCommitTest, IsDeletedWhereALaterAttemptFindsNoRoomToBegin) {
  CommitStep(*store_, 1, 100, files_);
  const ShardIdentity failed = FailToCommit(2, 200, GetParam());
  files_.SetRule([&](const FailingFileSystem::Call& call) {
    const bool begins = call.operation == "CreateDirectory" && call.path.starts_with(layout_.steps());
    const bool full = begins && IsThere(failed);
    return full ? absl::ResourceExhaustedError("ENOSPC") : absl::OkStatus();
  });
  EXPECT_THAT(store_->BeginAttempt(3), IsOk());
  EXPECT_FALSE(IsThere(failed));
  files_.FailOperation("CreateDirectory", absl::ResourceExhaustedError("ENOSPC"));
  EXPECT_THAT(store_->BeginAttempt(4), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("ENOSPC")))
      << "there is nothing left to let go of";
}

TEST_P(FailedCommitTest, DoesNotHideWhyALaterSaveAtItsStepFailed) {
  CommitStep(*store_, 1, 100, files_);
  FailToCommit(3, 300, GetParam());
  store_->AbandonAttempt(*store_->BeginAttempt(3), absl::Now(), absl::InternalError("the writer failed"));
  CommitStep(*store_, 4, 400, files_);
  EXPECT_THAT(Info(3).reason, HasSubstr("the writer failed"));
}

// Whose attempts have the numbers of those that failed before it.
TEST_P(FailedCommitTest, OfALaterProcessIsWhyItsStepFailed) {
  CommitStep(*store_, 1, 100, files_);
  for (const char* why : {"yesterday's", "yesterday's, again"}) {
    store_->AbandonAttempt(*store_->BeginAttempt(3), absl::Now(), absl::InternalError(why));
  }
  Reopen();
  store_->AbandonAttempt(*store_->BeginAttempt(3), absl::Now(), absl::InternalError("today's"));
  EXPECT_THAT(Info(3).reason, HasSubstr("today's"));
}

// The record of a failure is one that rows may be put into.
TEST_P(FailedCommitTest, DoesNotTakeTheRowsOfAStepWhoseSaveFailed) {
  CommitStep(*store_, 1, 100, files_);
  FailToCommit(2, 200, GetParam());
  store_->AbandonAttempt(*store_->BeginAttempt(2), absl::Now(), absl::InternalError("the writer failed"));
  ASSERT_THAT(store_->UpdateStep(2, "", AddRow), IsOk());
  Reopen();
  EXPECT_EQ(Info(2).state, StepState::kFailed);
  EXPECT_THAT(Info(2).evaluations, SizeIs(1));
}

// Twice at one step, as a save that is tried again; the record of the failure that there is has rows by then.
TEST_P(FailedCommitTest, IsRecordedBesideWhatIsKnown) {
  CommitStep(*store_, 1, 100, files_);
  store_->AbandonAttempt(WriteAttempt(*store_, 3, 300, files_), absl::Now(), absl::InternalError("the writer failed"));
  ASSERT_THAT(store_->UpdateStep(3, "", AddRow), IsOk());
  FailToCommit(3, 301, GetParam());
  FailToCommit(3, 302, GetParam());
  CommitStep(*store_, 4, 400, files_);
  EXPECT_EQ(Info(3).state, StepState::kFailed);
  EXPECT_THAT(Info(3).reason, HasSubstr("EIO"));
  EXPECT_THAT(Info(3).evaluations, SizeIs(1));
  EXPECT_EQ(warnings_, "");
  store_.reset();
  EXPECT_EQ(FoldersInSteps(), 2);
}

TEST_P(FailedCommitTest, IsTriedAgainWhereItCannotBeDeleted) {
  const ShardIdentity old = CommitStep(*store_, 1, 100, files_);
  CommitStep(*store_, 2, 200, files_);
  ASSERT_THAT(store_->Pin(2, "mine"), IsOk());
  const ShardIdentity failed = FailToCommit(1, 101, GetParam());
  Fail(Failing::kManifest);
  EXPECT_THAT(Delete(old), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_THAT(store_->Unpin(2), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  files_.Reset();
  EXPECT_TRUE(Info(2).pinned);
  ASSERT_THAT(Delete(old), IsOk());
  ASSERT_THAT(store_->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(failed));
  EXPECT_FALSE(IsThere(old));
}

// What was written is on disk all the same, as whoever opens the manifest anew finds out.
TEST_F(AbandonedAttemptsTest, StayWhereTheyTurnOutToBeCommitted) {
  const ShardIdentity old = CommitStep(*store_, 1, 100, files_);
  CommitStep(*store_, 2, 200, files_);
  const ShardIdentity failed = FailToCommit(1, 101, Failing::kSyncOfManifest);
  auto noted = Delete(old);
  ASSERT_THAT(noted, IsOk());
  ASSERT_EQ(Info(1).attempt, ToHex(failed.attempt.bytes)) << "the disk has the batch";
  EXPECT_THAT(noted->deleted, IsEmpty()) << "it is another attempt's";
  ASSERT_THAT(store_->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(old));
  EXPECT_EQ(ValueAt(*store_, 1), 101);
  Reopen();
  EXPECT_EQ(ValueAt(*store_, 1), 101);
}

// It was the step's until another one took its place, and somebody may have begun to read it.
TEST_F(AbandonedAttemptsTest, StayWhileTheyAreReadWhereTheyWereCommittedAndThenReplaced) {
  CommitStep(*store_, 1, 100, files_);
  const ShardIdentity failed = FailToCommit(1, 101, Failing::kSyncOfManifest);
  const std::string lease = Lease(failed);
  CommitStep(*store_, 1, 102, files_);
  EXPECT_TRUE(IsThere(failed));
  fs::remove(lease);
  ASSERT_THAT(store_->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(failed));
  EXPECT_EQ(ValueAt(*store_, 1), 102);
}

// The same twice, as where the save is tried again at once.
TEST_F(AbandonedAttemptsTest, StayWhileTheyAreReadWhereTwoOfThemWereCommitted) {
  const ShardIdentity failed = FailToCommit(1, 101, Failing::kSyncOfManifest);
  const std::string lease = Lease(failed);
  ASSERT_THAT(store_->manifest().EnsureDurable(), IsOk());
  const ShardIdentity second = FailToCommit(1, 102, Failing::kSyncOfManifest);
  CommitStep(*store_, 2, 200, files_);
  EXPECT_TRUE(IsThere(failed));
  fs::remove(lease);
  ASSERT_THAT(store_->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(failed));
  EXPECT_TRUE(IsThere(second));
  EXPECT_EQ(ValueAt(*store_, 1), 102);
}

// Somebody has made the folder one that nobody may write.
TEST_F(AbandonedAttemptsTest, AreInNobodysWayWhereTheyCanNeitherBeRemovedNorMarked) {
  const ShardIdentity old = CommitStep(*store_, 1, 100, files_);
  CommitStep(*store_, 2, 200, files_);
  const ShardIdentity failed = WriteAttempt(*store_, 1, 101, files_);
  files_.SetRule([folder = layout_.attempt(1, failed.attempt)](const FailingFileSystem::Call& call) {
    return call.path.starts_with(folder) && call.operation != "TypeOf" ? absl::PermissionDeniedError("EACCES")
                                                                       : absl::OkStatus();
  });
  store_->AbandonAttempt(failed, absl::Now(), absl::InternalError("the writer failed"));
  EXPECT_THAT(warnings_,
              HasSubstr("could not be removed, and a rebuild of the manifest may take it for the step: EACCES"));
  ASSERT_THAT(Delete(old), IsOk());
  Reopen();
  EXPECT_EQ(Info(1).state, StepState::kDeleted);
  EXPECT_FALSE(IsThere(failed));
}

// The disk takes no removal; what is left is whole, and nobody takes it for the step, manifest or no manifest.
TEST_F(AbandonedAttemptsTest, AreRemovedLaterAndNotAdoptedWhereTheyCannotBeRemovedAtOnce) {
  const ShardIdentity old = CommitStep(*store_, 1, 100, files_);
  CommitStep(*store_, 2, 200, files_);
  const ShardIdentity failed = WriteAttempt(*store_, 1, 101, files_);
  RefuseToRemove(failed);
  store_->AbandonAttempt(failed, absl::Now(), absl::InternalError("the writer failed"));
  EXPECT_THAT(warnings_, AllOf(HasSubstr("files of step 1's failed save could not be removed"), HasSubstr("EIO")));
  ASSERT_THAT(Delete(old), IsOk());
  EXPECT_THAT(store_->RemoveDeleted({}), IsOk());
  EXPECT_THAT(warnings_, HasSubstr("files are still there: EIO"));
  EXPECT_TRUE(IsThere(failed));
  EXPECT_TRUE(*HasDeletionMark(PosixFileSystem(), layout_, {1, failed.attempt}));
  Reopen();
  EXPECT_EQ(Info(1).state, StepState::kDeleted);
  EXPECT_FALSE(IsThere(failed));
}

TEST_F(AbandonedAttemptsTest, AreNoStepsOfARebuiltManifestEither) {
  CommitStep(*store_, 1, 100, files_);
  const ShardIdentity failed = WriteAttempt(*store_, 2, 200, files_);
  RefuseToRemove(failed);
  store_->AbandonAttempt(failed, absl::Now(), absl::InternalError("the writer failed"));
  store_.reset();
  fs::remove_all(layout_.manifest());
  Reopen();
  EXPECT_EQ(*store_->manifest().LatestCommitted(), 1);
}

TEST_F(AbandonedAttemptsTest, AreSyncedAwayLaterWhereThatFails) {
  const ShardIdentity old = CommitStep(*store_, 1, 100, files_);
  CommitStep(*store_, 9, 900, files_);
  const ShardIdentity failed = WriteAttempt(*store_, 2, 200, files_);
  Fail(Failing::kSyncOfSteps);
  store_->AbandonAttempt(failed, absl::Now(), absl::InternalError("the writer failed"));
  EXPECT_THAT(warnings_, HasSubstr("the failure of step 2 could not be recorded: EIO"));
  EXPECT_FALSE(IsThere(failed));
  store_->AbandonAttempt(WriteAttempt(*store_, 1, 101, files_), absl::Now(), absl::InternalError("the same"));
  EXPECT_THAT(Delete(old), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  files_.Reset();
  CommitStep(*store_, 3, 300, files_);
  EXPECT_EQ(Info(2).state, StepState::kFailed);
  EXPECT_THAT(Info(2).reason, HasSubstr("the writer failed"));
}

}  // namespace
}  // namespace tidemark::storage
