// What opening a store saves itself after the store was closed in good order, and what it never does.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/write_batch.h"
#include "storage/manifest/database.h"
#include "storage/manifest/index_keys.h"
#include "storage/records/manifest_records.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"
#include "tests/storage/manifest/unwritable_files.h"

namespace tidemark::storage {
namespace {

using testing::_;
using testing::HasSubstr;

namespace fs = std::filesystem;

class CleanCloseTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open() {
    warnings_.clear();
    files_.Reset();
    auto store = OpenStore(path_, &warnings_, files_);
    EXPECT_THAT(store, IsOk());
    return store.ok() ? *std::move(store) : nullptr;
  }

  // Opens the store. Whether it looked at every step.
  bool LooksAtEverything(std::unique_ptr<Store>* opened = nullptr) {
    std::unique_ptr<Store> store = Open();
    const auto calls = files_.calls();
    if (opened != nullptr) *opened = std::move(store);
    return std::any_of(calls.begin(), calls.end(), [&](const FailingFileSystem::Call& call) {
      return call.operation == "ListDirectory" && call.path == layout_.steps();
    });
  }

  bool HasMark() {
    auto manifest = Manifest::OpenReadOnly(PosixFileSystem(), layout_.manifest());
    EXPECT_THAT(manifest, IsOk());
    return (*manifest)->Settled()->has_value();
  }

  // A store with steps 1 and 2, closed.
  void MakeSteps() {
    auto store = Open();
    first_ = CommitStep(*store, 1, 100);
    CommitStep(*store, 2, 200);
  }

