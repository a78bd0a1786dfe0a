// Steps that are deleted and noted: what stays of them, whose files go, and what a kill, a reader or a fault in between
// does to it.

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/garbage.h"
#include "storage/store/lease.h"
#include "storage/store/store.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

namespace fs = std::filesystem;

class StoreDeletionTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open() { return OpenSoundStore(path_, &warnings_); }

  std::string Folder(const ShardIdentity& identity) { return layout_.attempt(identity.step, identity.attempt); }
  bool IsThere(const ShardIdentity& identity) { return fs::exists(Folder(identity)); }

  static StepNote Deletion(const ShardIdentity& identity) {
    return {.step = identity.step, .attempt = ToHex(identity.attempt.bytes), .deleted = true, .reason = "too old"};
  }

  static StepRecord RecordOf(const Store& store, int64_t step) {
    auto record = store.catalog().Find(step);
    EXPECT_THAT(record, IsOk());
    if (!record.ok() || !record->has_value()) return {};
    return **record;
  }

  // A lease file of that name, held or not.
  std::string Lease(const ShardIdentity& identity) {
    fs::create_directories(layout_.leases());
    const std::string path = layout_.leases() + "/" + LeaseFileName(identity.attempt, "validation");
    std::ofstream(path) << "{}";
    return path;
  }

  const TestDirectory directory_ = TestDirectory::InMemory();
  const std::string path_ = directory_ / "store";
  const StoreLayout layout_{path_};
  std::string warnings_;
};

TEST_F(StoreDeletionTest, KeepsWhatIsKnownOfADeletedStep) {
  auto store = Open();
  const ShardIdentity base = CommitStep(*store, 1, 100);
  const ShardIdentity gone = CommitReferringStep(*store, 2, base);
  CommitStep(*store, 3, 300);
  ASSERT_THAT(RecordOwn(*store, gone, {.evaluator = "validation", .metrics = {{"loss", 7}}}), IsOk());
  ASSERT_THAT(store->NoteSteps({Deletion(gone)}), IsOk());
  EXPECT_TRUE(IsThere(gone)) << "the record goes first";
  EXPECT_EQ(store->catalog().Deletions()->size(), 1u);
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(gone));
  EXPECT_THAT(*store->catalog().Deletions(), IsEmpty());
  store.reset();
  store = Open();
  EXPECT_EQ(warnings_, "");
  const StepRecord record = RecordOf(*store, 2);
  EXPECT_EQ(record.info.state, StepState::kDeleted);
  EXPECT_EQ(record.info.reason, "too old");
  EXPECT_EQ(record.info.attempt, ToHex(gone.attempt.bytes));
  EXPECT_EQ(record.info.metrics.at("loss"), 100);
  ASSERT_EQ(record.info.evaluations.size(), 1u);
  EXPECT_EQ(record.info.evaluations[0].metrics.at("loss"), 7);
  EXPECT_EQ(record.shards, ShardsDigest());
  EXPECT_THAT(record.references, IsEmpty());
  EXPECT_FALSE(*store->catalog().IsReferenced(base.attempt));
  EXPECT_EQ((*store->catalog().FindBest("loss", BestMode::kLowest))->info.step, 1);
}

TEST_F(StoreDeletionTest, KeepsTheFilesThatACommittedStepRefersToUntilThatGoes) {
  auto store = Open();
  const ShardIdentity base = CommitStep(*store, 1, 100);
  const ShardIdentity user = CommitReferringStep(*store, 2, base);
  CommitStep(*store, 3, 300);
  ASSERT_THAT(store->NoteSteps({Deletion(base)}), IsOk());
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_TRUE(IsThere(base));
  EXPECT_EQ(ValueAt(*store, 2), 100);
  store.reset();
  store = Open();
  EXPECT_EQ(ValueAt(*store, 2), 100);
  EXPECT_EQ(RecordOf(*store, 1).info.state, StepState::kDeleted);
  EXPECT_EQ(warnings_, "");
  ASSERT_THAT(store->NoteSteps({Deletion(user)}), IsOk());
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(base));
  EXPECT_FALSE(IsThere(user));
}

