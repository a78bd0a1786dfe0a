// Steps that are deleted, updated and noted: what stays of them, and what a crash or a reader in between does to it.

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/store.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"

namespace tidemark::storage {
namespace {

using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;

namespace fs = std::filesystem;

class StoreDeletionTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open() { return OpenSoundStore(path_, &warnings_); }

  std::string Folder(const ShardIdentity& identity) { return layout_.attempt(identity.step, identity.attempt); }
  bool IsThere(const ShardIdentity& identity) { return fs::exists(Folder(identity)); }

  static Store::StepNote Deletion(const ShardIdentity& identity) {
    return {.step = identity.step, .attempt = ToHex(identity.attempt.bytes), .deleted = true, .reason = "too old"};
  }

  static StepRecord RecordOf(const Store& store, int64_t step) {
    auto record = store.manifest().Find(step);
    EXPECT_THAT(record, IsOk());
    if (!record.ok() || !record->has_value()) return {};
    return **record;
  }

  // A lease file of that name, held or not.
  std::string Lease(const ShardIdentity& identity) {
    fs::create_directories(layout_.leases());
    const std::string path =
        layout_.leases() + "/" + ToHex(identity.attempt.bytes) + "-" + std::string(32, '0') + ".lease";
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
  ASSERT_THAT(store->UpdateStep(2, ToHex(gone.attempt.bytes),
                                [](StepRecord& record) {
                                  record.info.evaluations = {{.evaluator = "validation", .metrics = {{"loss", 7}}}};
                                  record.info.user_metadata = R"({"a": 1})";
                                  return true;
                                }),
              IsOk());
  ASSERT_THAT(store->NoteSteps({Deletion(gone)}), IsOk());
  EXPECT_TRUE(IsThere(gone)) << "the record goes first";
  EXPECT_EQ(store->manifest().Deletions()->size(), 1u);
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(gone));
  EXPECT_THAT(*store->manifest().Deletions(), IsEmpty());
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
  EXPECT_EQ(record.info.user_metadata, "{}");
  EXPECT_THAT(record.shards, IsEmpty());
  EXPECT_THAT(record.references, IsEmpty());
  EXPECT_FALSE(*store->manifest().IsReferenced(base.attempt));
  EXPECT_EQ((*store->manifest().FindBest("loss", BestMode::kLowest))->info.step, 1);
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

TEST_F(StoreDeletionTest, HonoursALeaseWhenDeletingWhenOpeningAndWhenReplacing) {
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
  for (const ShardIdentity& identity : {base, user, replaced}) EXPECT_TRUE(IsThere(identity)) << identity.step;
  for (const std::string& lease : leases) fs::remove(lease);
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  for (const ShardIdentity& identity : {base, user, replaced}) EXPECT_FALSE(IsThere(identity)) << identity.step;
  EXPECT_EQ(ValueAt(*store, 3), 301);
}

TEST_F(StoreDeletionTest, RemovesNothingWhereItCannotLookForLeases) {
  auto store = Open();
  const ShardIdentity first = CommitStep(*store, 1, 100);
  CommitStep(*store, 2, 200);
  ASSERT_THAT(store->NoteSteps({Deletion(first)}), IsOk());
  store.reset();
  FailingFileSystem files(PosixFileSystem());
  files.SetRule([this](const FailingFileSystem::Call& call) {
    return call.path == layout_.leases() ? absl::InternalError("EIO") : absl::OkStatus();
  });
  ASSERT_THAT(OpenStore(path_, &warnings_, files), IsOk());
  EXPECT_THAT(warnings_, HasSubstr("it is not known which are being read: "));
  EXPECT_TRUE(IsThere(first));
  Open();
  EXPECT_FALSE(IsThere(first));
}

TEST_F(StoreDeletionTest, SyncsAndWritesOnceForManySteps) {
  FailingFileSystem files(PosixFileSystem());
  auto opened = OpenStore(path_, &warnings_, files);
  ASSERT_THAT(opened, IsOk());
  std::vector<Store::StepNote> notes;
  for (int64_t step = 0; step < 10; ++step) notes.push_back(Deletion(CommitStep(**opened, step, step)));
  CommitStep(**opened, 10, 10);
  ASSERT_THAT((*opened)->NoteSteps(notes), IsOk());
  files.Reset();
  ASSERT_THAT((*opened)->RemoveDeleted({}), IsOk());
  const auto operations = files.operations();
  EXPECT_EQ(std::count(operations.begin(), operations.end(), "RemoveDirectory"), 10);
  EXPECT_EQ(std::count(operations.begin(), operations.end(), "SyncDirectory"), 1);
  EXPECT_THAT(*(*opened)->manifest().Deletions(), IsEmpty());
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
  EXPECT_EQ((*store)->manifest().Deletions()->size(), 1u);
  files.Reset();
  ASSERT_THAT((*store)->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(first));
}

TEST_F(StoreDeletionTest, NotesOnlyTheAttemptThatWasMeantAndIsCommitted) {
  auto store = Open();
  const ShardIdentity replaced = CommitStep(*store, 1, 100);
  CommitStep(*store, 1, 101);
  const ShardIdentity damaged = CommitStep(*store, 2, 200);
  ASSERT_THAT(store->MarkStep(2, ToHex(damaged.attempt.bytes), StepState::kDamaged, "bit rot"), IsOk());
  const ShardIdentity kept = CommitStep(*store, 3, 300);
  Store::StepNote keep = Deletion(kept);
  keep.deleted = false;
  keep.reason = "the latest";
  ASSERT_THAT(store->NoteSteps({Deletion(replaced), Deletion(damaged), keep, {.step = 77}}), IsOk());
  EXPECT_EQ(ValueAt(*store, 1), 101);
  EXPECT_EQ(RecordOf(*store, 2).info.reason, "bit rot");
  EXPECT_EQ(RecordOf(*store, 3).info.kept, "the latest");
  ASSERT_THAT(store->MarkStep(3, ToHex(kept.attempt.bytes), StepState::kDamaged, "bit rot"), IsOk());
  EXPECT_EQ(RecordOf(*store, 3).info.kept, "") << "retention does not look at it any more";
  EXPECT_THAT(*store->manifest().Deletions(), IsEmpty());
}

TEST_F(StoreDeletionTest, DeletesNoStepThatWasPinnedMeanwhile) {
  auto store = Open();
  const ShardIdentity pinned = CommitStep(*store, 1, 100);
  ASSERT_THAT(store->UpdateStep(1, ToHex(pinned.attempt.bytes),
                                [](StepRecord& record) {
                                  record.info.pinned = true;
                                  return true;
                                }),
              IsOk());
  ASSERT_THAT(store->NoteSteps({Deletion(pinned)}), IsOk());
  EXPECT_EQ(ValueAt(*store, 1), 100);
}

TEST_F(StoreDeletionTest, UpdatesOnlyTheAttemptThatWasMeant) {
  auto store = Open();
  CommitStep(*store, 1, 100);
  EXPECT_THAT(store->UpdateStep(1, "another", [](StepRecord&) { return true; }),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("step 1 has no record of attempt another")));
  EXPECT_THAT(store->UpdateStep(2, "", [](StepRecord&) { return true; }),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("step 2")));
}