  TestDirectory directory_;
  const std::string path_ = directory_ / "store";
  const StoreLayout layout_{path_};
  FailingFileSystem files_{PosixFileSystem()};
  std::string warnings_;
  ShardIdentity first_;
};

TEST_F(CleanCloseTest, IsOpenedWithoutALookAtTheSteps) {
  MakeSteps();
  for (int i = 0; i < 3; ++i) {
    std::unique_ptr<Store> store;
    EXPECT_FALSE(LooksAtEverything(&store));
    EXPECT_EQ(ValueAt(*store, 1), 100);
    EXPECT_EQ(ValueAt(*store, 2), 200);
    EXPECT_EQ(warnings_, "");
  }
  const ShardIdentity next = CommitStep(*Open(), 3, 300);
  EXPECT_GT(next.sequence, first_.sequence + 1);
  EXPECT_FALSE(LooksAtEverything());
}

TEST_F(CleanCloseTest, HasNoMarkWhileAnythingIsUnderWay) {
  MakeSteps();
  {
    auto store = Open();
    EXPECT_TRUE(HasMark());
    ASSERT_THAT(store->BeginAttempt(3), IsOk());
    EXPECT_FALSE(HasMark());
  }
  EXPECT_FALSE(HasMark()) << "an attempt was left open";
  EXPECT_TRUE(LooksAtEverything());
  {
    auto store = Open();
    ASSERT_THAT(store->MarkStep(1, ToHex(first_.attempt.bytes), StepState::kDamaged, "x"), IsOk());
    EXPECT_FALSE(HasMark());
  }
  EXPECT_TRUE(HasMark());
}

TEST_F(CleanCloseTest, CostsASaveNothingButTheFirst) {
  MakeSteps();
  auto store = Open();
  files_.Reset();
  // The looks at whether the store is still where it was opened come before either.
  const auto operations = [this] {
    std::vector<std::string> changes = files_.operations();
    std::erase(changes, "Identify");
    return changes;
  };
  CommitStep(*store, 3, 300);
  const auto first = operations();
  files_.Reset();
  CommitStep(*store, 4, 400);
  // The mark is taken back, synced, and with it the name of the log that RocksDB began when it was opened.
  std::vector<std::string> expected = {"WriteAt", "SyncData", "SyncDirectory"};
  for (const std::string& operation : operations()) expected.push_back(operation);
  EXPECT_EQ(first, expected);
}

TEST_F(CleanCloseTest, IsNoticedWhereAnAttemptFailed) {
  {
    auto store = Open();
    auto identity = store->BeginAttempt(1);
    ASSERT_THAT(identity, IsOk());
    store->AbandonAttempt(*identity, absl::Now(), absl::InternalError("EIO"));
  }
  EXPECT_FALSE(LooksAtEverything()) << "nothing is left of it";
  {
    auto store = Open();
    auto identity = store->BeginAttempt(2);
    ASSERT_THAT(identity, IsOk());
    files_.FailOperation("RemoveDirectory", absl::InternalError("EIO"));
    store->AbandonAttempt(*identity, absl::Now(), absl::InternalError("EIO"));
  }
  EXPECT_FALSE(LooksAtEverything()) << "nothing is left of it after a second try";
  {
    auto store = Open();
    auto identity = store->BeginAttempt(2);
    ASSERT_THAT(identity, IsOk());
    files_.FailOperation("SyncDirectory", absl::InternalError("EIO"));
    store->AbandonAttempt(*identity, absl::Now(), absl::InternalError("EIO"));
  }
  EXPECT_TRUE(LooksAtEverything());
  {
    auto store = Open();
    const ShardIdentity identity = WriteAttempt(*store, 3, 300);
    files_.FailOperation("SyncDirectory", absl::InternalError("EIO"));
    EXPECT_THAT(Commit(*store, identity), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  }
  EXPECT_TRUE(LooksAtEverything());
  EXPECT_EQ(ValueAt(*Open(), 3), 300);
}

TEST_F(CleanCloseTest, NoticesEveryNameThatChangedInSteps) {
  MakeSteps();
  const std::string folder = layout_.attempt(1, first_.attempt);
  const std::string aside = directory_ / "aside";
  const auto expect_noticed = [&](const std::function<void()>& change) {
    EXPECT_FALSE(LooksAtEverything());
    change();
    EXPECT_TRUE(LooksAtEverything());
  };
  // One right after the other, so that the clock that files are stamped with has little time to move on.
  for (int i = 0; i < 5; ++i) {
    expect_noticed([&] { fs::rename(folder, aside); });
    EXPECT_THAT(warnings_, HasSubstr("step 1 is lost"));
    expect_noticed([&] { fs::rename(aside, folder); });
    EXPECT_EQ(ValueAt(*Open(), 1), 100);
  }
  expect_noticed([&] { fs::create_directory(layout_.steps() + "/notes"); });
  expect_noticed([&] { fs::remove(layout_.steps() + "/notes"); });
}

TEST_F(CleanCloseTest, NoticesACopyThatLacksAStepThoughItsTimesWereKept) {
  MakeSteps();
  const std::string original = directory_ / "original";
  fs::rename(layout_.steps(), original);
  fs::copy(original, layout_.steps(), fs::copy_options::recursive);
  fs::remove_all(layout_.attempt(1, first_.attempt));
  fs::last_write_time(layout_.steps(), fs::last_write_time(original));
  EXPECT_TRUE(LooksAtEverything());
  EXPECT_THAT(warnings_, HasSubstr("step 1 is lost"));
}

TEST_F(CleanCloseTest, IsNotRecordedWhereThatFailsAndSaysSo) {
  for (const char* operation : {"SyncDirectory", "StampDirectory"}) {
    {
      auto store = Open();
      CommitStep(*store, 1, 100);
      files_.FailOperation(operation, absl::InternalError("EIO"));
    }
    EXPECT_THAT(warnings_, HasSubstr("the next start checks every step"));
    std::unique_ptr<Store> store;
    EXPECT_TRUE(LooksAtEverything(&store));
    EXPECT_EQ(ValueAt(*store, 1), 100);
    CommitStep(*store, 1, 101);
    CommitStep(*store, 1, 100);
  }
}

TEST_F(CleanCloseTest, LooksAtEverythingWhereTheClockSaysNothing) {
  MakeSteps();
  files_.Reset();
  files_.FailOperation("StampDirectory", absl::UnavailableError("the clock is behind"));
  {
    auto store = OpenStore(path_, &warnings_, files_);
    ASSERT_THAT(store, IsOk());
    EXPECT_EQ(ValueAt(**store, 1), 100);
  }
  // An error of any other kind says nothing at all.
  files_.FailOperation("StampDirectory", absl::InternalError("EIO"));
  EXPECT_THAT(OpenStore(path_, &warnings_, files_), StatusIs(absl::StatusCode::kInternal, HasSubstr("EIO")));
  files_.Reset();
  EXPECT_EQ(ValueAt(*Open(), 1), 100);
}

TEST_F(CleanCloseTest, IsNotThereForASecondLookAtWhatWasLeftAlone) {
  MakeSteps();
  std::fstream shard;
  {
    auto store = Open();
    const ShardIdentity newer = WriteAttempt(*store, 3, 300);
    shard.open(layout_.shard(3, newer.attempt, 0, 1), std::ios::in | std::ios::out | std::ios::binary);
  }
  const auto set_version = [&](char version) {
    shard.seekp(8);
    shard.put(version);
    shard.flush();
  };
  set_version(99);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(LooksAtEverything());
    EXPECT_THAT(warnings_, HasSubstr("left alone"));
  }
  set_version(1);
  EXPECT_EQ(ValueAt(*Open(), 3), 300);
}

TEST_F(CleanCloseTest, FinishesDeletionsAllTheSame) {
  MakeSteps();
  {
    auto store = Open();
    files_.FailOperation("RemoveDirectory", absl::InternalError("EIO"));
    CommitStep(*store, 1, 101);
    EXPECT_TRUE(fs::exists(layout_.attempt(1, first_.attempt)));
  }
  EXPECT_FALSE(LooksAtEverything());
  EXPECT_FALSE(fs::exists(layout_.attempt(1, first_.attempt)));
  EXPECT_FALSE(LooksAtEverything());
}

TEST_F(CleanCloseTest, IsFollowedByARepairOfIndicesThatWereFoundWrong) {
  MakeSteps();
  {
    auto database = Database::Open(PosixFileSystem(), layout_.manifest());
    ASSERT_THAT(database, IsOk());
    rocksdb::WriteBatch batch;
    batch.Put(CommittedKey(77), "");
    ASSERT_THAT((*database)->Write(batch), IsOk());
  }
  {
    // Whoever opens the database begins a new list of its files.
    auto manifest = Manifest::Open(PosixFileSystem(), layout_.manifest());
    ASSERT_THAT(manifest, IsOk());
    ASSERT_THAT((*manifest)->SetSettledMark(*PosixFileSystem().StampDirectory(layout_.steps())), IsOk());
  }
  {
    auto store = Open();
    EXPECT_THAT(store->manifest().Committed(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("does not agree")));
  }
  std::unique_ptr<Store> store;
  EXPECT_TRUE(LooksAtEverything(&store));
  EXPECT_EQ(warnings_, "the manifest's indices did not match its records: 1 keys were corrected\n");
  EXPECT_EQ(store->manifest().Committed()->size(), 2u);
}

// Such a library leaves tags out of the records that it writes, and closes the store in good order.
TEST_F(CleanCloseTest, LooksAtEverythingBehindALibraryThatKnowsNoTags) {
  MakeSteps();
  ASSERT_THAT(Open()->Tag(1, "v1"), IsOk());
  EXPECT_FALSE(LooksAtEverything());
  for (const bool knows_tags : {true, false}) {
    SCOPED_TRACE(knows_tags);
    {
      auto manifest = Manifest::Open(PosixFileSystem(), layout_.manifest());
      ASSERT_THAT(manifest, IsOk());
      auto record = (*manifest)->Find(1);
      ASSERT_TRUE(record.ok() && record->has_value());
      (*record)->info.tags.clear();
      ASSERT_THAT((*manifest)->Update(**record), IsOk());
    }
    {
      auto database = Database::Open(PosixFileSystem(), layout_.manifest());
      ASSERT_THAT(database, IsOk());
      const SettledMark mark{.steps = *PosixFileSystem().StampDirectory(layout_.steps()),
                             .files = (*database)->SettleList(),
                             .tags = knows_tags};
      rocksdb::WriteBatch batch;
      batch.Put(std::string(kSettledKey), EncodeSettledMark(mark));
      ASSERT_THAT((*database)->Write(batch), IsOk());
    }
    std::unique_ptr<Store> store;
    EXPECT_EQ(LooksAtEverything(&store), !knows_tags);
    const auto record = store->manifest().Find(1);
    ASSERT_TRUE(record.ok() && record->has_value());
    EXPECT_EQ((*record)->info.tags.size(), knows_tags ? 0u : 1u);
  }
  EXPECT_FALSE(LooksAtEverything());
}

// A store with steps 1 to 4, closed in good order. Each of its records, and each index key of metric `kLongName`, has a
// block of a table to itself.
class DamagedManifestTest : public CleanCloseTest {
 protected:
  void SetUp() override {
    {
      auto store = Open();
      for (int64_t step : {1, 2, 3, 4}) {
        const ShardIdentity identity = WriteAttempt(*store, step, 100 * step);
        auto attempt = ReadAttempt(files_, layout_, store->id(), {step, identity.attempt});
        ASSERT_THAT(attempt, IsOk());
        attempt->record.info.user_metadata = Marker(step) + std::string(kBlockBytes, 'x');
        attempt->record.info.metrics[kLongName] = static_cast<double>(step);
        ASSERT_THAT(store->CommitAttempt(attempt->record), IsOk());
      }
    }
    Open();  // makes a table of the log
    ASSERT_TRUE(HasMark());
  }

