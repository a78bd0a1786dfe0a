// Deletion marks, and what a rebuild of the manifest and the opening of a store make of them.

#include "storage/manifest/deletion_mark.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/draft_file_system.h"
#include "storage/manifest/folder_note.h"
#include "storage/manifest/lease.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::Optional;
using testing::SizeIs;

namespace fs = std::filesystem;

class DeletionMarkTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open() { return OpenSoundStore(path_, &warnings_); }
  std::unique_ptr<Store> Rebuild() {
    fs::remove_all(layout_.manifest());
    auto store = Open();
    EXPECT_THAT(warnings_, HasSubstr("was rebuilt"));
    EXPECT_THAT(warnings_, Not(HasSubstr("lost")));
    return store;
  }

  static StepFolder FolderOf(const ShardIdentity& identity) { return {identity.step, identity.attempt}; }
  bool IsThere(const ShardIdentity& identity) { return fs::exists(layout_.attempt(identity.step, identity.attempt)); }
  bool IsMarked(const ShardIdentity& identity) {
    return *HasDeletionMark(PosixFileSystem(), layout_, FolderOf(identity));
  }
  static StepInfo InfoOf(const Store& store, int64_t step) { return (*store.manifest().Find(step))->info; }

  static void Delete(Store& store, const ShardIdentity& identity) {
    EXPECT_THAT(
        store.NoteSteps(
            {{.step = identity.step, .attempt = ToHex(identity.attempt.bytes), .deleted = true, .reason = "too old"}}),
        IsOk());
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "store";
  const StoreLayout layout_{path_};
  std::string warnings_;
};

TEST_F(DeletionMarkTest, SaysWhy) {
  const StepFolder folder{1000, AttemptId{{7}}};
  fs::create_directories(layout_.attempt(folder.step, folder.attempt));
  EXPECT_EQ(*ReadDeletionMark(PosixFileSystem(), layout_, folder), std::nullopt);
  EXPECT_FALSE(*HasDeletionMark(PosixFileSystem(), layout_, folder));
  const std::string reason(kFolderNoteBytesMax + 1, 'x');
  ASSERT_THAT(WriteDeletionMark(PosixFileSystem(), layout_, folder, reason), IsOk());
  EXPECT_TRUE(*HasDeletionMark(PosixFileSystem(), layout_, folder));
  EXPECT_THAT(*ReadDeletionMark(PosixFileSystem(), layout_, folder), Optional(reason.substr(1)));
  std::ofstream(layout_.attempt(folder.step, folder.attempt) + "/deleted.json") << "{";
  EXPECT_THAT(*ReadDeletionMark(PosixFileSystem(), layout_, folder), Optional(std::string()));
  FailingFileSystem files(PosixFileSystem());
  files.SetRule([](const FailingFileSystem::Call&) { return absl::InternalError("EIO"); });
  for (const absl::Status& status :
       {HasDeletionMark(files, layout_, folder).status(), ReadDeletionMark(files, layout_, folder).status(),
        WriteDeletionMark(files, layout_, folder, "")}) {
    EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  }
}

TEST_F(DeletionMarkTest, LetsAStepStayDeletedThroughARebuildWhereOthersReferToIt) {
  ShardIdentity first, second, third;
  {
    auto store = Open();
    first = CommitStep(*store, 1, 100);
    second = CommitReferringStep(*store, 2, first);
    third = CommitReferringStep(*store, 3, second);
    CommitStep(*store, 4, 400);
    Delete(*store, first);
    Delete(*store, second);
    ASSERT_THAT(store->RemoveDeleted({}), IsOk());
    EXPECT_FALSE(IsThere(first));
    EXPECT_TRUE(IsMarked(second));
    EXPECT_FALSE(IsMarked(third));
  }
  auto store = Rebuild();
  EXPECT_EQ(InfoOf(*store, 2).state, StepState::kDeleted);
  EXPECT_EQ(InfoOf(*store, 2).reason, "too old");
  EXPECT_EQ(InfoOf(*store, 2).metrics.at("loss"), 100);
  EXPECT_EQ(InfoOf(*store, 3).state, StepState::kCommitted);
  EXPECT_TRUE(IsThere(second));
  EXPECT_THAT(*store->manifest().Deletions(), SizeIs(1));
  Delete(*store, third);
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(second));
  EXPECT_FALSE(IsThere(third));
}

