#include "storage/manifest/store.h"

#include <sys/mount.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

class StoreTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open() { return OpenSoundStore(path_, &warnings_); }

  size_t Folders() {
    size_t count = 0;
    for ([[maybe_unused]] const auto& folder : fs::directory_iterator(layout_.steps())) ++count;
    return count;
  }

  std::string Folder(const ShardIdentity& identity) { return layout_.attempt(identity.step, identity.attempt); }

  TestDirectory directory_;
  const std::string path_ = directory_ / "a/b/store";
  const StoreLayout layout_{path_};
  std::string warnings_;
};

TEST_F(StoreTest, IsMadeWithItsParentsAndKeepsItsId) {
  const StoreId id = Open()->id();
  EXPECT_EQ(Open()->id(), id);
  EXPECT_EQ(warnings_, "");
  EXPECT_EQ(fs::status(path_).permissions() & fs::perms::others_all, fs::perms::none);
}

// Another trainer may hold the store that is in its place, and the record would be that one's.
TEST_F(StoreTest, RecordsNoBestModeOnceItWasMoved) {
  const std::unique_ptr<Store> store = Open();
  ASSERT_THAT(store->AddBestModes({{"a", BestMode::kLowest}}), IsOk());
  fs::rename(path_, path_ + ".old");
  EXPECT_THAT(store->AddBestModes({{"b", BestMode::kHighest}}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("was moved or replaced")));
  EXPECT_THAT(*store->manifest().RecordedBestModes(), testing::SizeIs(1));
}

// A trainer that starts while an operator pins a step.
class HeldStoreTest : public StoreTest {
 protected:
  HeldStoreTest() {
    Open();
    holder_ = *PosixFileSystem().TryLock(layout_.lock());
    files_.SetGate([this](const std::string& operation, const std::string& path) {
      if (operation == "TryLock" && path == layout_.lock()) on_try_(++tries_);
    });
  }
  absl::StatusOr<std::unique_ptr<Store>> OpenWaiting(bool awaits_inspect = true) {
    return Store::Open(files_, {.directory = path_, .warn = [](std::string_view) {}, .awaits_inspect = awaits_inspect});
  }
  static std::string NoteOf(const std::string& program) { return R"({"pid":1,"program":")" + program + "\"}\n"; }

  FailingFileSystem files_{PosixFileSystem()};
  std::unique_ptr<FileLock> holder_;
  std::function<void(int tries)> on_try_ = [](int) {};
  int tries_ = 0;
};

TEST_F(HeldStoreTest, AwaitsCheckpointInspectWhichReleasesItSoon) {
  ASSERT_THAT(holder_->WriteNote(NoteOf("checkpoint-inspect")), IsOk());
  on_try_ = [&](int tries) {
    if (tries == 4) holder_.reset();
  };
  EXPECT_THAT(OpenWaiting(), IsOk());
  EXPECT_EQ(tries_, 4);
}

TEST_F(HeldStoreTest, AwaitsNoOtherProgram) {
  ASSERT_THAT(holder_->WriteNote(NoteOf("train")), IsOk());
  EXPECT_THAT(OpenWaiting(), StatusIs(absl::StatusCode::kUnavailable,
                                      AllOf(HasSubstr("open for writing elsewhere"), HasSubstr("train"))));
  EXPECT_EQ(tries_, 1);
}

TEST_F(HeldStoreTest, AwaitsTheNoteOfAHolderThatHasJustTakenIt) {
  on_try_ = [&](int tries) {
    if (tries == 3) holder_->WriteNote(NoteOf("train")).IgnoreError();
  };
  EXPECT_THAT(OpenWaiting(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("train")));
  EXPECT_EQ(tries_, 3);
}

TEST_F(HeldStoreTest, AwaitsNobodyUnlessItIsTold) {
  ASSERT_THAT(holder_->WriteNote(NoteOf("checkpoint-inspect")), IsOk());
  EXPECT_THAT(OpenWaiting(/*awaits_inspect=*/false),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("checkpoint-inspect")));
  EXPECT_EQ(tries_, 1);
}