  static std::string Marker(int64_t step) { return "the metadata of step " + std::to_string(step); }

  // Flips one bit of `text`, wherever the manifest's tables have it.
  void Damage(const std::string& text) {
    size_t found = 0;
    for (const auto& entry : fs::directory_iterator(layout_.manifest())) {
      if (entry.path().extension() != ".sst") continue;
      std::fstream table(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
      const std::string bytes{std::istreambuf_iterator<char>(table), std::istreambuf_iterator<char>()};
      const size_t at = bytes.find(text);
      if (at == std::string::npos) continue;
      table.seekp(static_cast<std::streamoff>(at));
      table.put(static_cast<char>(text[0] ^ 1));
      ASSERT_TRUE(table.good());
      ++found;
    }
    ASSERT_GT(found, 0u);
  }

  // Opens the store twice, the manifest being rebuilt by the first.
  void ExpectRebuilt() {
    for (const bool first : {true, false}) {
      std::unique_ptr<Store> store;
      EXPECT_EQ(LooksAtEverything(&store), first);
      EXPECT_EQ(warnings_.find("the manifest cannot be read and is rebuilt") != std::string::npos, first);
      for (int64_t step : {1, 2, 3, 4}) EXPECT_EQ(ValueAt(*store, step), 100 * step) << step;
      auto best = store->manifest().FindBest("loss", BestMode::kHighest);
      ASSERT_THAT(best, IsOk());
      EXPECT_EQ((*best)->info.step, 4);
    }
  }

  static constexpr size_t kBlockBytes = 8192;
  const std::string kLongName = std::string(kBlockBytes, 'm');
};

TEST_F(DamagedManifestTest, IsRebuiltAtOnceWhereItIsTheNewestRecord) {
  Damage(Marker(4));
  ExpectRebuilt();
}

TEST_F(DamagedManifestTest, IsRebuiltByTheStartAfterTheOneThatFoundIt) {
  Damage(Marker(2));
  {
    std::unique_ptr<Store> store;
    EXPECT_FALSE(LooksAtEverything(&store));
    EXPECT_FALSE(store->manifest().damage_found());
    EXPECT_THAT(store->manifest().Find(2), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("manifest")));
    EXPECT_TRUE(store->manifest().damage_found());
    EXPECT_TRUE(HasMark());
  }
  EXPECT_FALSE(HasMark());
  ExpectRebuilt();
}

TEST_F(DamagedManifestTest, IsRebuiltWhereASaveFoundIt) {
  Damage(Marker(2));
  {
    auto store = Open();
    const ShardIdentity identity = WriteAttempt(*store, 2, 200);
    EXPECT_THAT(Commit(*store, identity), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("manifest")));
    store->AbandonAttempt(identity, absl::Now(), absl::DataLossError("x"));
  }
  EXPECT_FALSE(HasMark());
  ExpectRebuilt();
}