TEST_F(DeletionMarkTest, IsOfAReplacedAttemptToo) {
  {
    auto store = Open();
    const ShardIdentity replaced = CommitStep(*store, 1, 100);
    CommitReferringStep(*store, 2, replaced);
    const ShardIdentity later = CommitStep(*store, 1, 101);
    EXPECT_TRUE(IsMarked(replaced));
    CommitStep(*store, 3, 300);
    Delete(*store, later);
    ASSERT_THAT(store->RemoveDeleted({}), IsOk());
    EXPECT_FALSE(IsThere(later));
  }
  auto store = Rebuild();
  EXPECT_EQ(InfoOf(*store, 1).state, StepState::kDeleted) << "as it was";
  EXPECT_EQ(InfoOf(*store, 1).reason, "another attempt took its place");
  EXPECT_EQ(ValueAt(*store, 2), 100);
}

TEST_F(DeletionMarkTest, IsOfALeasedAttemptToo) {
  ShardIdentity leased;
  {
    auto store = Open();
    leased = CommitStep(*store, 1, 100);
    CommitStep(*store, 2, 200);
    fs::create_directories(layout_.leases());
    std::ofstream(layout_.leases() + "/" + LeaseFileName(leased.attempt, "validation")) << "{}";
    Delete(*store, leased);
    ASSERT_THAT(store->RemoveDeleted({}), IsOk());
    EXPECT_TRUE(IsMarked(leased));
  }
  auto store = Rebuild();
  EXPECT_EQ(InfoOf(*store, 1).state, StepState::kDeleted);
  EXPECT_TRUE(IsThere(leased));
  fs::remove_all(layout_.leases());
  ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  EXPECT_FALSE(IsThere(leased));
}

// The attempt that took the place of a pinned one has the pin, and may have lost it since.
TEST_F(DeletionMarkTest, KeepsAPinFromBeingInheritedTwice) {
  {
    auto store = Open();
    const ShardIdentity replaced = CommitStep(*store, 1, 100);
    CommitReferringStep(*store, 2, replaced);
    ASSERT_THAT(store->Pin(1, "keep"), IsOk());
    CommitStep(*store, 1, 101);
    ASSERT_THAT(store->Unpin(1), IsOk());
  }
  auto store = Rebuild();
  EXPECT_EQ(ValueAt(*store, 1), 101);
  EXPECT_FALSE(InfoOf(*store, 1).pinned);
}

// Nor does a pin get lost that a later attempt is to inherit.
TEST_F(DeletionMarkTest, IsNotLostWhicheverCallOfARebuildFails) {
  {
    auto store = Open();
    const ShardIdentity base = CommitStep(*store, 1, 100);
    CommitReferringStep(*store, 2, base);
    CommitStep(*store, 3, 300);
    ASSERT_THAT(store->Pin(3, "keep"), IsOk());
    CommitStep(*store, 4, 400);
    Delete(*store, base);
    ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  }
  size_t opened = 0;
  const DrawnCalls drawn;
  for (size_t call = drawn.first; opened < 3; call += drawn.stride) {
    SCOPED_TRACE(call);
    ASSERT_LT(call, 1000u);
    const int64_t value = 1000 + static_cast<int64_t>(call);
    { WriteAttempt(*Open(), 3, value); }
    fs::remove_all(layout_.manifest());
    FailingFileSystem files(PosixFileSystem());
    files.FailCall(call, absl::InternalError("EIO"));
    opened = OpenStore(path_, &warnings_, files).ok() ? opened + 1 : 0;
    auto store = Open();
    EXPECT_EQ(InfoOf(*store, 1).state, StepState::kDeleted);
    EXPECT_EQ(ValueAt(*store, 2), 100);
    EXPECT_EQ(ValueAt(*store, 3), value);
    EXPECT_TRUE(InfoOf(*store, 3).pinned);
    EXPECT_EQ(ValueAt(*store, 4), 400);
    ASSERT_FALSE(fs::exists(layout_.quarantine())) << warnings_;
  }
}