// A database that cannot be opened to be read is tried many times.
TEST_F(StoreTest, OpensNoManifestWhereThereIsNone) {
  FailingFileSystem files(PosixFileSystem());
  ASSERT_THAT(OpenStore(path_, &warnings_, files), IsOk());
  for (const FailingFileSystem::Call& call : files.calls()) {
    if (call.operation == "CreateDirectory" && call.path == layout_.manifest()) return;
    EXPECT_FALSE(call.path.starts_with(layout_.manifest() + "/")) << call.operation << " " << call.path;
  }
  FAIL() << "no manifest was made";
}

TEST_F(StoreTest, TakesADirectoryWithATrailingSlash) {
  Open();
  auto store = OpenStore(path_ + "//", &warnings_);
  ASSERT_THAT(store, IsOk());
  EXPECT_EQ((*store)->layout().directory(), path_);
}

TEST_F(StoreTest, CommitsAndFindsSteps) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100);
    CommitStep(*store, 2, 200);
  }
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 1), 100);
  EXPECT_EQ(ValueAt(*store, 2), 200);
  EXPECT_EQ(warnings_, "");
}

TEST_F(StoreTest, GivesEveryAttemptAHigherSequence) {
  uint64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    auto store = Open();
    const ShardIdentity one = CommitStep(*store, 10 + i, 1);
    const ShardIdentity two = CommitStep(*store, 20 + i, 1);
    EXPECT_GT(one.sequence, last);
    EXPECT_GT(two.sequence, one.sequence);
    last = two.sequence;
  }
}

TEST_F(StoreTest, AdoptsACompleteAttemptWithoutARecord) {
  ShardIdentity identity;
  {
    auto store = Open();
    identity = WriteAttempt(*store, 5, 55);
  }
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 5), 55);
  EXPECT_GT(CommitStep(*store, 6, 66).sequence, identity.sequence);
}

