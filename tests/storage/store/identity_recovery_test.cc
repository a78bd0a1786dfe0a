// Which store a directory is, where store.json is damaged or gone, or where the directory is no store.

#include "storage/store/identity_recovery.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/store_identity.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::HasSubstr;

namespace fs = std::filesystem;

class IdentityRecoveryTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open() { return OpenSoundStore(path_, &warnings_); }

  absl::Status OpenStatus(FileSystem& files = PosixFileSystem()) {
    warnings_.clear();
    return OpenStore(path_, &warnings_, files).status();
  }

  // A store with steps 1 to 3.
  void MakeSteps() {
    auto store = Open();
    id_ = store->id();
    for (const int64_t step : {1, 2, 3}) CommitStep(*store, step, 100 * step);
  }

  void ExpectSteps(const Store& store) {
    EXPECT_EQ(store.id(), id_);
    for (const int64_t step : {1, 2, 3}) EXPECT_EQ(ValueAt(store, step), 100 * step) << step;
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "store";
  const StoreLayout layout_{path_};
  std::string warnings_;
  StoreId id_;
};

TEST_F(IdentityRecoveryTest, LeavesADirectoryThatOnlyLooksLikeAStoreAsItIs) {
  for (const std::string& folder : {layout_.manifest(), layout_.journal(), layout_.steps()}) {
    fs::create_directories(folder);
    std::ofstream(folder + "/deployment.yaml") << "kind: Deployment";
    const std::string name = folder.substr(path_.size() + 1);
    EXPECT_THAT(OpenStatus(), StatusIs(StatusCode::kFailedPrecondition,
                                       AllOf(HasSubstr("not a Tidemark store"), HasSubstr("'" + name + "'"))));
    EXPECT_TRUE(fs::exists(folder + "/deployment.yaml"));
    EXPECT_FALSE(fs::exists(layout_.lock()));
    fs::remove_all(path_);
  }
}

TEST_F(IdentityRecoveryTest, KeepsItsIdWhateverBecomesOfStoreJson) {
  MakeSteps();
  const std::string text = *ReadSmallFile(PosixFileSystem(), layout_.identity(), 1000);
  for (size_t at = text.find(ToHex(id_.bytes)); at <= text.size(); at += 9) {
    std::string changed = text.substr(0, at);
    if (at < text.size()) changed = text, changed[at] = static_cast<char>(changed[at] ^ 1);
    std::ofstream(layout_.identity()) << (at == text.size() ? "" : changed);
    ExpectSteps(*Open());
    EXPECT_THAT(warnings_, HasSubstr("store.json was rewritten"));
  }
  fs::remove(layout_.identity());
  ExpectSteps(*Open());
  EXPECT_THAT(warnings_, HasSubstr("store.json was rewritten"));
  EXPECT_EQ(*ReadSmallFile(PosixFileSystem(), layout_.identity(), 1000), text);
}

TEST_F(IdentityRecoveryTest, RefusesADamagedStoreJsonThatNothingElseExplains) {
  fs::create_directories(path_);
  std::ofstream(layout_.identity()) << "{";
  EXPECT_THAT(OpenStatus(), StatusIs(StatusCode::kDataLoss, HasSubstr("nor a shard has the store's id")));
  EXPECT_EQ(fs::file_size(layout_.identity()), 1u);
}

TEST_F(IdentityRecoveryTest, MintsNoIdWhereItCouldNotLook) {
  MakeSteps();
  FailingFileSystem files(PosixFileSystem());
  files.FailOperation("OpenForRead", absl::InternalError("EIO"));
  EXPECT_THAT(OpenStatus(files), StatusIs(StatusCode::kInternal, HasSubstr("EIO")));
  fs::remove(layout_.identity());
  // Of the index, then of the shards where there is none.
  for (const char* name : {"/index/CURRENT", ".tmk"}) {
    files.SetRule([&](const FailingFileSystem::Call& call) {
      return call.operation == "OpenForRead" && call.path.ends_with(name) ? absl::InternalError("EIO")
                                                                          : absl::OkStatus();
    });
    EXPECT_THAT(OpenStatus(files), StatusIs(StatusCode::kInternal, HasSubstr("EIO"))) << name;
    fs::remove_all(layout_.index());
  }
  EXPECT_FALSE(fs::exists(layout_.identity()));
  ExpectSteps(*Open());
}

TEST_F(IdentityRecoveryTest, SyncsTheNamesThatACrashMayHaveLeftUnsynced) {
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

}  // namespace
}  // namespace tidemark::storage