TEST_F(DamagedManifestTest, IsRebuiltWhereOnlyAnIndexIsDamaged) {
  Damage(MetricKey(kLongName, 4, 4));
  {
    auto store = Open();
    EXPECT_THAT(store->manifest().FindBest(kLongName, BestMode::kHighest), StatusIs(absl::StatusCode::kDataLoss, _));
  }
  ExpectRebuilt();
}

TEST_F(DamagedManifestTest, IsRebuiltWhereTheDatabaseTakesNoMoreWrites) {
  Damage(Marker(2));
  {
    auto store = Open();
    EXPECT_THAT(store->manifest().Find(2), StatusIs(absl::StatusCode::kDataLoss, _));
    UnwritableFiles unwritable;
    store.reset();
  }
  EXPECT_TRUE(HasMark());
  EXPECT_EQ(warnings_, "");
  ExpectRebuilt();
}

// The mark does not hold, for it was written with another list of the database's files.
TEST_F(DamagedManifestTest, IsRebuiltAlsoWhereStepsCannotBeWrittenTo) {
  Damage(Marker(2));
  {
    auto store = Open();
    EXPECT_THAT(store->manifest().Find(2), StatusIs(absl::StatusCode::kDataLoss, _));
    files_.FailOperation("CreateDirectory", absl::InternalError("EIO"));
    UnwritableFiles unwritable;
    store.reset();
  }
  EXPECT_TRUE(HasMark());
  EXPECT_THAT(warnings_, HasSubstr("the next start may not repair it"));
  ExpectRebuilt();
}

}  // namespace
}  // namespace tidemark::storage
