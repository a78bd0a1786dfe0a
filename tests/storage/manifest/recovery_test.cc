// What opening a store makes of a directory that is damaged, half there, or not a store.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/store_identity.h"
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
  std::unique_ptr<Store> Open() {
    warnings_.clear();
    auto store = OpenStore(path_, &warnings_);
    EXPECT_THAT(store, IsOk());
    return store.ok() ? *std::move(store) : nullptr;
  }

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
  EXPECT_THAT(warnings_, HasSubstr("it is kept as"));
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
    EXPECT_THAT(warnings_, HasSubstr("store.json was written anew"));
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

}  // namespace
}  // namespace tidemark::storage
