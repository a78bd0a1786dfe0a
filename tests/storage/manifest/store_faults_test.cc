// Opening a store under every single fault of its disk, RocksDB's calls included, be it that it was closed in good
// order, that a kill left work to be done, or that its manifest must be rebuilt: it opens or says what failed, and what
// it is made of the next time does not depend on the fault. The same of tags, which are given and taken wholly.

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/inbox.h"
#include "tests/storage/io/copy_in_use.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/fault_sweep.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/manifest/test_store.h"

namespace tidemark::storage {
namespace {

namespace fs = std::filesystem;

class StoreFaultsTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string warnings;
    {
      auto store = OpenStore(path_, &warnings);
      ASSERT_THAT(store, IsOk());
      for (const int64_t step : {1, 2, 3, 4}) steps_.push_back(CommitStep(**store, step, 100 * step));
      ASSERT_THAT((*store)->Pin(1, "a person's"), IsOk());
      Evaluation evaluation;
      evaluation.evaluator = "validation";
      evaluation.metrics = {{"accuracy", 0.5}};
      ASSERT_THAT(
          RecordOwn(PosixFileSystem(), **store,
                    {.store = (*store)->id(), .step = 2, .attempt = steps_[1].attempt, .evaluation = evaluation}),
          IsOk());
    }
    settled_ = directory_ / "settled";
    fs::copy(path_, settled_, fs::copy_options::recursive);
    // Copied while it is open, as a kill would leave it: an attempt to adopt, one to remove, files to delete and files
    // to go on keeping.
    auto store = OpenStore(path_, &warnings);
    ASSERT_THAT(store, IsOk());
    CommitStep(**store, 3, 303);
    WriteAttempt(**store, 5, 500);
    const ShardIdentity torn = WriteAttempt(**store, 6, 600);
    fs::resize_file(layout_.shard(6, torn.attempt, 0, 1), 5000);
    auto failed = (*store)->BeginAttempt(7);
    ASSERT_THAT(failed, IsOk());
    killed_ = directory_ / "killed";
    ASSERT_NO_FATAL_FAILURE(CopyInUse(path_, killed_));
    fs::copy(layout_.steps() + "/" + StepFolderName(4, steps_[3].attempt),
             killed_ + "/steps/" + StepFolderName(8, steps_[3].attempt), fs::copy_options::recursive);
  }

  void Use(const std::string& kept) {
    fs::remove_all(path_);
    fs::copy(kept, path_, fs::copy_options::recursive);
  }

  absl::Status Open() {
    warnings_.clear();
    return OpenStore(path_, &warnings_, files_).status();
  }

  // All that the store says of its steps, and what they hold; of a pin not the words, which a disk that does not give
  // them out may cost (JoinPinOfFolder warns then).
  std::string Contents() {
    std::string warnings;
    auto store = OpenStore(path_, &warnings);
    if (!store.ok()) return store.status().ToString();
    std::string all;
    absl::Status status = (*store)->manifest().ForEach([&](StepRecord record) {
      const StepInfo& info = record.info;
      all +=
          fmt::format("step {} {} {} sequence {} pinned {} rows {} metrics {}\n", info.step, StepStateName(info.state),
                      info.attempt, info.sequence, info.pinned, info.evaluations.size(), fmt::join(info.metrics, ", "));
      return true;
    });
    for (const int64_t step : {1, 2, 3, 4, 5, 6, 7, 8}) all += fmt::format("{} ", ValueAt(**store, step));
    all += fmt::format("\n{}, {} marked deletions\n", status.ToString(), (*store)->manifest().Deletions()->size());
    for (const std::string& folder : {layout_.steps(), layout_.quarantine()}) {
      auto entries = PosixFileSystem().ListDirectory(folder);
      if (!entries.ok()) continue;
      for (const DirectoryEntry& entry : *entries) all += entry.name + "\n";
    }
    return all;
  }

  // `one_of`: how many of the faults are run, for there are thousands; see SweepFaults.
  FaultFigures Sweep(const std::string& name, size_t one_of, const std::function<void()>& prepare,
                     bool one_thread = true) {
    prepare();
    const std::string expected = Contents();
    EXPECT_THAT(expected, testing::HasSubstr("100 200 "));
    return SweepFaults(files_,
                       {.name = name,
                        .prepare = prepare,
                        .act = [&] { return Open(); },
                        .check =
                            [&](const absl::Status& status, const InjectedFault& fault) {
                              EXPECT_TRUE(status.ok() || fault.Explains(status));
                              EXPECT_EQ(Contents(), expected) << warnings_;
                            },
                        .one_thread = one_thread},
                       FaultsToRun(one_of));
  }