TEST_F(StoreDeletionTest, KeepsTheFilesOfAReplacedAttemptUntilNoStepRefersToThem) {
  auto store = Open();
  const ShardIdentity base = CommitStep(*store, 1, 100);
  const ShardIdentity second = CommitReferringStep(*store, 2, base);
  CommitReferringStep(*store, 1, base);  // its own step does, too
  EXPECT_EQ(ValueAt(*store, 1), 100);
  CommitStep(*store, 1, 101);
  EXPECT_TRUE(IsThere(base));
  store.reset();
  store = Open();
  EXPECT_EQ(ValueAt(*store, 2), 100);
  EXPECT_TRUE(IsThere(base));
  CommitStep(*store, 2, 200);
  EXPECT_FALSE(IsThere(second));
  EXPECT_FALSE(IsThere(base)) << "at once";
  EXPECT_THAT(*store->catalog().Deletions(), IsEmpty());
  EXPECT_EQ(ValueAt(*store, 1), 101);
}

TEST_F(StoreDeletionTest, KeepsWhatIsInUseAndWhatThatRefersTo) {
  auto store = Open();
  const ShardIdentity base = CommitStep(*store, 1, 100);
  const ShardIdentity user = CommitReferringStep(*store, 2, base);
  const ShardIdentity third = CommitStep(*store, 3, 300);
  CommitStep(*store, 4, 400);
  ASSERT_THAT(store->NoteSteps({Deletion(base), Deletion(user), Deletion(third)}), IsOk());
  ASSERT_THAT(store->RemoveDeleted({user.attempt}), IsOk());
  EXPECT_TRUE(IsThere(base));
  EXPECT_TRUE(IsThere(user));
  EXPECT_FALSE(IsThere(third));
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(base));
  EXPECT_FALSE(IsThere(user));
}

TEST_F(StoreDeletionTest, HonoursALeaseWhenDeletingWhenSweepingAndWhenReplacing) {
  auto store = Open();
  const ShardIdentity base = CommitStep(*store, 1, 100);
  const ShardIdentity user = CommitReferringStep(*store, 2, base);
  const ShardIdentity replaced = CommitStep(*store, 3, 300);
  const std::string leases[] = {Lease(user), Lease(replaced)};
  ASSERT_THAT(store->NoteSteps({Deletion(base), Deletion(user)}), IsOk());
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  CommitStep(*store, 3, 301);
  for (const ShardIdentity& identity : {base, user, replaced}) EXPECT_TRUE(IsThere(identity)) << identity.step;
  store.reset();
  store = Open();
  ASSERT_THAT(store->SweepUncommitted(), IsOk());
  for (const ShardIdentity& identity : {base, user, replaced}) EXPECT_TRUE(IsThere(identity)) << identity.step;
  for (const std::string& lease : leases) fs::remove(lease);
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  for (const ShardIdentity& identity : {base, user, replaced}) EXPECT_FALSE(IsThere(identity)) << identity.step;
  EXPECT_EQ(ValueAt(*store, 3), 301);
}

// A leased step is deleted while the files of what it refers to are about to go, which was deleted before.
TEST_F(StoreDeletionTest, KeepsWhatALeasedStepRefersToThatIsDeletedMeanwhile) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenSoundStore(path_, &warnings_, files);
  const ShardIdentity base = CommitStep(*store, 1, 100);
  const ShardIdentity user = CommitReferringStep(*store, 2, base);
  const ShardIdentity third = CommitStep(*store, 3, 300);  // its files may go, so that leases are asked for
  CommitStep(*store, 4, 400);
  ASSERT_THAT(store->NoteSteps({Deletion(base), Deletion(third)}), IsOk());
  const std::string lease = Lease(user);
  bool deleted = false;
  files.SetGate([&](const std::string&, const std::string& path) {
    if (path == layout_.leases() && !std::exchange(deleted, true)) {
      EXPECT_THAT(store->NoteSteps({Deletion(user)}), IsOk());
    }
  });
  for (int i = 0; i < 2; ++i) ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_TRUE(deleted);
  EXPECT_TRUE(IsThere(base));
  EXPECT_TRUE(IsThere(user));
  EXPECT_FALSE(IsThere(third));
  fs::remove(lease);
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(base));
  EXPECT_FALSE(IsThere(user));
  EXPECT_EQ(warnings_, "");
}

