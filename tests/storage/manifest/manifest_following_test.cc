// Manifests that are followed while somebody else writes them.

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rocksdb/db.h"
#include "storage/manifest/database.h"
#include "storage/manifest/manifest.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/made_records.h"

namespace tidemark::storage {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<int64_t> StepsOf(const Manifest& manifest, int64_t first_step = 0) {
  std::vector<int64_t> steps;
  EXPECT_THAT(manifest.ForEach(
                  [&](const StepRecord& record) {
                    steps.push_back(record.info.step);
                    return true;
                  },
                  first_step),
              IsOk());
  return steps;
}

// Every file below a folder, with size and time of change.
std::map<std::string, std::pair<int64_t, int64_t>> Listing(const std::string& path) {
  std::map<std::string, std::pair<int64_t, int64_t>> files;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    struct stat found = {};
    EXPECT_EQ(stat(entry.path().c_str(), &found), 0);
    files[entry.path().string()] = {found.st_size, found.st_mtim.tv_sec * 1'000'000'000 + found.st_mtim.tv_nsec};
  }
  return files;
}

class ManifestFollowingTest : public testing::Test {
 protected:
  TestDirectory directory_;
  const std::string path_ = directory_ / "manifest";
  const StoreId store_{{7}};
};

TEST_F(ManifestFollowingTest, SeesWhatWasWrittenSinceWhenToldToCatchUp) {
  auto writer = Manifest::Create(PosixFileSystem(), path_, store_);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT((*writer)->Commit(MakeRecord(10, 1)), IsOk());
  auto follower = Manifest::OpenFollowing(PosixFileSystem(), path_);
  ASSERT_THAT(follower, IsOk());
  EXPECT_EQ((*follower)->store_id(), store_);
  EXPECT_THAT((*follower)->CatchUp(), IsOk());
  ASSERT_THAT((*writer)->Commit(MakeRecord(20, 2)), IsOk());
  EXPECT_THAT(StepsOf(**follower), ElementsAre(10));
  EXPECT_EQ((*follower)->last_sequence(), 1u);

  auto changed = (*follower)->CatchUp();
  ASSERT_THAT(changed, IsOk());
  EXPECT_TRUE(*changed);
  EXPECT_THAT(StepsOf(**follower), ElementsAre(10, 20));
  EXPECT_THAT(StepsOf(**follower, 11), ElementsAre(20));
  EXPECT_EQ((*follower)->last_sequence(), 2u);
  changed = (*follower)->CatchUp();
  ASSERT_THAT(changed, IsOk());
  EXPECT_FALSE(*changed);
}

TEST_F(ManifestFollowingTest, SeesChangedRecords) {
  auto writer = Manifest::Create(PosixFileSystem(), path_, store_);
  ASSERT_THAT(writer, IsOk());
  ASSERT_THAT((*writer)->Commit(MakeRecord(10, 1)), IsOk());
  auto follower = Manifest::OpenFollowing(PosixFileSystem(), path_);
  ASSERT_THAT(follower, IsOk());
  StepRecord damaged = MakeRecord(10, 1);
  damaged.info.state = StepState::kDamaged;
  ASSERT_THAT((*writer)->Update(damaged), IsOk());
  EXPECT_TRUE(*(*follower)->CatchUp());
  EXPECT_EQ((*(*follower)->Find(10))->info.state, StepState::kDamaged);
}

TEST_F(ManifestFollowingTest, FollowsAProcessThatWritesTablesMergesThemAndReopens) {
  constexpr int64_t kCommits = 250;
  const std::string command = std::string(MANIFEST_WRITER) + " " + path_ + " " + std::to_string(kCommits);
  FILE* committed = popen(command.c_str(), "r");
  ASSERT_NE(committed, nullptr);
  ASSERT_EQ(std::fgetc(committed), '.');
  auto follower = Manifest::OpenFollowing(PosixFileSystem(), path_);
  ASSERT_THAT(follower, IsOk());
  for (int64_t i = 2; i <= kCommits; ++i) {
    ASSERT_EQ(std::fgetc(committed), '.');
    ASSERT_THAT((*follower)->CatchUp(), IsOk());
    const int64_t last = static_cast<int64_t>((*follower)->last_sequence());
    EXPECT_GE(last, i) << "what was committed before the call";
    // All of them now and then, since that takes a while.
    const int64_t first = i % 25 == 0 ? 1 : std::max<int64_t>(1, last - 3);
    const std::vector<int64_t> steps = StepsOf(**follower, first);
    ASSERT_EQ(static_cast<int64_t>(steps.size()), last - first + 1);
    ASSERT_EQ(steps.back(), last);
  }
  EXPECT_EQ(std::fgetc(committed), EOF);
  EXPECT_EQ(pclose(committed), 0);
}

TEST_F(ManifestFollowingTest, ReadsOnFromTablesThatTheWriterHasRemoved) {
  auto writer = Database::Create(PosixFileSystem(), path_);
  ASSERT_THAT(writer, IsOk());
  const auto put = [&](const std::string& key, const std::string& value) {
    rocksdb::WriteBatch batch;
    batch.Put(key, value);
    return (*writer)->Write(batch);
  };
  const auto merge = [&] {
    return (*writer)->Use([&](rocksdb::DB& db) {
      rocksdb::CompactRangeOptions options;
      options.bottommost_level_compaction = rocksdb::BottommostLevelCompaction::kForce;
      return (*writer)->Translate(db.CompactRange(options, nullptr, nullptr), "merge");
    });
  };
  ASSERT_THAT(put("key", "old"), IsOk());
  ASSERT_THAT(merge(), IsOk());
  auto follower = Database::OpenFollowing(PosixFileSystem(), path_);
  ASSERT_THAT(follower, IsOk());
  const auto tables_before = Listing(path_);
  ASSERT_THAT(put("key", "new"), IsOk());
  // Else a thread of RocksDB's would remove what the merging made useless, and tell nobody.
  const auto removals = [&](auto allow) {
    return (*writer)->Use([&](rocksdb::DB& db) { return (*writer)->Translate(allow(db), "removals"); });
  };
  ASSERT_THAT(removals([](rocksdb::DB& db) { return db.DisableFileDeletions(); }), IsOk());
  ASSERT_THAT(merge(), IsOk());
  ASSERT_THAT(removals([](rocksdb::DB& db) { return db.EnableFileDeletions(/*force=*/true); }), IsOk());
  const auto one_was_removed = [&] {
    return std::any_of(tables_before.begin(), tables_before.end(), [](const auto& file) {
      return file.first.ends_with(".sst") && !std::filesystem::exists(file.first);
    });
  };
  ASSERT_TRUE(one_was_removed()) << "else nothing is tested";
  const auto value = [&] {
    std::string found;
    EXPECT_THAT(
        (*follower)->Use([&](rocksdb::DB& db) { return (*follower)->Translate(db.Get({}, "key", &found), "read"); }),
        IsOk());
    return found;
  };
  EXPECT_EQ(value(), "old");
  EXPECT_TRUE(*(*follower)->CatchUp());
  EXPECT_EQ(value(), "new");
}

TEST_F(ManifestFollowingTest, LeavesNoTrace) {
  {
    auto writer = Manifest::Create(PosixFileSystem(), path_, store_);
    ASSERT_THAT(writer, IsOk());
    // Tables, a log, and files that a database of RocksDB's own would clear away.
    for (uint8_t i = 1; i <= 30; ++i) {
      StepRecord record = MakeRecord(10, i);
      record.info.user_metadata = "{\"padding\": \"" + std::string(40'000, 'x') + "\"}";
      ASSERT_THAT((*writer)->Commit(record), IsOk());
    }
  }
  const auto before = Listing(directory_.path());
  {
    auto follower = Manifest::OpenFollowing(PosixFileSystem(), path_);
    ASSERT_THAT(follower, IsOk());
    EXPECT_THAT((*follower)->CatchUp(), IsOk());
    EXPECT_THAT(StepsOf(**follower), ElementsAre(10));
    EXPECT_EQ(Listing(directory_.path()), before);
  }
  EXPECT_EQ(Listing(directory_.path()), before);
}

TEST_F(ManifestFollowingTest, NeedsNoRightToWrite) {
  if (kThreadSanitizer) GTEST_SKIP() << kNoThreadsInChild;
  {
    auto writer = Manifest::Create(PosixFileSystem(), path_, store_);
    ASSERT_THAT(writer, IsOk());
    ASSERT_THAT((*writer)->Commit(MakeRecord(10, 1)), IsOk());
  }
  using std::filesystem::perms;
  const perms read_only = perms::owner_read | perms::group_read | perms::others_read;
  const perms enter = perms::owner_exec | perms::group_exec | perms::others_exec;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    std::filesystem::permissions(entry.path(), read_only);
  }
  std::filesystem::permissions(path_, read_only | enter);
  std::filesystem::permissions(directory_.path(), read_only | enter);
  const std::string answer = InChild([&]() -> std::string {
    if (!GiveUpRights()) return "may not give up its rights";
    auto follower = Manifest::OpenFollowing(PosixFileSystem(), path_);
    if (!follower.ok()) return follower.status().ToString();
    auto changed = (*follower)->CatchUp();
    if (!changed.ok()) return changed.status().ToString();
    return std::to_string((*follower)->last_sequence());
  });
  std::filesystem::permissions(directory_.path(), perms::owner_all);
  std::filesystem::permissions(path_, perms::owner_all);
  EXPECT_EQ(answer, "1");
}

TEST_F(ManifestFollowingTest, SaysWhetherThereIsOne) {
  EXPECT_THAT(Manifest::OpenFollowing(PosixFileSystem(), path_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
}

// Between the making of the database and its first write.
TEST_F(ManifestFollowingTest, TakesOneThatIsBeingMadeForNone) {
  ASSERT_THAT(Database::Create(PosixFileSystem(), path_), IsOk());
  EXPECT_THAT(Manifest::OpenFollowing(PosixFileSystem(), path_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
  EXPECT_THAT(Manifest::OpenReadOnly(PosixFileSystem(), path_),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
  EXPECT_THAT(Manifest::Open(PosixFileSystem(), path_), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
}

TEST_F(ManifestFollowingTest, TakesUpTheManifestThatARebuildPutInItsPlace) {
  auto writer = Manifest::Create(PosixFileSystem(), path_, store_);
  ASSERT_THAT(writer, IsOk());
  for (uint8_t i = 1; i <= 3; ++i) ASSERT_THAT((*writer)->Commit(MakeRecord(10, i)), IsOk());
  auto follower = Manifest::OpenFollowing(PosixFileSystem(), path_);
  ASSERT_THAT(follower, IsOk());
  writer->reset();
  std::filesystem::rename(path_, path_ + ".broken-1");
  EXPECT_THAT((*follower)->CatchUp(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
  EXPECT_THAT(StepsOf(**follower), ElementsAre(10)) << "as before";
  {
    // As many writes as before: only the database's id tells the two apart.
    auto rebuilt = Manifest::Create(PosixFileSystem(), directory_ / "manifest.new", store_);
    ASSERT_THAT(rebuilt, IsOk());
    for (uint8_t i = 1; i <= 3; ++i) ASSERT_THAT((*rebuilt)->Commit(MakeRecord(20, i)), IsOk());
  }
  std::filesystem::rename(directory_ / "manifest.new", path_);
  auto changed = (*follower)->CatchUp();
  ASSERT_THAT(changed, IsOk());
  EXPECT_TRUE(*changed);
  EXPECT_THAT(StepsOf(**follower), ElementsAre(20));

  auto reopened = Manifest::Open(PosixFileSystem(), path_);
  ASSERT_THAT(reopened, IsOk());
  ASSERT_THAT((*reopened)->Commit(MakeRecord(30, 4)), IsOk());
  EXPECT_TRUE(*(*follower)->CatchUp());
  EXPECT_THAT(StepsOf(**follower), ElementsAre(20, 30));
}

TEST_F(ManifestFollowingTest, RefusesAnotherStoresManifestInItsPlace) {
  { ASSERT_THAT(Manifest::Create(PosixFileSystem(), path_, store_), IsOk()); }
  auto follower = Manifest::OpenFollowing(PosixFileSystem(), path_);
  ASSERT_THAT(follower, IsOk());
  std::filesystem::remove_all(path_);
  { ASSERT_THAT(Manifest::Create(PosixFileSystem(), path_, StoreId{{8}}), IsOk()); }
  EXPECT_THAT((*follower)->CatchUp(),
              StatusIs(absl::StatusCode::kDataLoss, AllOf(HasSubstr(path_), HasSubstr("another store"))));
}

}  // namespace
}  // namespace tidemark::storage