TEST_F(DeletionMarkTest, StandsInNobodysWayWhereItCannotBeWritten) {
  FailingFileSystem files(PosixFileSystem());
  auto store = OpenStore(path_, &warnings_, files);
  ASSERT_THAT(store, IsOk());
  const ShardIdentity base = CommitStep(**store, 1, 100);
  CommitReferringStep(**store, 2, base);
  const ShardIdentity other = CommitStep(**store, 3, 300);
  CommitStep(**store, 4, 400);
  Delete(**store, base);
  Delete(**store, other);
  files.FailOperation("Create", absl::ResourceExhaustedError("disk full"));
  ASSERT_THAT((*store)->RemoveDeleted({}), IsOk());
  EXPECT_THAT(warnings_, HasSubstr("step 1 was deleted, but a rebuild of the manifest would lose that: disk full"));
  EXPECT_FALSE(IsThere(other));
  EXPECT_FALSE(IsMarked(base));
  ASSERT_THAT((*store)->RemoveDeleted({}), IsOk());
  EXPECT_TRUE(IsMarked(base));
}

TEST_F(DeletionMarkTest, SendsToQuarantineWhatIsPutBackWithIt) {
  ShardIdentity gone;
  {
    auto store = Open();
    gone = CommitStep(*store, 1, 100);
    CommitStep(*store, 2, 200);
    fs::copy(layout_.attempt(1, gone.attempt), directory_ / "aside", fs::copy_options::recursive);
    Delete(*store, gone);
    ASSERT_THAT(store->RemoveDeleted({}), IsOk());
  }
  fs::rename(directory_ / "aside", layout_.attempt(1, gone.attempt));
  ASSERT_THAT(WriteDeletionMark(PosixFileSystem(), layout_, FolderOf(gone), "too old"), IsOk());
  auto store = Open();
  EXPECT_EQ(InfoOf(*store, 1).state, StepState::kDeleted);
  EXPECT_THAT(warnings_, HasSubstr("was deleted and is moved to quarantine: its deleted.json says that it was deleted: "
                                   "too old"));
  EXPECT_FALSE(IsThere(gone));
}

// A manifest that has lost the end of its log says of step 1 that it is committed, as it was; step 2 refers to it.
class ForgottenDeletionTest : public DeletionMarkTest {
 protected:
  void SetUp() override {
    auto store = Open();
    base_ = CommitStep(*store, 1, 100);
    CommitReferringStep(*store, 2, base_);
    Mark(base_);
    ASSERT_THAT(store->BeginAttempt(9), IsOk());  // left open, so that the next Open looks at everything
  }

  void Mark(const ShardIdentity& identity) {
    ASSERT_THAT(WriteDeletionMark(PosixFileSystem(), layout_, FolderOf(identity), "too old"), IsOk());
  }

  ShardIdentity base_;
};

TEST_F(ForgottenDeletionTest, IsRecordedAgainAndTheFilesGoWithTheStepThatRefersToThem) {
  auto store = Open();
  EXPECT_THAT(warnings_, HasSubstr("step 1 is deleted, although its record said that it is committed: its deleted.json "
                                   "says that it was deleted: too old"));
  EXPECT_EQ(InfoOf(*store, 1).state, StepState::kDeleted);
  EXPECT_EQ(InfoOf(*store, 1).reason, "too old");
  EXPECT_EQ(ValueAt(*store, 2), 100);
  EXPECT_THAT(*store->manifest().Deletions(), SizeIs(1));
  store.reset();
  store = Open();
  EXPECT_EQ(warnings_, "") << "said once";
  EXPECT_TRUE(IsThere(base_));
  CommitStep(*store, 2, 200);
  EXPECT_FALSE(IsThere(base_));
}

TEST_F(ForgottenDeletionTest, IsNoticedWhereWhatRefersToTheStepWasForgottenToo) {
  ShardIdentity third;
  {
    auto store = Open();
    third = CommitStep(*store, 3, 300);
    WriteReferringAttempt(*store, 4, third);
  }
  Mark(third);
  auto store = Open();
  EXPECT_EQ(InfoOf(*store, 3).state, StepState::kDeleted);
  EXPECT_EQ(ValueAt(*store, 4), 300);
}

