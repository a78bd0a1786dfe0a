// What becomes of attempts that refer to the files of others, and of those that are referred to.

#include "storage/manifest/reconciliation.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/lease.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

namespace fs = std::filesystem;

class ReconciliationTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open() { return OpenSoundStore(path_, &warnings_); }

  std::string Folder(const ShardIdentity& identity) { return layout_.attempt(identity.step, identity.attempt); }
  std::string Name(const ShardIdentity& identity) { return StepFolderName(identity.step, identity.attempt); }
  std::string Shard(const ShardIdentity& identity) { return layout_.shard(identity.step, identity.attempt, 0, 1); }
  bool IsThere(const ShardIdentity& identity) { return fs::exists(Folder(identity)); }
  static void LetGo(Store& store, const std::vector<ShardIdentity>& steps) {
    std::vector<Store::StepNote> notes;
    for (const ShardIdentity& going : steps) {
      notes.push_back(
          {.step = going.step, .attempt = ToHex(going.attempt.bytes), .deleted = true, .reason = "too old"});
    }
    ASSERT_THAT(store.NoteSteps(notes), IsOk());
  }
  static StepState StateOf(const Store& store, int64_t step) { return (*store.manifest().Find(step))->info.state; }

  TestDirectory directory_;
  const std::string path_ = directory_ / "store";
  const std::string aside_ = directory_ / "aside";
  const StoreLayout layout_{path_};
  std::string warnings_;
};

TEST_F(ReconciliationTest, KeepsAReplacedAttemptUntilItsLastReferrerIsReplaced) {
  auto store = Open();
  const ShardIdentity base = CommitStep(*store, 1, 100);
  const ShardIdentity second = CommitReferringStep(*store, 2, base);
  CommitReferringStep(*store, 3, base);
  CommitStep(*store, 1, 101);
  EXPECT_TRUE(IsThere(base));
  CommitStep(*store, 2, 200);
  EXPECT_TRUE(IsThere(base));
  EXPECT_FALSE(IsThere(second)) << "nobody refers to the one that refers";
  EXPECT_EQ(ValueAt(*store, 3), 100);
  store.reset();
  store = Open();
  EXPECT_TRUE(IsThere(base));
  CommitStep(*store, 3, 300);
  EXPECT_FALSE(IsThere(base)) << "at once";
  EXPECT_TRUE(store->manifest().Deletions()->empty());
  EXPECT_EQ(ValueAt(*store, 1), 101);
}

TEST_F(ReconciliationTest, KeepsAnAttemptThatTheNewOneOfItsOwnStepRefersTo) {
  ShardIdentity base;
  {
    auto store = Open();
    base = CommitStep(*store, 1, 100);
    CommitReferringStep(*store, 1, base);
    EXPECT_EQ(ValueAt(*store, 1), 100);
    CommitReferringStep(*store, 1, base);
    EXPECT_TRUE(IsThere(base));
  }
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 1), 100);
  CommitStep(*store, 1, 101);
  EXPECT_FALSE(IsThere(base));
}

TEST_F(ReconciliationTest, RemovesOnTheNextOpenWhatItCouldNotRemoveAtOnce) {
  FailingFileSystem files(PosixFileSystem());
  ShardIdentity base;
  {
    auto store = OpenStore(path_, &warnings_, files);
    ASSERT_THAT(store, IsOk());
    base = CommitStep(**store, 1, 100);
    CommitReferringStep(**store, 1, base);
    files.FailOperation("RemoveDirectory", absl::InternalError("EIO"));
    CommitStep(**store, 1, 101);
    EXPECT_THAT(warnings_, HasSubstr("old files are still there"));
  }
  auto store = Open();
  EXPECT_FALSE(IsThere(base));
  EXPECT_TRUE(store->manifest().Deletions()->empty());
}

// A crash that takes the manifest as well makes a step of each attempt that came back.
TEST_F(ReconciliationTest, RemovesDurablyWhatRefersToAnAttemptBeforeTheAttempt) {
  FailingFileSystem files(PosixFileSystem());
  const auto opened = OpenStore(path_, &warnings_, files);
  ASSERT_THAT(opened, IsOk());
  Store& store = **opened;
  const ShardIdentity base = CommitStep(store, 1, 100);
  const ShardIdentity user = CommitReferringStep(store, 2, base);
  CommitStep(store, 3, 300);  // the latest stays
  LetGo(store, {base, user});
  const size_t before = files.calls().size();
  ASSERT_THAT(store.RemoveDeleted({}), IsOk());
  const std::vector<FailingFileSystem::Call> calls = files.calls();
  std::vector<std::string> changes;
  for (auto call = calls.begin() + static_cast<ptrdiff_t>(before); call != calls.end(); ++call) {
    if (call->operation != "RemoveDirectory" && call->operation != "SyncDirectory") continue;
    if (call->operation == "SyncDirectory" && call->path != layout_.steps()) continue;
    changes.push_back(call->operation + " " + call->path);
  }
  const std::string sync = "SyncDirectory " + layout_.steps();
  EXPECT_THAT(changes, ElementsAre("RemoveDirectory " + Folder(user), sync, "RemoveDirectory " + Folder(base), sync));
}