  const TestDirectory directory_ = TestDirectory::InMemory();
  const std::string path_ = directory_ / "store";
  const StoreLayout layout_{path_};
  FailingFileSystem files_{PosixFileSystem()};
  std::vector<ShardIdentity> steps_;
  std::string warnings_;  // of the last Open
  std::string settled_;
  std::string killed_;
};

TEST_F(StoreFaultsTest, ReopeningInGoodOrderChangesNothing) {
  Use(settled_);
  ASSERT_THAT(Open(), IsOk());
  // Each opening leaves a table, and sooner or later a thread of RocksDB's makes one of them.
  EXPECT_TRUE(Sweep(
                  "reopen", 6, [] {}, /*one_thread=*/false)
                  .any_reported());
}

TEST_F(StoreFaultsTest, RecoveryFromAKillIsTheSameAfterAFault) {
  EXPECT_TRUE(Sweep("recovery", 8, [&] { Use(killed_); }).any_reported());
}

TEST_F(StoreFaultsTest, ARebuildIsTheSameAfterAFault) {
  const auto prepare = [&] {
    Use(killed_);
    fs::remove_all(layout_.manifest());
  };
  EXPECT_TRUE(Sweep("rebuild", 20, prepare).any_reported());
}

TEST_F(StoreFaultsTest, ARebuildBesideADamagedManifestIsTheSameAfterAFault) {
  const auto prepare = [&] {
    Use(settled_);
    std::ofstream(layout_.manifest() + "/CURRENT") << "garbage";
  };
  EXPECT_TRUE(Sweep("rebuild beside a damaged manifest", 20, prepare).any_reported());
}

// Step 2 gets a tag; step 1, which a person has pinned, loses the one that it has.
TEST_F(StoreFaultsTest, TagsAreGivenAndTakenWhollyOrWhatFailedIsSaid) {
  using Tags = std::vector<std::string>;
  const std::string tagged = directory_ / "tagged";
  const std::string killed = directory_ / "killed with tags";
  Use(settled_);
  {
    auto store = OpenSoundStore(path_, &warnings_);
    ASSERT_NE(store, nullptr);
    ASSERT_THAT(store->Tag(1, "old"), IsOk());
  }
  fs::copy(path_, tagged, fs::copy_options::recursive);
  // What was said to be done is; what was not may be.
  const auto expect_tags = [&](const std::string& path, bool is_given, bool is_taken) {
    const auto store = OpenSoundStore(path, &warnings_);
    ASSERT_NE(store, nullptr);
    const auto one = store->manifest().Find(1);
    const auto two = store->manifest().Find(2);
    ASSERT_THAT(one, IsOk());
    ASSERT_THAT(two, IsOk());
    const StepInfo& untagged = (*one)->info;
    EXPECT_TRUE(untagged.pinned);
    EXPECT_EQ(untagged.pin_note, "a person's");
    EXPECT_TRUE(untagged.tags.empty() || (!is_taken && untagged.tags == Tags{"old"}));
    const StepInfo& given = (*two)->info;
    EXPECT_TRUE(given.tags == Tags{"v1"} || (!is_given && given.tags.empty()));
    EXPECT_EQ(given.pinned, !given.tags.empty());
  };
  std::unique_ptr<Store> store;
  absl::Status given;
  absl::Status taken;
  const auto figures = SweepFaults(files_,
                                   {.name = "tag and untag",
                                    .prepare =
                                        [&] {
                                          Use(tagged);
                                          store = OpenSoundStore(path_, &warnings_, files_);
                                          ASSERT_NE(store, nullptr);
                                        },
                                    .act =
                                        [&] {
                                          given = store->Tag(2, "v1");
                                          taken = store->Untag(1, "old");
                                          absl::Status status = given;
                                          status.Update(taken);
                                          return status;
                                        },
                                    .check =
                                        [&](const absl::Status&, const InjectedFault& fault) {
                                          EXPECT_TRUE(given.ok() || fault.Explains(given)) << given;
                                          EXPECT_TRUE(taken.ok() || fault.Explains(taken)) << taken;
                                          // As a kill would leave it.
                                          ASSERT_NO_FATAL_FAILURE(CopyInUse(path_, killed));
                                          ASSERT_NO_FATAL_FAILURE(expect_tags(killed, given.ok(), taken.ok()));
                                          ASSERT_THAT(store->Tag(2, "v1"), IsOk());
                                          ASSERT_THAT(store->Untag(1, "old"), IsOk());
                                          store.reset();
                                          ASSERT_NO_FATAL_FAILURE(expect_tags(path_, true, true));
                                          fs::remove_all(layout_.manifest());
                                          ASSERT_NO_FATAL_FAILURE(expect_tags(path_, true, true));
                                        },
                                    .one_thread = true},
                                   FaultsToRun(4));
  EXPECT_TRUE(figures.any_reported());
}

}  // namespace
}  // namespace tidemark::storage