TEST_F(StoreDeletionTest, RemovesNothingWhereItCannotLookForLeases) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenSoundStore(path_, &warnings_, files);
  const ShardIdentity first = CommitStep(*store, 1, 100);
  CommitStep(*store, 2, 200);
  ASSERT_THAT(store->NoteSteps({Deletion(first)}), IsOk());
  files.SetRule([this](const FailingFileSystem::Call& call) {
    return call.path == layout_.leases() ? absl::InternalError("EIO") : absl::OkStatus();
  });
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_THAT(warnings_, HasSubstr("it is not known which are being read: "));
  EXPECT_TRUE(IsThere(first));
  files.Reset();
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(first));
}

TEST_F(StoreDeletionTest, RemovesAFewAtATime) {
  auto store = Open();
  std::vector<StepNote> notes;
  for (const int64_t step : {1, 2, 3}) notes.push_back(Deletion(CommitStep(*store, step, step)));
  CommitStep(*store, 4, 4);
  const auto noted = store->NoteSteps(notes);
  ASSERT_THAT(noted, IsOk());
  EXPECT_THAT(noted->deleted, ElementsAre(1, 2, 3));
  absl::StatusOr<bool> more = store->RemoveDeleted({}, 2);
  ASSERT_THAT(more, IsOk());
  EXPECT_TRUE(*more);
  EXPECT_THAT(*store->catalog().Deletions(), SizeIs(1));
  more = store->RemoveDeleted({}, 2);
  ASSERT_THAT(more, IsOk());
  EXPECT_FALSE(*more);
  EXPECT_THAT(*store->catalog().Deletions(), IsEmpty());
}

TEST_F(StoreDeletionTest, RemovesWhatRefersToAnAttemptBeforeTheAttemptAndSyncsOnce) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenSoundStore(path_, &warnings_, files);
  const ShardIdentity base = CommitStep(*store, 1, 100);
  const ShardIdentity user = CommitReferringStep(*store, 2, base);
  CommitStep(*store, 3, 300);
  ASSERT_THAT(store->NoteSteps({Deletion(base), Deletion(user)}), IsOk());
  files.Reset();
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  std::vector<std::string> changes;
  for (const FailingFileSystem::Call& call : files.calls()) {
    if (call.operation == "RemoveDirectory" || call.operation == "SyncDirectory") {
      changes.push_back(call.operation + " " + call.path);
    }
  }
  EXPECT_THAT(changes, ElementsAre("RemoveDirectory " + Folder(user), "RemoveDirectory " + Folder(base),
                                   "SyncDirectory " + layout_.steps()));
}

TEST_F(StoreDeletionTest, SaysWhichDeletedStepItCouldNotRemoveAndGoesOnWithTheOthers) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenStore(path_, &warnings_, files);
  ASSERT_THAT(store, IsOk());
  const ShardIdentity first = CommitStep(**store, 1, 100);
  const ShardIdentity second = CommitStep(**store, 2, 200);
  CommitStep(**store, 3, 300);
  ASSERT_THAT((*store)->NoteSteps({Deletion(first), Deletion(second)}), IsOk());
  files.SetRule([&](const FailingFileSystem::Call& call) {
    return call.path == Folder(first) ? absl::InternalError("EIO") : absl::OkStatus();
  });
  ASSERT_THAT((*store)->RemoveDeleted({}), IsOk());
  EXPECT_THAT(warnings_, HasSubstr("step 1 was deleted, but its files are still there: EIO"));
  EXPECT_FALSE(IsThere(second));
  EXPECT_EQ((*store)->catalog().Deletions()->size(), 1u);
  files.Reset();
  ASSERT_THAT((*store)->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(first));
}

TEST_F(StoreDeletionTest, IsFinishedByALaterProcess) {
  ShardIdentity replaced, deleted;
  {
    FailingFileSystem files(PosixFileSystem());
    auto store = OpenSoundStore(path_, &warnings_, files);
    replaced = CommitStep(*store, 5, 1);
    deleted = CommitStep(*store, 4, 4);
    files.FailOperation("RemoveDirectory", absl::InternalError("EIO"));
    CommitStep(*store, 5, 2);
    EXPECT_THAT(warnings_, HasSubstr("step 5 was replaced, but its old files are still there"));
    ASSERT_THAT(store->NoteSteps({Deletion(deleted)}), IsOk());
  }
  auto store = Open();
  EXPECT_EQ(store->catalog().Deletions()->size(), 2u);
  ASSERT_THAT(store->SweepUncommitted(), IsOk());
  EXPECT_TRUE(IsThere(deleted)) << "a reader may still have it: that is RemoveDeleted's to find out";
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(replaced));
  EXPECT_FALSE(IsThere(deleted));
  EXPECT_EQ(ValueAt(*store, 5), 2);
  EXPECT_EQ(warnings_, "");
}