TEST_F(ReconciliationTest, RemovesNothingThatAnAttemptRefersToWhoseRemovalFailed) {
  FailingFileSystem files(PosixFileSystem());
  const auto opened = OpenStore(path_, &warnings_, files);
  ASSERT_THAT(opened, IsOk());
  Store& store = **opened;
  const ShardIdentity base = CommitStep(store, 1, 100);
  const ShardIdentity between = CommitReferringStep(store, 2, base);
  const ShardIdentity user = CommitReferringStep(store, 3, between);
  CommitStep(store, 4, 400);
  LetGo(store, {base, between, user});
  files.SetRule([&](const FailingFileSystem::Call& call) {
    const bool fails = (call.operation == "RemoveFile" && call.path == Shard(user)) ||
                       (call.operation == "Rename" && call.path == layout_.retired());
    return fails ? absl::InternalError("EIO") : absl::OkStatus();
  });
  ASSERT_THAT(store.RemoveDeleted({}), IsOk());
  EXPECT_THAT(warnings_, HasSubstr("step 3 was deleted, but its files are still there: EIO"));
  EXPECT_TRUE(IsThere(base));
  EXPECT_TRUE(IsThere(between));
  EXPECT_TRUE(fs::exists(Shard(user)));
  EXPECT_TRUE(fs::exists(Folder(user) + "/deleted.json")) << "for a rebuild";
  files.Reset();
  ASSERT_THAT(store.RemoveDeleted({}), IsOk());
  for (const ShardIdentity& gone : {base, between, user}) EXPECT_FALSE(IsThere(gone));
  EXPECT_TRUE(store.manifest().Deletions()->empty());
}

TEST_F(ReconciliationTest, AdoptsAnAttemptThatRefersToAReplacedOneAndKeepsThat) {
  ShardIdentity base, adopted;
  {
    auto store = Open();
    base = CommitStep(*store, 1, 100);
    CommitReferringStep(*store, 1, base);
    adopted = WriteReferringAttempt(*store, 2, base);
  }
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 2), 100);
  CommitStep(*store, 1, 101);
  EXPECT_TRUE(IsThere(base));
  EXPECT_EQ(ValueAt(*store, 2), 100);
  CommitStep(*store, 2, 200);
  EXPECT_FALSE(IsThere(base));
  EXPECT_FALSE(IsThere(adopted));
}

TEST_F(ReconciliationTest, RemovesNothingThatAnAttemptYetToBeAdoptedRefersTo) {
  ShardIdentity base;
  {
    auto store = Open();
    base = CommitStep(*store, 1, 100);
    WriteAttempt(*store, 1, 101);            // would replace the base
    WriteReferringAttempt(*store, 2, base);  // refers to it
  }
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 1), 101);
  EXPECT_EQ(ValueAt(*store, 2), 100);
  EXPECT_TRUE(IsThere(base));
}

TEST_F(ReconciliationTest, KeepsInARebuildWhatIsReferredTo) {
  ShardIdentity base, user;
  {
    auto store = Open();
    base = CommitStep(*store, 1, 100);
    user = CommitReferringStep(*store, 2, base);
    CommitStep(*store, 1, 101);
  }
  fs::remove_all(layout_.manifest());
  auto store = Open();
  EXPECT_THAT(warnings_, HasSubstr("was rebuilt"));
  EXPECT_EQ(ValueAt(*store, 1), 101);
  EXPECT_EQ(ValueAt(*store, 2), 100);
  EXPECT_TRUE(IsThere(base));
  CommitStep(*store, 2, 200);
  EXPECT_FALSE(IsThere(base));
  EXPECT_FALSE(IsThere(user));
}