TEST_F(StoreDeletionTest, WritesNothingThatDidNotChange) {
  ShardIdentity identity;
  { identity = CommitStep(*Open(), 1, 100); }
  auto store = Open();
  ASSERT_THAT(store->UpdateStep(1, ToHex(identity.attempt.bytes),
                                [](StepRecord& record) {
                                  record.info.kept = "never written";
                                  return false;
                                }),
              IsOk());
  EXPECT_EQ(RecordOf(*store, 1).info.kept, "");
  ASSERT_THAT(store->NoteSteps({{.step = 1, .attempt = ToHex(identity.attempt.bytes)}}), IsOk());
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_TRUE(store->manifest().Settled()->has_value()) << "which the first write takes back";
}

TEST_F(StoreDeletionTest, MarksNothingOnAStepThatWasDeletedMeanwhile) {
  auto store = Open();
  const ShardIdentity gone = CommitStep(*store, 1, 100);
  CommitStep(*store, 2, 200);
  ASSERT_THAT(store->NoteSteps({Deletion(gone)}), IsOk());
  EXPECT_THAT(store->MarkStep(1, ToHex(gone.attempt.bytes), StepState::kLost, "its folder is gone"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("has been deleted")));
  EXPECT_EQ(RecordOf(*store, 1).info.state, StepState::kDeleted);
}