TEST_F(ForgottenDeletionTest, IsTakenBackOfAStepThatIsPinned) {
  fs::remove(layout_.attempt(1, base_.attempt) + "/deleted.json");
  ASSERT_THAT(Open()->Pin(1, "keep"), IsOk());
  { WriteAttempt(*Open(), 3, 300); }
  Mark(base_);
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 3), 300) << "everything was looked at";
  EXPECT_EQ(ValueAt(*store, 1), 100);
  EXPECT_THAT(
      warnings_,
      HasSubstr(
          "step 1 stays, and its deleted.json, which said that it was deleted (too old), was removed: it is pinned"));
  EXPECT_FALSE(IsMarked(base_));
  ASSERT_THAT(store->Unpin(1), IsOk());
  store.reset();
  store = Open();
  EXPECT_EQ(ValueAt(*store, 1), 100);
  EXPECT_EQ(warnings_, "") << "said once";
  store.reset();
  EXPECT_EQ(ValueAt(*Rebuild(), 1), 100);
}

TEST_F(ForgottenDeletionTest, IsTakenBackOfTheLatestStep) {
  ShardIdentity latest;
  {
    auto store = Open();
    latest = CommitStep(*store, 5, 500);
    CommitReferringStep(*store, 3, latest);
    WriteAttempt(*store, 4, 400);
  }
  Mark(latest);
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 4), 400) << "everything was looked at";
  EXPECT_EQ(ValueAt(*store, 5), 500);
  EXPECT_THAT(warnings_, HasSubstr("(too old), was removed: it is the latest"));
  EXPECT_FALSE(IsMarked(latest));
  ASSERT_THAT(store->Pin(5, "keep"), IsOk());
  store.reset();
  store = Rebuild();
  EXPECT_EQ(ValueAt(*store, 5), 500);
  EXPECT_TRUE(InfoOf(*store, 5).pinned);
}

// Nobody looks for the mark of a step to which no other refers.
TEST_F(ForgottenDeletionTest, IsTakenBackByAPin) {
  auto store = Open();
  const ShardIdentity alone = CommitStep(*store, 5, 500);
  Mark(alone);
  ASSERT_THAT(store->Pin(5, "keep"), IsOk());
  EXPECT_FALSE(IsMarked(alone));
  const ShardIdentity tagged = CommitStep(*store, 6, 600);
  Mark(tagged);
  ASSERT_THAT(store->Tag(6, "v1"), IsOk());
  CommitStep(*store, 7, 700);
  store.reset();
  store = Rebuild();
  for (int64_t step : {5, 6}) {
    EXPECT_EQ(ValueAt(*store, step), 100 * step);
    EXPECT_TRUE(InfoOf(*store, step).pinned);
  }
}

TEST_F(ForgottenDeletionTest, IsTakenBackByTheNextOpenWhereTheMarkCannotBeRemoved) {
  fs::remove(layout_.attempt(1, base_.attempt) + "/deleted.json");
  ASSERT_THAT(Open()->Pin(1, "keep"), IsOk());
  { WriteAttempt(*Open(), 3, 300); }
  Mark(base_);
  for (const std::string operation : {"RemoveFile", "SyncDirectory"}) {
    FailingFileSystem files(PosixFileSystem());
    bool failed = false;
    files.SetRule([&](const FailingFileSystem::Call& call) {
      const bool removes = call.operation == "RemoveFile" && call.path.ends_with("/deleted.json");
      const bool syncs = call.operation == "SyncDirectory" && call.path == layout_.attempt(1, base_.attempt);
      const bool fails = operation == "RemoveFile" ? removes : syncs;
      failed = failed || fails;
      return fails ? absl::InternalError("EIO") : absl::OkStatus();
    });
    const auto opened = OpenStore(path_, &warnings_, files);
    ASSERT_THAT(opened, IsOk());
    EXPECT_TRUE(failed) << operation;
    EXPECT_EQ(ValueAt(**opened, 1), 100);
    EXPECT_THAT(
        warnings_,
        HasSubstr("a rebuild of the manifest would delete it, because its deleted.json could not be removed: EIO"));
  }
  auto store = Open();
  EXPECT_FALSE(IsMarked(base_));
  EXPECT_EQ(ValueAt(*store, 1), 100);
}