TEST_F(ReconciliationTest, NeverQuarantinesWhatIsReferredTo) {
  ShardIdentity base;
  {
    auto store = Open();
    base = CommitStep(*store, 1, 100);
    CommitReferringStep(*store, 2, base);
  }
  // The base's footer is gone, its chunk is not.
  fs::resize_file(Shard(base), fs::file_size(Shard(base)) - 4096);
  fs::remove_all(layout_.manifest());
  for (int i = 0; i < 2; ++i) {
    auto store = Open();
    EXPECT_THAT(warnings_, HasSubstr("left in place: " + Name(base)));
    EXPECT_TRUE(IsThere(base));
    EXPECT_FALSE(store->manifest().Find(1)->has_value());
  }
  CommitStep(*Open(), 2, 200);
  Open();
  EXPECT_FALSE(IsThere(base)) << "nobody refers to it any more";
}

TEST_F(ReconciliationTest, MarksAStepLostWhoseReferencedFolderIsGoneAndTakesItBack) {
  ShardIdentity base;
  {
    auto store = Open();
    base = CommitStep(*store, 1, 100);
    CommitReferringStep(*store, 2, base);
    CommitStep(*store, 3, 300);
  }
  fs::rename(Folder(base), aside_);
  {
    auto store = Open();
    EXPECT_EQ(StateOf(*store, 2), StepState::kLost);
    EXPECT_THAT((*store->manifest().Find(2))->info.reason,
                HasSubstr(Name(base) + ", which holds some of its chunks, is gone"));
    EXPECT_THAT(warnings_, AllOf(HasSubstr("step 1 is lost"), HasSubstr("step 2 is lost"), HasSubstr(Name(base))));
    EXPECT_EQ(StateOf(*store, 3), StepState::kCommitted);
    EXPECT_EQ((*store->manifest().FindBest("loss", BestMode::kLowest))->info.step, 3);
  }
  Open();
  EXPECT_EQ(warnings_, "") << "said once";
  fs::rename(aside_, Folder(base));
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 1), 100);
  EXPECT_EQ(ValueAt(*store, 2), 100);
}

TEST_F(ReconciliationTest, DoesNotTakeAStepBackWhileAReferencedFileIsMissing) {
  ShardIdentity base, user;
  {
    auto store = Open();
    base = CommitStep(*store, 1, 100);
    user = CommitReferringStep(*store, 2, base);
    fs::rename(Shard(base), aside_);
    ASSERT_THAT(store->MarkStep(2, ToHex(user.attempt.bytes), StepState::kLost, "a file is gone"), IsOk());
  }
  EXPECT_EQ(StateOf(*Open(), 2), StepState::kLost);
  // Nothing that shows on steps/ happens when it returns.
  fs::rename(aside_, Shard(base));
  EXPECT_EQ(ValueAt(*Open(), 2), 100);
}

// Its index is sound, and so is that of another shard of the same attempt.
TEST_F(ReconciliationTest, DoesNotTakeAStepBackWhoseBytesAreNotThoseThatWereLost) {
  ShardIdentity lost;
  {
    auto store = Open();
    lost = CommitStep(*store, 1, 100);
    CommitStep(*store, 2, 200);
  }
  fs::rename(Folder(lost), aside_);
  EXPECT_EQ(StateOf(*Open(), 1), StepState::kLost);
  fs::rename(aside_, Folder(lost));
  fs::rename(Shard(lost), aside_);
  fs::copy(aside_, Shard(lost));
  {
    std::fstream shard(Shard(lost), std::ios::in | std::ios::out | std::ios::binary);
    shard.seekp(4096);  // its first chunk
    shard << "rotten";
  }
  EXPECT_EQ(StateOf(*Open(), 1), StepState::kLost);
  EXPECT_THAT(warnings_, AllOf(HasSubstr("step 1 stays lost, although its files are back"), HasSubstr("chunk")));
  fs::remove(Shard(lost));
  ASSERT_THAT(WriteShard(layout_, lost, 101), IsOk());
  EXPECT_EQ(StateOf(*Open(), 1), StepState::kLost);
  EXPECT_THAT(warnings_, HasSubstr("its shards differ from those that were recorded"));
  fs::rename(aside_, Shard(lost));
  EXPECT_EQ(ValueAt(*Open(), 1), 100);
}

TEST_F(ReconciliationTest, DiscardsAnAttemptWhoseReferencedFileIsMissing) {
  ShardIdentity user;
  {
    auto store = Open();
    const ShardIdentity base = CommitStep(*store, 1, 100);
    user = WriteReferringAttempt(*store, 2, base);
    fs::remove_all(Folder(base));
  }
  auto store = Open();
  EXPECT_FALSE(IsThere(user));
  EXPECT_FALSE(store->manifest().Find(2)->has_value());
  EXPECT_EQ(StateOf(*store, 1), StepState::kLost);
}