TEST_F(StoreDeletionTest, RecordsAStepThatWasOnlyEvaluatedOnce) {
  auto store = Open();
  StepInfo info{.step = 5, .state = StepState::kUnsaved, .metrics = {{"validation/loss", 2}}};
  info.evaluations = {{.evaluator = "validation", .metrics = {{"loss", 2}}}};
  ASSERT_THAT(store->RecordUnsaved(info), IsOk());
  info.metrics.clear();
  ASSERT_THAT(store->RecordUnsaved(info), IsOk());
  CommitStep(*store, 6, 600);
  ASSERT_THAT(store->RecordUnsaved({.step = 6, .state = StepState::kUnsaved}), IsOk());
  EXPECT_EQ(ValueAt(*store, 6), 600);
  store.reset();
  store = Open();
  EXPECT_EQ(warnings_, "");
  EXPECT_EQ(RecordOf(*store, 5).info.state, StepState::kUnsaved);
  EXPECT_EQ(RecordOf(*store, 5).info.metrics.at("validation/loss"), 2);
  EXPECT_FALSE(store->manifest().FindBest("validation/loss", BestMode::kLowest)->has_value());
}

TEST_F(StoreDeletionTest, KeepsWhatIsKnownOfAStepThroughASaveThatFails) {
  auto store = Open();
  ASSERT_THAT(store->RecordUnsaved({.step = 5, .state = StepState::kUnsaved, .metrics = {{"loss", 2}}}), IsOk());
  CommitStep(*store, 7, 700);
  ASSERT_THAT(store->NoteSteps({Deletion(CommitStep(*store, 6, 600))}), IsOk());
  for (const int64_t step : {5, 6}) {
    auto identity = store->BeginAttempt(step);
    ASSERT_THAT(identity, IsOk());
    store->AbandonAttempt(*identity, absl::UnixEpoch(), absl::ResourceExhaustedError("disk full"));
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
  EXPECT_THAT(*store->manifest().Deletions(), IsEmpty());
  EXPECT_EQ(ValueAt(*store, 5), 500);
  EXPECT_EQ(ValueAt(*store, 6), 601);
  EXPECT_THAT(RecordOf(*store, 5).info.evaluations, IsEmpty()) << "they were of another attempt";
  store.reset();
  EXPECT_EQ(ValueAt(*Open(), 6), 601);
  EXPECT_EQ(warnings_, "");
}

// The marks are in the manifest's log, as it can be read, and nobody knows whether the disk has them.
TEST_F(StoreDeletionTest, RemovesNothingWhoseMarkTheDiskMayNotHave) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenSoundStore(path_, &warnings_, files);
  const ShardIdentity first = CommitStep(*store, 1, 100);
  CommitStep(*store, 2, 200);
  files.SetRule([this](const FailingFileSystem::Call& call) {
    const bool fails = call.operation == "SyncData" || call.operation == "Create";
    return fails && call.path.starts_with(layout_.manifest()) ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT(store->NoteSteps({Deletion(first)}), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  // A write that finds that the manifest cannot be opened anew either.
  EXPECT_FALSE(store->UpdateStep(2, RecordOf(*store, 2).info.attempt, [](StepRecord&) { return true; }).ok());
  ASSERT_EQ(RecordOf(*store, 1).info.state, StepState::kDeleted) << "as it can be read";
  EXPECT_THAT(store->RemoveDeleted({}),
              StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr("reopen manifest"), HasSubstr("EIO"))));
  EXPECT_TRUE(IsThere(first));
  files.Reset();
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(first)) << "opening it anew has synced what it found";
}

// A write that failed may be on the disk all the same. What is written next must know of it, or a step is pinned, and
// its files are removed.
TEST_F(StoreDeletionTest, IsNoticedByThePinThatFollowsAMarkWhichSeemedToFail) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenSoundStore(path_, &warnings_, files);
  const ShardIdentity first = CommitStep(*store, 1, 100);
  CommitStep(*store, 2, 200);
  files.SetRule([this](const FailingFileSystem::Call& call) {
    return call.operation == "SyncData" && call.path.starts_with(layout_.manifest()) ? absl::InternalError("EIO")
                                                                                     : absl::OkStatus();
  });
  EXPECT_THAT(store->NoteSteps({Deletion(first)}), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  ASSERT_EQ(RecordOf(*store, 1).info.state, StepState::kCommitted) << "as it can be read";
  files.Reset();
  const absl::Status pinned = store->Pin(1, "keep");
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_EQ(pinned.ok(), IsThere(first)) << pinned;
  EXPECT_EQ(pinned.ok(), RecordOf(*store, 1).info.state == StepState::kCommitted);
  const auto committed = store->manifest().Committed();
  ASSERT_THAT(committed, IsOk());
  EXPECT_EQ(committed->size(), pinned.ok() ? 2u : 1u);
  EXPECT_THAT(store->UpdateStep(2, RecordOf(*store, 2).info.attempt, [](StepRecord&) { return true; }), IsOk());
  store.reset();
  store = Open();
  EXPECT_EQ(pinned.ok(), IsThere(first)) << warnings_;
  EXPECT_EQ(ValueAt(*store, 2), 200);
}

