// What opening a store makes of a directory that is damaged, half there, or not a store.

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/store_identity.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

class RecoveryTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open() { return OpenSoundStore(path_, &warnings_); }

  absl::Status OpenStatus(FileSystem& files = PosixFileSystem()) {
    warnings_.clear();
    return OpenStore(path_, &warnings_, files).status();
  }

  std::string Folder(const ShardIdentity& identity) { return layout_.attempt(identity.step, identity.attempt); }
  std::string Quarantined(const ShardIdentity& identity) {
    return layout_.quarantine() + "/" + StepFolderName(identity.step, identity.attempt);
  }

  // Flips one bit of the attempt's only shard.
  void Flip(const ShardIdentity& identity, std::streamoff offset) {
    std::fstream file(layout_.shard(identity.step, identity.attempt, 0, 1),
                      std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const int byte = file.get();
    file.seekp(offset);
    file.put(static_cast<char>(byte ^ 0x40));
    ASSERT_TRUE(file.good());
  }

  // A store with steps 1 to 3.
  void MakeSteps() {
    auto store = Open();
    id_ = store->id();
    for (int64_t step : {1, 2, 3}) steps_.push_back(CommitStep(*store, step, 100 * step));
  }

  void ExpectSteps(const Store& store) {
    EXPECT_EQ(store.id(), id_);
    for (int64_t step : {1, 2, 3}) EXPECT_EQ(ValueAt(store, step), 100 * step) << step;
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "store";
  const StoreLayout layout_{path_};
  std::string warnings_;
  StoreId id_;
  std::vector<ShardIdentity> steps_;
};

TEST_F(RecoveryTest, LeavesADirectoryThatOnlyLooksLikeAStoreAsItIs) {
  fs::create_directories(layout_.manifest());
  std::ofstream(layout_.manifest() + "/deployment.yaml") << "kind: Deployment";
  EXPECT_THAT(OpenStatus(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                     AllOf(HasSubstr("not a Tidemark store"), HasSubstr("'manifest'"))));
  EXPECT_TRUE(fs::exists(layout_.manifest() + "/deployment.yaml"));
  EXPECT_FALSE(fs::exists(layout_.lock()));
  EXPECT_FALSE(fs::exists(layout_.steps()));
  fs::rename(layout_.manifest(), layout_.steps());
  EXPECT_THAT(OpenStatus(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("'steps'")));
}

TEST_F(RecoveryTest, KeepsAManifestThatItCannotReadWhereThereAreNoSteps) {
  Open();
  std::ofstream(layout_.manifest() + "/CURRENT") << "garbage";
  Open();
  EXPECT_THAT(warnings_, HasSubstr("it was moved to"));
  size_t kept = 0;
  for (const auto& entry : fs::directory_iterator(path_)) {
    kept += entry.path().filename().string().starts_with("manifest.broken-") && fs::exists(entry.path() / "CURRENT");
  }
  EXPECT_EQ(kept, 1u);
}

TEST_F(RecoveryTest, KeepsItsIdThroughAnyFlippedBitOfStoreJson) {
  MakeSteps();
  const std::string text = EncodeStoreIdentity(id_);
  const size_t id_at = text.find(ToHex(id_.bytes));
  for (const bool with_manifest : {true, false}) {
    std::string flipped = text;
    flipped[id_at] = flipped[id_at] == '1' ? '0' : '1';
    std::ofstream(layout_.identity()) << flipped;
    if (!with_manifest) fs::remove_all(layout_.manifest());
    ExpectSteps(*Open());
    EXPECT_THAT(warnings_, HasSubstr("store.json was rewritten"));
  }
}

TEST_F(RecoveryTest, RefusesADamagedStoreJsonThatNothingElseExplains) {
  fs::create_directories(path_);
  std::ofstream(layout_.identity()) << "{";
  EXPECT_THAT(OpenStatus(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("neither the manifest nor a shard")));
  EXPECT_EQ(fs::file_size(layout_.identity()), 1u);
}

TEST_F(RecoveryTest, TakesTheIdThatManifestAndShardsAgreeOn) {
  MakeSteps();
  std::ofstream(layout_.identity()) << EncodeStoreIdentity(StoreId{{1}});
  ExpectSteps(*Open());
  EXPECT_THAT(warnings_, HasSubstr("the shards agree with the manifest"));
  ExpectSteps(*Open());
  EXPECT_EQ(warnings_, "");
}

TEST_F(RecoveryTest, NeverSwapsInAManifestWithoutTheStepsOfAnotherStore) {
  MakeSteps();
  std::ofstream(layout_.identity()) << EncodeStoreIdentity(StoreId{{1}});
  fs::remove_all(layout_.manifest());
  EXPECT_THAT(OpenStatus(), StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("another store")));
  EXPECT_FALSE(fs::exists(layout_.manifest()));
  fs::remove(layout_.identity());
  ExpectSteps(*Open());
}