// Its mark says of a replaced attempt what the record of the step has forgotten, and nothing of the later one.
TEST_F(ForgottenDeletionTest, IsNoneOfTheAttemptThatTookThePlace) {
  {
    auto store = Open();
    const ShardIdentity replaced = CommitStep(*store, 3, 300);
    CommitReferringStep(*store, 4, replaced);
    WriteAttempt(*store, 3, 301);
    Mark(replaced);
  }
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 3), 301);
  EXPECT_EQ(ValueAt(*store, 4), 300);
  EXPECT_EQ(warnings_, "");
}

TEST_F(ForgottenDeletionTest, IsLeftToTheNextOpenWhereNobodyCanSayWhetherTheStepIsPinned) {
  const std::string pin = layout_.attempt(1, base_.attempt) + "/pin.json";
  FailingFileSystem files(PosixFileSystem());
  size_t looks = 0;
  files.SetRule([&](const FailingFileSystem::Call& call) {
    const bool fails = call.operation == "TypeOf" && call.path == pin && ++looks == 2;  // that of the deletion
    return fails ? absl::InternalError("EIO") : absl::OkStatus();
  });
  EXPECT_THAT(OpenStore(path_, &warnings_, files),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("step 1 stays, because its pin cannot be read")));
  EXPECT_EQ(looks, 2u);
  EXPECT_EQ(InfoOf(*Open(), 1).state, StepState::kDeleted);
}

TEST_F(ForgottenDeletionTest, IsRecordedByTheNextOpenWhicheverCallOfOneFails) {
  size_t refused = 0;
  const DrawnCalls drawn;
  for (size_t call = drawn.first;; call += drawn.stride) {
    SCOPED_TRACE(call);
    ASSERT_LT(call, 2000u);
    DraftFileSystem draft(PosixFileSystem(), path_);
    FailingFileSystem files(draft);
    files.FailCall(call, absl::InternalError("EIO"));
    if (!OpenStore(path_, &warnings_, files).ok()) ++refused;
    const bool met = files.calls().size() > call;
    auto store = OpenSoundStore(path_, &warnings_, draft);
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(InfoOf(*store, 1).state, StepState::kDeleted);
    EXPECT_EQ(ValueAt(*store, 2, draft), 100);
    if (!met) break;
  }
  EXPECT_GT(refused, 0u);
}

// A crash that left the shard without the mark would leave a committed step to a rebuild.
TEST_F(DeletionMarkTest, GoesOnceNothingElseInTheFolderCanComeBack) {
  const auto store = Open();
  const ShardIdentity identity = CommitStep(*store, 1, 1);
  ASSERT_THAT(WriteDeletionMark(PosixFileSystem(), layout_, FolderOf(identity), "too old"), IsOk());
  FailingFileSystem files(PosixFileSystem());
  ASSERT_THAT(RemoveAttempt(files, layout_, FolderOf(identity)), IsOk());
  EXPECT_FALSE(IsThere(identity));
  const std::string folder = layout_.attempt(identity.step, identity.attempt);
  std::vector<std::string> changes;
  for (const FailingFileSystem::Call& call : files.calls()) {
    if (call.operation.starts_with("Remove") || call.operation.starts_with("Sync")) {
      const bool inside = call.path.starts_with(folder);
      changes.push_back(call.operation + (inside ? call.path.substr(folder.size()) : " " + call.path));
    }
  }
  EXPECT_THAT(changes, testing::ElementsAre(testing::MatchesRegex("RemoveFile/shard-.*"), "SyncDirectory",
                                            "SyncDirectory " + layout_.directory(), "RemoveFile/deleted.json",
                                            "RemoveDirectory"))
      << "where it was retired, both folders have it that it is gone";
  EXPECT_THAT(RemoveAttempt(files, layout_, FolderOf(identity)), IsOk()) << "it is gone";
}

}  // namespace
}  // namespace tidemark::storage