TEST_F(StoreDeletionTest, KeepsWhatIsKnownOfAStepThroughASaveThatFails) {
  auto store = Open();
  ASSERT_THAT(store->RecordUnsaved({.step = 5, .state = StepState::kUnsaved, .metrics = {{"loss", 2}}}), IsOk());
  CommitStep(*store, 7, 700);
  ASSERT_THAT(store->NoteSteps({Deletion(CommitStep(*store, 6, 600))}), IsOk());
  for (const int64_t step : {5, 6}) {
    auto identity = store->BeginAttempt(step);
    ASSERT_THAT(identity, IsOk());
    store->AbandonAttempt(*identity, absl::UnixEpoch(), absl::ResourceExhaustedError("disk full")).IgnoreError();
  }
  EXPECT_EQ(RecordOf(*store, 5).info.state, StepState::kUnsaved);
  EXPECT_EQ(RecordOf(*store, 5).info.metrics.at("loss"), 2);
  EXPECT_EQ(RecordOf(*store, 6).info.state, StepState::kDeleted);
}

TEST_F(StoreDeletionTest, TakesACommittedAttemptInThePlaceOfADeletedOrUnsavedOne) {
  auto store = Open();
  StepInfo unsaved{.step = 5, .state = StepState::kUnsaved, .metrics = {{"validation/loss", 2}}};
  unsaved.evaluations = {{.evaluator = "validation", .metrics = {{"loss", 2}}}};
  ASSERT_THAT(store->RecordUnsaved(unsaved), IsOk());
  CommitStep(*store, 7, 700);
  ASSERT_THAT(store->NoteSteps({Deletion(CommitStep(*store, 6, 600))}), IsOk());
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  CommitStep(*store, 5, 500);
  CommitStep(*store, 6, 601);
  EXPECT_THAT(*store->catalog().Deletions(), IsEmpty());
  EXPECT_EQ(ValueAt(*store, 5), 500);
  EXPECT_EQ(ValueAt(*store, 6), 601);
  EXPECT_THAT(RecordOf(*store, 5).info.evaluations, IsEmpty()) << "they were of another attempt";
  store.reset();
  EXPECT_EQ(ValueAt(*Open(), 6), 601);
  EXPECT_EQ(warnings_, "");
}