Store::StepNote Deletion(const ShardIdentity& identity) {
  return {.step = identity.step, .attempt = ToHex(identity.attempt.bytes), .deleted = true, .reason = "too old"};
}

// A store whose step 1 is deleted, but a copy of whose folder is at `aside`.
class DeletedStepTest : public ReconciliationTest {
 protected:
  void SetUp() override {
    auto store = Open();
    older_ = WriteAttempt(*store, 1, 99);
    deleted_ = CommitStep(*store, 1, 100);
    CommitStep(*store, 2, 200);
    fs::rename(Folder(older_), aside_ + ".older");
    ASSERT_THAT(store->UpdateStep(1, ToHex(deleted_.attempt.bytes),
                                  [](StepRecord& record) {
                                    record.info.evaluations = {{.evaluator = "validation", .metrics = {{"loss", 7}}}};
                                    record.info.metrics["validation/loss"] = 7;
                                    return true;
                                  }),
                IsOk());
    fs::copy(Folder(deleted_), aside_, fs::copy_options::recursive);
    ASSERT_THAT(store->NoteSteps({Deletion(deleted_)}), IsOk());
    ASSERT_THAT(store->RemoveDeleted({}), IsOk());
    ASSERT_FALSE(IsThere(deleted_));
  }

  ShardIdentity older_, deleted_;
};

TEST_F(DeletedStepTest, IsNotLost) {
  auto store = Open();
  EXPECT_EQ(StateOf(*store, 1), StepState::kDeleted);
  EXPECT_EQ(warnings_, "");
}

TEST_F(DeletedStepTest, IsTakenInAnewWithItsHistoryWhereItIsPutBack) {
  fs::rename(aside_, Folder(deleted_));
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 1), 100);
  const StepInfo info = (*store->manifest().Find(1))->info;
  EXPECT_EQ(info.reason, "");
  EXPECT_EQ(info.metrics.at("validation/loss"), 7);
  EXPECT_EQ(info.evaluations.size(), 1u);
  EXPECT_EQ((*store->manifest().FindBest("validation/loss", BestMode::kLowest))->info.step, 1);
}

TEST_F(DeletedStepTest, MovesToQuarantineWhereWhatIsPutBackIsNotWhole) {
  const auto size = static_cast<std::streamoff>(fs::file_size(aside_ + "/" + ShardFileName(0, 1)));
  const std::vector<std::pair<const char*, std::streamoff>> places = {
      {"header", 0}, {"chunk", 4096}, {"index", 8192 + 64}, {"footer", size - 1}};
  const std::string quarantined = layout_.quarantine() + "/" + Name(deleted_);
  for (const auto& [place, offset] : places) {
    SCOPED_TRACE(place);
    fs::copy(aside_, Folder(deleted_), fs::copy_options::recursive);
    std::fstream shard(Shard(deleted_), std::ios::in | std::ios::out | std::ios::binary);
    shard.seekp(offset);
    shard.put('\xff');
    shard.close();
    EXPECT_EQ(StateOf(*Open(), 1), StepState::kDeleted);
    EXPECT_THAT(warnings_, HasSubstr(Name(deleted_) + " was deleted and is moved to quarantine: "));
    EXPECT_FALSE(IsThere(deleted_));
    EXPECT_TRUE(fs::exists(quarantined + "/" + ShardFileName(0, 1)));
    fs::remove_all(quarantined);
  }
}

// Its mark in the manifest tells what retention removes from what somebody has put back.
TEST_F(DeletedStepTest, IsRemovedWhereRetentionWasCutShort) {
  ShardIdentity second;
  {
    auto store = Open();
    second = CommitStep(*store, 3, 300);
    CommitStep(*store, 4, 400);
    ASSERT_THAT(store->NoteSteps({Deletion(second)}), IsOk());
    ASSERT_THAT(store->BeginAttempt(5), IsOk());  // left open, so that the next Open looks at everything
  }
  fs::resize_file(Shard(second), 0);
  auto store = Open();
  EXPECT_EQ(StateOf(*store, 3), StepState::kDeleted);
  EXPECT_FALSE(IsThere(second));
  EXPECT_FALSE(fs::exists(layout_.quarantine()));
}