TEST_F(RecoveryTest, MintsNoIdWhereItCouldNotLook) {
  MakeSteps();
  FailingFileSystem files(PosixFileSystem());
  files.FailOperation("OpenForRead", absl::InternalError("EIO"));
  EXPECT_THAT(OpenStatus(files), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  // The one after the manifest's fails to say: the shards are asked, and cannot be read.
  fs::remove(layout_.identity());
  fs::rename(layout_.manifest(), directory_ / "manifest");
  files.SetRule([](const FailingFileSystem::Call& call) {
    return call.operation == "OpenForRead" && call.path.ends_with(".tmk") ? absl::InternalError("EIO")
                                                                          : absl::OkStatus();
  });
  EXPECT_THAT(OpenStatus(files), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  EXPECT_FALSE(fs::exists(layout_.identity()));
  fs::rename(directory_ / "manifest", layout_.manifest());
  ExpectSteps(*Open());
}

TEST_F(RecoveryTest, SyncsTheNamesThatACrashMayHaveLeftUnsynced) {
  MakeSteps();
  FailingFileSystem files(PosixFileSystem());
  ASSERT_THAT(OpenStatus(files), IsOk());
  const auto synced = [&](const std::string& path) {
    const auto calls = files.calls();
    return std::any_of(calls.begin(), calls.end(), [&](const FailingFileSystem::Call& call) {
      return call.operation == "SyncDirectory" && call.path == path;
    });
  };
  EXPECT_TRUE(synced(directory_.path()));
  EXPECT_TRUE(synced(path_));
}

TEST_F(RecoveryTest, SyncsTheNameOfQuarantineBeforeItIsUsed) {
  MakeSteps();
  fs::resize_file(layout_.shard(2, steps_[1].attempt, 0, 1), 5000);
  fs::remove_all(layout_.manifest());
  FailingFileSystem files(PosixFileSystem());
  ASSERT_THAT(OpenStatus(files), IsOk());
  const auto calls = files.calls();
  const auto created = std::find_if(calls.begin(), calls.end(), [&](const FailingFileSystem::Call& call) {
    return call.operation == "CreateDirectory" && call.path == layout_.quarantine();
  });
  const auto moved = std::find_if(calls.begin(), calls.end(), [&](const FailingFileSystem::Call& call) {
    return call.operation == "Rename" && call.path == Quarantined(steps_[1]);
  });
  EXPECT_TRUE(std::any_of(created, moved, [&](const FailingFileSystem::Call& call) {
    return call.operation == "SyncDirectory" && call.path == path_;
  }));
  EXPECT_LT(created, moved);
  EXPECT_NE(moved, calls.end());
}

constexpr std::streamoff kVersionOffset = 8;  // of the header

TEST_F(RecoveryTest, LeavesAShardOfANewerVersionWhereItIs) {
  MakeSteps();
  ShardIdentity unrecorded;
  {
    auto store = Open();
    unrecorded = WriteAttempt(*store, 4, 400);
  }
  Flip(unrecorded, kVersionOffset);
  Flip(steps_[1], kVersionOffset);
  Open();
  EXPECT_THAT(warnings_, AllOf(HasSubstr("left alone"), HasSubstr("newer")));
  EXPECT_TRUE(fs::exists(Folder(unrecorded)));
  fs::remove_all(layout_.manifest());
  auto store = Open();
  EXPECT_TRUE(fs::exists(Folder(unrecorded)));
  EXPECT_TRUE(fs::exists(Folder(steps_[1])));
  EXPECT_EQ(ValueAt(*store, 1), 100);
  EXPECT_EQ(ValueAt(*store, 3), 300);
}

TEST_F(RecoveryTest, OpensWithFilesThatItCannotRemoveAndKeepsTheirMark) {
  MakeSteps();
  FailingFileSystem files(PosixFileSystem());
  {
    auto store = OpenStore(path_, &warnings_, files);
    ASSERT_THAT(store, IsOk());
    files.FailOperation("RemoveDirectory", absl::InternalError("EIO"));
    CommitStep(**store, 1, 101);
  }
  files.FailOperation("RemoveDirectory", absl::InternalError("EIO"));
  {
    auto store = OpenStore(path_, &warnings_, files);
    ASSERT_THAT(store, IsOk());
    EXPECT_THAT(warnings_, HasSubstr("old files are still there"));
    EXPECT_EQ((*store)->manifest().Deletions()->size(), 1u);
  }
  EXPECT_TRUE(Open()->manifest().Deletions()->empty());
  EXPECT_FALSE(fs::exists(Folder(steps_[0])));
}

TEST_F(RecoveryTest, SaysWhatItTakesAwayAndKeepsWhatHasAnIndex) {
  MakeSteps();
  ShardIdentity torn, rotten;
  {
    auto store = Open();
    torn = WriteAttempt(*store, 4, 400);
    rotten = WriteAttempt(*store, 5, 500);
  }
  fs::resize_file(layout_.shard(4, torn.attempt, 0, 1), 5000);
  Flip(rotten, 4096);
  ExpectSteps(*Open());
  EXPECT_THAT(warnings_, AllOf(HasSubstr("note: removed the unfinished save of step 4 "
                                         "(the previous process ended before it was committed)\n"),
                               HasSubstr(StepFolderName(5, rotten.attempt) +
                                         " was never committed and is moved to quarantine: ")));
  EXPECT_FALSE(fs::exists(Folder(torn)));
  EXPECT_FALSE(fs::exists(Folder(rotten)));
  EXPECT_TRUE(fs::exists(Quarantined(rotten)));
}

TEST_F(RecoveryTest, GivesUpNoAttemptForADamagedOneInARebuild) {
  MakeSteps();
  ShardIdentity later;
  {
    auto store = Open();
    later = WriteAttempt(*store, 2, 201);
    CommitStep(*store, 4, 400);  // so that the damaged one is not the last of all
  }
  Flip(later, 4096);
  fs::remove_all(layout_.manifest());
  ExpectSteps(*Open());
  EXPECT_TRUE(fs::exists(Quarantined(later)));
}

// An error says nothing about what is on disk: whichever call fails, the next Open has every committed step.
TEST_F(RecoveryTest, LosesNothingWhicheverCallOfARebuildFails) {
  MakeSteps();
  size_t opened = 0;
  const DrawnCalls drawn;
  for (size_t call = drawn.first; opened < 3; call += drawn.stride) {
    SCOPED_TRACE(call);
    ASSERT_LT(call, 1000u);
    fs::remove_all(layout_.manifest());
    FailingFileSystem files(PosixFileSystem());
    files.FailCall(call, absl::InternalError("EIO"));
    // Where it opens all the same, the call was past the end, or one of those that may fail.
    opened = OpenStatus(files).ok() ? opened + 1 : 0;
    ExpectSteps(*Open());
    ASSERT_FALSE(fs::exists(layout_.quarantine())) << warnings_;
  }
}

TEST_F(RecoveryTest, LosesNothingWhicheverCallOfAnAdoptionFails) {
  MakeSteps();
  size_t opened = 0;
  const DrawnCalls drawn;
  for (size_t call = drawn.first; opened < 3; call += drawn.stride) {
    SCOPED_TRACE(call);
    ASSERT_LT(call, 1000u);
    const int64_t value = 1000 + static_cast<int64_t>(call);
    { WriteAttempt(*Open(), 4, value); }
    FailingFileSystem files(PosixFileSystem());
    files.FailCall(call, absl::InternalError("EIO"));
    opened = OpenStatus(files).ok() ? opened + 1 : 0;
    auto store = Open();
    ExpectSteps(*store);
    EXPECT_EQ(ValueAt(*store, 4), value);
    ASSERT_FALSE(fs::exists(layout_.quarantine())) << warnings_;
  }
}

TEST_F(RecoveryTest, MarksNoAttemptThatWasReplacedMeanwhile) {
  auto store = Open();
  constexpr int kRounds = 100;
  std::vector<StepRecord> records;
  for (int i = 0; i < kRounds; ++i) {
    const ShardIdentity identity = WriteAttempt(*store, 5, i);
    auto attempt = ReadAttempt(PosixFileSystem(), layout_, store->id(), {5, identity.attempt});
    ASSERT_THAT(attempt, IsOk());
    records.push_back(attempt->record);
  }
  std::atomic<bool> done = false;
  std::thread marker([&] {
    while (!done) {
      auto record = store->manifest().Find(5);
      if (!record.ok() || !record->has_value()) continue;
      store->MarkStep(5, (*record)->info.attempt, StepState::kDamaged, "x").IgnoreError();
    }
  });
  int overwritten = 0;
  for (const StepRecord& record : records) {
    EXPECT_THAT(store->CommitAttempt(record), IsOk());
    overwritten += (*store->manifest().Find(5))->info.attempt != record.info.attempt ? 1 : 0;
  }
  done = true;
  marker.join();
  EXPECT_EQ(overwritten, 0);
}

}  // namespace
}  // namespace tidemark::storage