TEST_F(StoreTest, RemovesAnIncompleteAttempt) {
  {
    auto store = Open();
    CommitStep(*store, 4, 44);
    ASSERT_THAT(store->BeginAttempt(5), IsOk());  // no shard at all
    const ShardIdentity torn = WriteAttempt(*store, 6, 66);
    fs::resize_file(layout_.shard(6, torn.attempt, 0, 1), 5000);
    const ShardIdentity unsynced = WriteAttempt(*store, 7, 77);  // index on disk, data not
    std::fstream file(layout_.shard(7, unsynced.attempt, 0, 1), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(4096);
    file.put('\xff');
  }
  auto store = Open();
  EXPECT_EQ(Folders(), 1u);
  EXPECT_EQ(ValueAt(*store, 4), 44);
  for (int64_t step : {5, 6, 7}) EXPECT_FALSE(store->manifest().Find(step)->has_value()) << step;
}

TEST_F(StoreTest, MarksARecordWithoutFilesLostAndTakesItBackWhenTheyReturn) {
  ShardIdentity identity;
  {
    auto store = Open();
    CommitStep(*store, 1, 100);
    identity = CommitStep(*store, 2, 200);
  }
  fs::rename(Folder(identity), directory_ / "aside");
  EXPECT_EQ((*Open()->manifest().Find(2))->info.state, StepState::kLost);
  EXPECT_THAT(warnings_, AllOf(HasSubstr("step 2 is lost"), HasSubstr(StepFolderName(2, identity.attempt))));
  EXPECT_EQ((*Open()->manifest().Find(2))->info.state, StepState::kLost);
  EXPECT_EQ(warnings_, "") << "said once";
  fs::rename(directory_ / "aside", Folder(identity));
  EXPECT_EQ(ValueAt(*Open(), 2), 200);
}

TEST_F(StoreTest, KeepsTheOldAttemptUntilTheNewOneIsCommitted) {
  auto store = Open();
  const ShardIdentity old = CommitStep(*store, 5, 1);
  const ShardIdentity fresh = WriteAttempt(*store, 5, 2);
  EXPECT_EQ(ValueAt(*store, 5), 1);
  auto attempt = ReadAttempt(PosixFileSystem(), layout_, store->id(), {5, fresh.attempt});
  ASSERT_THAT(attempt, IsOk());
  ASSERT_THAT(store->CommitAttempt(attempt->record), IsOk());
  EXPECT_EQ(ValueAt(*store, 5), 2);
  EXPECT_FALSE(fs::exists(Folder(old)));
  EXPECT_TRUE(store->manifest().Deletions()->empty());
}

TEST_F(StoreTest, FinishesADeletionThatAKillCutShort) {
  ShardIdentity old;
  {
    FailingFileSystem files(PosixFileSystem());
    auto store = OpenStore(path_, &warnings_, files);
    ASSERT_THAT(store, IsOk());
    old = CommitStep(**store, 5, 1);
    files.FailOperation("RemoveDirectory", absl::InternalError("EIO"));
    CommitStep(**store, 5, 2);
    EXPECT_THAT(warnings_, HasSubstr("step 5 was replaced, but its old files are still there"));
    EXPECT_TRUE(fs::exists(Folder(old)));
  }
  auto store = Open();
  EXPECT_FALSE(fs::exists(Folder(old)));
  EXPECT_TRUE(store->manifest().Deletions()->empty());
  EXPECT_EQ(ValueAt(*store, 5), 2);
}

TEST_F(StoreTest, KeepsTheFilesOfAReplacedAttemptThatALaterStepRefersTo) {
  ShardIdentity old;
  {
    auto store = Open();
    old = CommitStep(*store, 5, 1);
    const ShardIdentity user = WriteAttempt(*store, 6, 6);
    auto attempt = ReadAttempt(PosixFileSystem(), layout_, store->id(), {6, user.attempt});
    ASSERT_THAT(attempt, IsOk());
    attempt->record.references = {{.step = 5, .attempt = old.attempt}};
    ASSERT_THAT(store->CommitAttempt(attempt->record), IsOk());
    CommitStep(*store, 5, 2);
    EXPECT_TRUE(fs::exists(Folder(old)));
  }
  auto store = Open();
  EXPECT_TRUE(fs::exists(Folder(old)));
  EXPECT_EQ(ValueAt(*store, 5), 2);
  // The user goes, and with it the reason to keep them.
  CommitStep(*store, 6, 7);
  store.reset();
  Open();
  EXPECT_FALSE(fs::exists(Folder(old)));
}

TEST_F(StoreTest, PrefersTheLaterOfTwoCompleteAttempts) {
  {
    auto store = Open();
    CommitStep(*store, 5, 1);
    WriteAttempt(*store, 5, 2);
  }
  EXPECT_EQ(ValueAt(*Open(), 5), 2);
  EXPECT_EQ(Folders(), 1u);
}

TEST_F(StoreTest, RecordsWhyASaveFailed) {
  auto store = Open();
  auto identity = store->BeginAttempt(9);
  ASSERT_THAT(identity, IsOk());
  store->AbandonAttempt(*identity, absl::FromUnixSeconds(77), absl::ResourceExhaustedError("disk full"));
  EXPECT_FALSE(fs::exists(Folder(*identity)));
  EXPECT_EQ((*store->manifest().Find(9))->info.state, StepState::kFailed);
  EXPECT_THAT((*store->manifest().Find(9))->info.reason, HasSubstr("disk full"));
  EXPECT_EQ((*store->manifest().Find(9))->info.created, absl::FromUnixSeconds(77));
  // A step that is committed stays so.
  CommitStep(*store, 10, 1);
  identity = store->BeginAttempt(10);
  ASSERT_THAT(identity, IsOk());
  store->AbandonAttempt(*identity, absl::FromUnixSeconds(77), absl::ResourceExhaustedError("disk full"));
  EXPECT_EQ(ValueAt(*store, 10), 1);
}

TEST_F(StoreTest, MarksOnlyTheAttemptThatWasMeant) {
  auto store = Open();
  const ShardIdentity identity = CommitStep(*store, 5, 1);
  EXPECT_THAT(store->MarkStep(5, "another", StepState::kDamaged, "x"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("another")));
  ASSERT_THAT(store->MarkStep(5, ToHex(identity.attempt.bytes), StepState::kDamaged, "bit rot"), IsOk());
  EXPECT_EQ((*store->manifest().Find(5))->info.reason, "bit rot");
}

TEST_F(StoreTest, RebuildsAManifestThatIsGone) {
  StoreId id;
  {
    auto store = Open();
    id = store->id();
    for (int64_t step : {1, 2, 3}) CommitStep(*store, step, 100 * step);
  }
  fs::remove_all(layout_.manifest());
  auto store = Open();
  EXPECT_THAT(warnings_, HasSubstr("rebuilt from the shards: 3 complete attempts"));
  EXPECT_EQ(store->id(), id);
  for (int64_t step : {1, 2, 3}) EXPECT_EQ(ValueAt(*store, step), 100 * step);
  EXPECT_EQ((*store->manifest().Find(2))->info.metrics.at("loss"), 200);
  CommitStep(*store, 4, 400);
  store.reset();
  EXPECT_EQ(ValueAt(*Open(), 4), 400);
  EXPECT_EQ(warnings_, "");
}

TEST_F(StoreTest, RebuildsAManifestThatCannotBeRead) {
  {
    auto store = Open();
    CommitStep(*store, 1, 100);
  }
  std::ofstream(layout_.manifest() + "/CURRENT") << "garbage";
  auto store = Open();
  EXPECT_EQ(ValueAt(*store, 1), 100);
  // The old one is kept for whoever wants to know what happened.
  size_t kept = 0;
  for (const auto& entry : fs::directory_iterator(path_))
    kept += entry.path().filename().string().starts_with("manifest.broken-") ? 1 : 0;
  EXPECT_EQ(kept, 1u);
}

TEST_F(StoreTest, RebuildsAManifestOfAnotherStore) {
  { CommitStep(*Open(), 1, 100); }
  const std::string other_path = directory_ / "other";
  std::string ignored;
  ASSERT_THAT(OpenStore(other_path, &ignored), IsOk());
  fs::remove_all(layout_.manifest());
  fs::copy(other_path + "/manifest", layout_.manifest(), fs::copy_options::recursive);
  EXPECT_EQ(ValueAt(*Open(), 1), 100);
  EXPECT_THAT(warnings_, HasSubstr("is that of store"));
}

TEST_F(StoreTest, TakesTheLaterAttemptOfAStepInARebuild) {
  {
    auto store = Open();
    CommitStep(*store, 5, 1);
    WriteAttempt(*store, 5, 2);
  }
  fs::remove_all(layout_.manifest());
  EXPECT_EQ(ValueAt(*Open(), 5), 2);
  EXPECT_EQ(Folders(), 1u);
}

TEST_F(StoreTest, MovesWhatItCannotReadToQuarantineInARebuild) {
  ShardIdentity torn;
  {
    auto store = Open();
    CommitStep(*store, 1, 100);
    torn = CommitStep(*store, 2, 200);
  }
  fs::resize_file(layout_.shard(2, torn.attempt, 0, 1), 5000);
  fs::remove_all(layout_.manifest());
  auto store = Open();
  EXPECT_THAT(warnings_, HasSubstr("step 2 is incomplete or damaged and was moved to quarantine"));
  EXPECT_EQ(ValueAt(*store, 1), 100);
  EXPECT_TRUE(fs::exists(layout_.quarantine() + "/" + StepFolderName(2, torn.attempt)));
}

TEST_F(StoreTest, LeavesTheAttemptsOfAnotherStoreAlone) {
  const std::string other_path = directory_ / "other";
  std::string ignored;
  auto other = OpenStore(other_path, &ignored);
  ASSERT_THAT(other, IsOk());
  const ShardIdentity foreign = CommitStep(**other, 8, 8);
  Open();
  fs::copy((*other)->layout().attempt(8, foreign.attempt), Folder(foreign), fs::copy_options::recursive);
  fs::create_directory(layout_.steps() + "/notes");
  auto store = Open();
  EXPECT_THAT(warnings_,
              AllOf(HasSubstr("left alone"), HasSubstr("belongs to store"), HasSubstr("notes is not an attempt")));
  EXPECT_TRUE(fs::exists(Folder(foreign)));
  EXPECT_FALSE(store->manifest().Find(8)->has_value());
}

TEST_F(StoreTest, WritesALostIdentityAnewFromWhatItHolds) {
  StoreId id;
  {
    auto store = Open();
    id = store->id();
    CommitStep(*store, 1, 100);
  }
  fs::remove(layout_.identity());
  EXPECT_EQ(Open()->id(), id);
  EXPECT_THAT(warnings_, HasSubstr("store.json was rewritten"));
  fs::remove(layout_.identity());
  fs::remove_all(layout_.manifest());
  auto store = Open();
  EXPECT_EQ(store->id(), id);
  EXPECT_EQ(ValueAt(*store, 1), 100);
}

TEST_F(StoreTest, StartsOverWhereItsCreationWasCutShort) {
  Open();
  fs::remove_all(layout_.manifest());
  fs::create_directories(layout_.manifest());
  std::ofstream(layout_.manifest() + "/CURRENT") << "MANIFEST-0000";
  auto store = Open();
  CommitStep(*store, 1, 100);
  EXPECT_EQ(ValueAt(*store, 1), 100);
}

TEST_F(StoreTest, RemovesARebuildThatWasCutShort) {
  Open();
  fs::create_directories(layout_.manifest() + ".rebuilt-0123");
  Open();
  EXPECT_FALSE(fs::exists(layout_.manifest() + ".rebuilt-0123"));
}

TEST_F(StoreTest, RefusesADirectoryThatItMayNotWrite) {
  fs::create_directories(path_);
  fs::permissions(directory_.path(), fs::perms::all);
  fs::permissions(path_,
                  fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read | fs::perms::others_exec);
  EXPECT_THAT(InChild([&] {
                if (!GiveUpRights()) return std::string("may not give up its rights");
                return OpenStore(path_, &warnings_).status().ToString();
              }),
              AllOf(HasSubstr("PERMISSION_DENIED"), HasSubstr(path_)));
  EXPECT_TRUE(fs::is_empty(path_));
}

TEST_F(StoreTest, RefusesADirectoryWithoutRoomAndWorksOnceThereIs) {
  fs::create_directories(path_);
  const std::string outcome = InChild([&] {
    if (!EnterMountNamespace() || mount("none", path_.c_str(), "tmpfs", 0, "size=256k") != 0)
      return std::string("SKIP");
    const std::string filler = path_ + "/.filler";
    std::ofstream(filler) << std::string(1 << 20, 'x');  // as much of it as fits
    std::string full = OpenStore(path_, &warnings_).status().ToString();
    fs::remove(filler);
    auto store = OpenStore(path_, &warnings_);
    return full + " then " + store.status().ToString();
  });
  if (outcome == "SKIP") GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_THAT(outcome, AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr(path_), HasSubstr("then OK")));
}