// A deletion whose entry may or may not be on the disk. What is appended next knows, or a step is pinned and its files
// are removed.
TEST_F(StoreDeletionTest, IsNoticedByThePinThatFollowsADeletionOfWhichItIsNotKnownWhetherItHappened) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenSoundStore(path_, &warnings_, files);
  const ShardIdentity first = CommitStep(*store, 1, 100);
  CommitStep(*store, 2, 200);
  files.SetRule([this](const FailingFileSystem::Call& call) {
    const bool names = call.operation == "SyncDirectory" && call.path.starts_with(layout_.journal());
    return names ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT(store->NoteSteps({Deletion(first)}), StatusIs(absl::StatusCode::kUnknown, HasSubstr("EIO")));
  EXPECT_EQ(RecordOf(*store, 1).info.state, StepState::kCommitted) << "it is not established";
  EXPECT_FALSE(store->RemoveDeleted({}).ok());
  EXPECT_TRUE(IsThere(first));
  files.Reset();
  const absl::Status pinned = store->Pin(1, "keep");
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_EQ(pinned.ok(), IsThere(first)) << pinned;
  EXPECT_EQ(pinned.ok(), RecordOf(*store, 1).info.state == StepState::kCommitted);
  EXPECT_EQ(store->catalog().Committed()->size(), pinned.ok() ? 2u : 1u);
  store.reset();
  store = Open();
  EXPECT_EQ(pinned.ok(), IsThere(first)) << warnings_;
  EXPECT_EQ(ValueAt(*store, 2), 200);
}

// A commit whose entry may or may not be on the disk turns out to be there when the next one replaces it.
TEST_F(StoreDeletionTest, HonoursALeaseOnAReplacedAttemptOfWhichItWasNotKnownWhetherItIsCommitted) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenSoundStore(path_, &warnings_, files);
  CommitStep(*store, 1, 100);
  const ShardIdentity unknown = WriteAttempt(*store, 2, 200);
  files.SetRule([this](const FailingFileSystem::Call& call) {
    const bool names = call.operation == "SyncDirectory" && call.path.starts_with(layout_.journal());
    return names ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT(Commit(*store, unknown), StatusIs(absl::StatusCode::kUnknown, HasSubstr("EIO")));
  files.Reset();
  const std::string lease = Lease(unknown);
  const ShardIdentity second = CommitStep(*store, 2, 201);
  ASSERT_THAT(*store->catalog().Deletions(), SizeIs(1)) << "the first one was committed";
  EXPECT_TRUE(IsThere(unknown));
  fs::remove(lease);
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(unknown));
  EXPECT_TRUE(IsThere(second));
}

TEST_F(StoreDeletionTest, DoesNotKeepACommitWaitingThatHasFilesToRemove) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenSoundStore(path_, &warnings_, files);
  const ShardIdentity left = WriteAttempt(*store, 7, 700);
  store.reset();
  store = OpenSoundStore(path_, &warnings_, files);
  const ShardIdentity first = CommitStep(*store, 1, 100);
  const ShardIdentity second = WriteAttempt(*store, 1, 101);
  absl::Notification sweeping, go_on, committed;
  files.SetGate([&](const std::string& operation, const std::string& path) {
    if (operation != "RemoveDirectory" || path != Folder(left)) return;
    sweeping.Notify();
    go_on.WaitForNotification();
  });
  std::thread sweep([&] { EXPECT_THAT(store->SweepUncommitted(), IsOk()); });
  sweeping.WaitForNotification();
  std::thread commit([&] {
    EXPECT_THAT(Commit(*store, second), IsOk());
    committed.Notify();
  });
  EXPECT_TRUE(committed.WaitForNotificationWithTimeout(absl::Seconds(30)));
  EXPECT_TRUE(IsThere(first));
  go_on.Notify();
  sweep.join();
  commit.join();
  EXPECT_FALSE(IsThere(left));
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(first));
  EXPECT_EQ(ValueAt(*store, 1), 101);
}

// As in a training: one thread commits, replacing what is there, while another deletes.
TEST_F(StoreDeletionTest, IsSafeBesideCommits) {
  auto store = Open();
  constexpr int64_t kSteps = 30;
  std::vector<StepRecord> records;
  for (int64_t i = 0; i < 2 * kSteps; ++i) {
    const ShardIdentity identity = WriteAttempt(*store, i % kSteps, i);
    auto attempt = ReadAttempt(PosixFileSystem(), layout_, store->id(), {identity.step, identity.attempt});
    ASSERT_THAT(attempt, IsOk());
    records.push_back(attempt->record);
  }
  std::atomic<bool> done = false;
  std::thread deleter([&] {
    while (!done) {
      std::vector<StepNote> notes;
      const auto scanned = store->catalog().ForEach([&](const StepRecord& record) {
        if (record.info.state != StepState::kCommitted || record.info.step % 2 == 0) return true;
        notes.push_back({.step = record.info.step, .attempt = record.info.attempt, .deleted = true, .reason = "odd"});
        return true;
      });
      EXPECT_THAT(scanned, IsOk());
      EXPECT_THAT(store->NoteSteps(notes), IsOk());
      EXPECT_THAT(store->RemoveDeleted({}), IsOk());
    }
  });
  for (const StepRecord& record : records) EXPECT_THAT(store->CommitAttempt(record), IsOk());
  done = true;
  deleter.join();
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_EQ(warnings_, "");
  EXPECT_THAT(*store->catalog().Deletions(), IsEmpty());
  size_t folders = 0;
  for ([[maybe_unused]] const auto& folder : fs::directory_iterator(layout_.steps())) ++folders;
  size_t committed = 0;
  for (int64_t step = 0; step < kSteps; ++step) {
    const int64_t value = ValueAt(*store, step);
    EXPECT_TRUE(value == kSteps + step || (step % 2 == 1 && value == -1)) << step << ": " << value;
    committed += value >= 0 ? 1 : 0;
  }
  EXPECT_EQ(folders, committed);
}

}  // namespace
}  // namespace tidemark::storage