// Where steps are deleted on a full disk, others are noted on in the same batch, with all that their records hold.
TEST_F(StoreDeletionTest, NotesNoMoreAtOnceThanThereIsRoomFor) {
  auto store = Open();
  std::vector<Store::StepNote> notes;
  for (int64_t step = 1; step <= 5; ++step) {
    const ShardIdentity identity = WriteAttempt(*store, step, step);
    auto attempt = ReadAttempt(PosixFileSystem(), layout_, store->id(), {step, identity.attempt});
    ASSERT_THAT(attempt, IsOk());
    attempt->record.info.user_metadata = "\"" + std::string(100 << 10, 'x') + "\"";
    ASSERT_THAT(store->CommitAttempt(attempt->record), IsOk());
    notes.push_back(Deletion(identity));
    notes.back().deleted = step == 4;
  }
  auto noted = store->NoteSteps(notes);
  ASSERT_THAT(noted, IsOk());
  EXPECT_EQ(noted->notes, 3u);
  EXPECT_THAT(noted->deleted, IsEmpty());
  EXPECT_EQ(RecordOf(*store, 3).info.kept, "too old");
  EXPECT_EQ(RecordOf(*store, 4).info.state, StepState::kCommitted);
  notes.erase(notes.begin(), notes.begin() + 3);
  noted = store->NoteSteps(notes);
  ASSERT_THAT(noted, IsOk());
  EXPECT_EQ(noted->notes, 2u);
  EXPECT_EQ(noted->deleted, std::set<int64_t>{4});
}

// Whichever call fails, be it of a deletion or of opening the store after it, the steps stay deleted, the others stay,
// and the next Open finishes what was begun.
TEST_F(StoreDeletionTest, IsFinishedByTheNextOpenWhicheverCallFails) {
  for (const bool while_opening : {false, true}) {
    size_t untouched = 0;
    const DrawnCalls drawn;
    for (size_t call = drawn.first; untouched < 2; call += drawn.stride) {
      SCOPED_TRACE(testing::Message() << (while_opening ? "opening" : "deleting") << ", call " << call);
      ASSERT_LT(call, 200u);
      std::vector<ShardIdentity> gone;
      {
        FailingFileSystem files(PosixFileSystem());
        auto store = OpenStore(path_, &warnings_, files);
        ASSERT_THAT(store, IsOk());
        gone = {CommitStep(**store, 1, 100), CommitStep(**store, 2, 200)};
        gone.push_back(CommitReferringStep(**store, 3, gone[0]));
        CommitReferringStep(**store, 4, gone[1]);
        ASSERT_THAT((*store)->NoteSteps({Deletion(gone[0]), Deletion(gone[1]), Deletion(gone[2])}), IsOk());
        if (!while_opening) {
          const size_t before = files.calls().size();
          files.FailCall(before + call, absl::InternalError("EIO"));
          EXPECT_THAT((*store)->RemoveDeleted({}),
                      AnyOf(IsOk(), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO"))));
          untouched += files.calls().size() <= before + call ? 1 : 0;
        }
      }
      if (while_opening) {
        FailingFileSystem files(PosixFileSystem());
        files.FailCall(call, absl::InternalError("EIO"));
        OpenStore(path_, &warnings_, files).IgnoreError();
        untouched += files.calls().size() <= call ? 1 : 0;
      }
      auto store = Open();
      for (const int64_t step : {1, 2, 3}) EXPECT_EQ(RecordOf(*store, step).info.state, StepState::kDeleted) << step;
      EXPECT_EQ(ValueAt(*store, 4), 200);
      EXPECT_FALSE(IsThere(gone[0]));
      EXPECT_TRUE(IsThere(gone[1])) << "step 4 refers to it";
      EXPECT_FALSE(IsThere(gone[2]));
      EXPECT_EQ(store->manifest().Deletions()->size(), 1u);
      ASSERT_FALSE(fs::exists(layout_.quarantine()));
    }
  }
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
      std::vector<Store::StepNote> notes;
      const auto scanned = store->manifest().ForEach([&](const StepRecord& record) {
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
  EXPECT_THAT(*store->manifest().Deletions(), IsEmpty());
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