TEST_F(StoreTest, CommitsAgainAfterTheDiskWasFull) {
  fs::create_directories(path_);
  const std::string outcome = InChild([&] {
    if (!EnterMountNamespace() || mount("none", path_.c_str(), "tmpfs", 0, "size=2m") != 0) return std::string("SKIP");
    auto store = OpenStore(path_, &warnings_);
    if (!store.ok()) return store.status().ToString();
    const ShardIdentity first = CommitStep(**store, 1, 100);
    auto attempt = ReadAttempt(PosixFileSystem(), layout_, (*store)->id(), {1, first.attempt});
    if (!attempt.ok()) return attempt.status().ToString();
    std::ofstream(path_ + "/.filler") << std::string(4 << 20, 'x');
    // The manifest's log has a little room left in its last page.
    absl::Status full;
    for (int i = 0; full.ok() && i < 1000; ++i) full = (*store)->CommitAttempt(attempt->record);
    const int64_t while_full = ValueAt(**store, 1);
    fs::remove(path_ + "/.filler");
    CommitStep(**store, 2, 200);
    store->reset();
    store = OpenStore(path_, &warnings_);
    if (!store.ok()) return store.status().ToString();
    return full.ToString() + fmt::format(" then {}, {}, {}", while_full, ValueAt(**store, 1), ValueAt(**store, 2));
  });
  if (outcome == "SKIP") GTEST_SKIP() << "mounting is not allowed here";
  EXPECT_THAT(outcome, AllOf(HasSubstr("RESOURCE_EXHAUSTED"), HasSubstr("then 100, 100, 200")));
}

}  // namespace
}  // namespace tidemark::storage