TEST_F(DeletedStepTest, GivesWayToNoEarlierAttempt) {
  fs::rename(aside_ + ".older", Folder(older_));
  EXPECT_EQ(StateOf(*Open(), 1), StepState::kDeleted);
  EXPECT_THAT(warnings_, HasSubstr("a later attempt at the step was deleted"));
  EXPECT_FALSE(IsThere(older_));
}

TEST_F(DeletedStepTest, GivesWayToALaterAttempt) {
  { WriteAttempt(*Open(), 1, 101); }
  EXPECT_EQ(ValueAt(*Open(), 1), 101);
}

TEST_F(ReconciliationTest, LeavesAloneWhatIsLeftOfADeletedStepThatOthersReferTo) {
  {
    auto store = Open();
    const ShardIdentity base = CommitStep(*store, 1, 100);
    CommitReferringStep(*store, 2, base);
    ASSERT_THAT(store->NoteSteps({Deletion(base)}), IsOk());
    ASSERT_THAT(store->BeginAttempt(3), IsOk());  // left open, so that the next Open looks at everything
  }
  auto store = Open();
  EXPECT_EQ(StateOf(*store, 1), StepState::kDeleted);
  EXPECT_EQ(ValueAt(*store, 2), 100);
}

TEST_F(ReconciliationTest, HasNothingToSayOfStepsThatWereNeverSaved) {
  {
    auto store = Open();
    ASSERT_THAT(store->RecordUnsaved({.step = 5, .state = StepState::kUnsaved}), IsOk());
    auto identity = store->BeginAttempt(6);
    ASSERT_THAT(identity, IsOk());
    store->AbandonAttempt(*identity, absl::UnixEpoch(), absl::InternalError("EIO"));
    WriteAttempt(*store, 5, 500);  // left open
  }
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 5), 500);
  EXPECT_EQ(StateOf(*store, 6), StepState::kFailed);
  EXPECT_EQ(warnings_, "");
}

// A leased step is marked while the files of what it refers to are about to go, which was marked before.
TEST(FinishDeletions, KeepsWhatALeasedStepRefersToThatIsMarkedMeanwhile) {
  TestDirectory directory;
  const StoreLayout layout(directory.path());
  const AttemptId base{{1}};
  const AttemptId user{{2}};
  auto created = Manifest::Create(PosixFileSystem(), layout.manifest(), StoreId{{7}});
  ASSERT_THAT(created, IsOk());
  Manifest& manifest = **created;
  for (const auto& [step, attempt] : {std::pair(1, base), std::pair(2, user), std::pair(3, AttemptId{{3}})}) {
    fs::create_directories(layout.attempt(step, attempt));
    StepRecord record;
    record.info.step = step;
    record.info.attempt = ToHex(attempt.bytes);
    if (attempt == user) record.references = {{.step = 1, .attempt = base}};
    ASSERT_THAT(manifest.Commit(record), IsOk());
  }
  const auto mark = [&](int64_t step) {
    StepRecord record = **manifest.Find(step);
    const DeletionRecord deletion = *DeletionOf(record);
    record.info.state = StepState::kDeleted;
    record.references.clear();
    EXPECT_THAT(manifest.Update({&record, 1}, {&deletion, 1}), IsOk());
  };
  mark(1);
  mark(3);  // its files may go, so that somebody asks for leases
  fs::create_directories(layout.leases());
  const std::string lease = layout.leases() + "/" + LeaseFileName(user, "validation");
  std::ofstream(lease) << "{}";
  std::string warnings;
  const auto finish = [&](FileSystem& files) {
    return FinishDeletions(files, layout, manifest, {}, Store::kAll, [&](std::string_view line) { warnings += line; });
  };
  FailingFileSystem files(PosixFileSystem());
  bool marked = false;
  files.SetRule([&](const FailingFileSystem::Call& call) {
    if (call.path == layout.leases() && !std::exchange(marked, true)) mark(2);
    return absl::OkStatus();
  });
  ASSERT_THAT(finish(files), IsOk());
  EXPECT_TRUE(marked);
  ASSERT_THAT(finish(PosixFileSystem()), IsOk());
  EXPECT_TRUE(fs::exists(layout.attempt(1, base)));
  EXPECT_TRUE(fs::exists(layout.attempt(2, user)));
  fs::remove(lease);
  ASSERT_THAT(finish(PosixFileSystem()), IsOk());
  EXPECT_FALSE(fs::exists(layout.attempt(1, base)));
  EXPECT_FALSE(fs::exists(layout.attempt(2, user)));
  EXPECT_EQ(warnings, "");
}

}  // namespace
}  // namespace tidemark::storage
