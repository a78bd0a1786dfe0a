// A store is a directory and not a path: it stays the one that was opened, whatever happens to the process, to the
// directory's name, or to names in it. The cases are those of SQLite's list of ways to corrupt a database, as far as
// they apply here. A program of its own, for it changes the current directory of the whole process.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/file_system.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/surroundings/keep_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/store_reader.h"
#include "tidemark/worker.h"

namespace tidemark {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::HasSubstr;

// A trainer with its checkpointer.
class Trainer {
 public:
  explicit Trainer(const std::string& directory, CheckpointerOptions options = {}) {
    options.directory = directory;
    options.observer = NoWarnings();
    auto opened = AsyncCheckpointer::Open(std::move(options));
    EXPECT_THAT(opened, IsOk());
    if (opened.ok()) checkpointer_ = *std::move(opened);
  }

  absl::Status Save(int64_t step) {
    trainer_.SetTo(step);
    auto save = checkpointer_->Save(step, trainer_.state);
    return save.ok() ? save->committed().Wait() : save.status();
  }
  AsyncCheckpointer& checkpointer() { return *checkpointer_; }
  TestTrainer& trainer() { return trainer_; }

 private:
  TestTrainer trainer_{1000};
  std::unique_ptr<AsyncCheckpointer> checkpointer_;
};

class StoreDirectoryTest : public testing::Test {
 protected:
  StoreDirectoryTest() {
    for (const char* name : {"one", "two"}) fs::create_directory(directory_ / name);
  }
  ~StoreDirectoryTest() override { fs::current_path("/"); }

  // A closed store with steps up to this one.
  static void MakeStore(const std::string& directory, int64_t last) {
    Trainer run(directory);
    for (int64_t step = 1; step <= last; ++step) ASSERT_THAT(run.Save(step), IsOk());
    ASSERT_THAT(run.checkpointer().Close(), IsOk());
  }
  static void ExpectLatest(const std::string& directory, int64_t step) {
    Trainer run(directory);
    ASSERT_THAT(run.checkpointer().RestoreLatest(run.trainer().state), IsOk());
    EXPECT_TRUE(run.trainer().IsAt(step)) << directory << " is at " << run.trainer().epoch;
  }
  static auto FilesOf(const std::string& directory) {
    return storage::ReadTree(storage::PosixFileSystem(), directory).files;
  }

  const storage::TestDirectory directory_;
};

TEST_F(StoreDirectoryTest, StaysTheOneThatWasOpenedWhenTheProcessChangesItsDirectory) {
  KeepDirectory();
  MakeStore(directory_ / "two/ckpt", 3);
  const auto other = FilesOf(directory_ / "two/ckpt");
  fs::current_path(directory_ / "one");
  {
    Trainer run("ckpt", {.metrics_file = "metrics.prom"});
    ASSERT_THAT(run.Save(1), IsOk());
    fs::current_path(directory_ / "two");
    fs::remove(directory_ / "one/metrics.prom");
    for (int64_t step = 2; step <= 10; ++step) ASSERT_THAT(run.Save(step), IsOk());
    ASSERT_THAT(run.checkpointer().Pin(5, "kept"), IsOk());
    ASSERT_THAT(run.checkpointer().ReportMetrics(5, "validation", {{"loss", 0.5}}).Wait(), IsOk());
    ASSERT_THAT(run.checkpointer().Close(), IsOk());
  }
  EXPECT_TRUE(fs::exists(directory_ / "one/metrics.prom"));
  EXPECT_FALSE(fs::exists(directory_ / "two/metrics.prom"));
  EXPECT_EQ(FilesOf(directory_ / "two/ckpt"), other);
  ExpectLatest(directory_ / "one/ckpt", 10);
}

TEST_F(StoreDirectoryTest, StaysTheOneThatWasOpenedWhileAThreadChangesTheDirectory) {
  KeepDirectory();
  MakeStore(directory_ / "two/ckpt", 3);
  const auto other = FilesOf(directory_ / "two/ckpt");
  fs::current_path(directory_ / "one");
  std::atomic<bool> stop = false;
  {
    Trainer run("./ckpt", {.retention = {.max_to_keep = 2}});
    std::thread wanderer([&] {
      while (!stop) {
        for (const char* place : {"two", "one"}) fs::current_path(directory_ / place);
      }
    });
    for (int64_t step = 1; step <= 20; ++step) {
      EXPECT_THAT(run.Save(step), IsOk());
      EXPECT_THAT(run.checkpointer().ReportMetrics(step, "validation", {{"loss", 1.0 / step}}).Wait(), IsOk());
      EXPECT_THAT(run.checkpointer().RestoreLatest(run.trainer().state), IsOk());
    }
    EXPECT_THAT(run.checkpointer().Close(), IsOk());
    stop = true;
    wanderer.join();
  }
  EXPECT_EQ(FilesOf(directory_ / "two/ckpt"), other);
  ExpectLatest(directory_ / "one/ckpt", 20);
}

// What is done to the store one/ckpt, which a trainer has open, beside two/ckpt, another one, which is closed.
struct Harm {
  std::string name;
  std::function<void(const std::string& store, const std::string& other)> act;
  std::string store_after = "one/ckpt";  // where the trainer's store is then; empty: nowhere
  // What of the other store must stay as it is, and where that is then.
  std::string part = "";
  std::string part_after = "two/ckpt";
};

void PrintTo(const Harm& harm, std::ostream* out) { *out << harm.name; }

class HarmedStoreTest : public StoreDirectoryTest, public testing::WithParamInterface<Harm> {};

TEST_P(HarmedStoreTest, AcknowledgesNothingMoreAndLeavesWhatIsThereAlone) {
  const Harm& harm = GetParam();
  const std::string store = directory_ / "one/ckpt";
  const std::string other = directory_ / "two/ckpt";
  const auto part = [](const std::string& path) {
    auto files = FilesOf(path);
    files.erase("/LOCK");  // one case replaces it
    return files;
  };
  MakeStore(other, 3);
  const auto before = part(other + harm.part);
  Trainer run(store);
  ASSERT_THAT(run.Save(1), IsOk());
  ASSERT_THAT(run.Save(2), IsOk());
  ASSERT_THAT(run.checkpointer().AddEvaluator({.name = "test"},
                                              [](const Snapshot&) {
                                                return Metrics{{"loss", 1}};
                                              }),
              IsOk());
  harm.act(store, other);
  const auto moved = StatusIs(StatusCode::kFailedPrecondition,
                              HasSubstr("the store " + store + " was moved or replaced while it was open"));
  for (int64_t step = 3; step <= 5; ++step) {
    EXPECT_THAT(run.Save(step), moved);
    run.checkpointer().CheckForErrors().IgnoreError();
  }
  EXPECT_THAT(run.checkpointer().Pin(1, "kept"), moved);
  EXPECT_THAT(run.checkpointer().Unpin(1), moved);
  EXPECT_THAT(run.checkpointer().Tag(1, "paper"), moved);
  EXPECT_THAT(run.checkpointer().Delete(1), moved);
  EXPECT_THAT(run.checkpointer().DiscardAfter(1).status(), moved);
  EXPECT_THAT(run.checkpointer().Evaluate(6, run.trainer().state).status(), IsOk());
  EXPECT_THAT(run.checkpointer().WaitUntilEvaluated(), moved);
  const Future report = run.checkpointer().ReportMetrics(1, "validation", {{"loss", 0.5}});
  run.checkpointer().Close().IgnoreError();
  EXPECT_THAT(report.Wait(), testing::Not(IsOk()));
  EXPECT_EQ(part(directory_ / harm.part_after), before);
  for (const std::string& replaced : {store + "/steps", store + "/journal"}) {
    if (!fs::exists(replaced + ".old")) continue;
    fs::remove_all(replaced);
    fs::rename(replaced + ".old", replaced);
  }
  if (!harm.store_after.empty()) ExpectLatest(directory_ / harm.store_after, 2);
}

// The next round of the housekeeping thread may be a second away, or a minute: nothing here waits for Close.
TEST_P(HarmedStoreTest, IsAnErrorOfReportsOfTidyAndOfNewEvaluators) {
  const Harm& harm = GetParam();
  const std::string store = directory_ / "one/ckpt";
  MakeStore(directory_ / "two/ckpt", 3);
  Trainer run(store, {.tuning = {.poll_interval = absl::Hours(1)}});
  ASSERT_THAT(run.Save(1), IsOk());
  harm.act(store, directory_ / "two/ckpt");
  const auto moved = StatusIs(StatusCode::kFailedPrecondition,
                              HasSubstr("the store " + store + " was moved or replaced while it was open"));
  const auto evaluate = [](const Snapshot&) -> absl::StatusOr<Verdict> { return Verdict(); };
  EXPECT_THAT(run.checkpointer().ReportMetrics(1, "validation", {{"loss", 0.5}}).Wait(), moved);
  EXPECT_THAT(run.checkpointer().ReportMetrics(9, "validation", {{"loss", 0.5}}).Wait(), moved) << "no such step";
  for (int i = 0; i < 3; ++i) EXPECT_THAT(run.checkpointer().Tidy(), moved);
  EXPECT_THAT(run.checkpointer().AddEvaluator({.name = "validation", .best = {{"loss", BestMode::kLowest}}}, evaluate),
              moved);
  EXPECT_THAT(run.checkpointer().AddEvaluator({.name = "validation"}, evaluate), moved);
  EXPECT_THAT(run.checkpointer().Close(), IsOk()) << "nothing was lost that was not told";
}

TEST_F(StoreDirectoryTest, TakesReportsAgainOnceItIsMovedBack) {
  const std::string store = directory_ / "one/ckpt";
  Trainer run(store);
  ASSERT_THAT(run.Save(1), IsOk());
  fs::rename(store, store + ".old");
  EXPECT_THAT(run.checkpointer().ReportMetrics(1, "validation", {{"loss", 0.5}}).Wait(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("was moved or replaced")));
  fs::rename(store + ".old", store);
  EXPECT_THAT(run.checkpointer().ReportMetrics(1, "validation", {{"loss", 0.25}}).Wait(), IsOk());
  EXPECT_THAT(run.checkpointer().Tidy(), IsOk());
  EXPECT_EQ(run.checkpointer().LatestStep()->metrics.at("validation/loss"), 0.25);
  EXPECT_THAT(run.checkpointer().Close(), IsOk());
}

INSTANTIATE_TEST_SUITE_P(All, HarmedStoreTest,
                         testing::Values(Harm{"Renamed", [](auto& store, auto&) { fs::rename(store, store + ".old"); },
                                              "one/ckpt.old"},
                                         Harm{"Replaced",
                                              [](auto& store, auto& other) {
                                                fs::rename(store, store + ".old");
                                                fs::rename(other, store);
                                              },
                                              "one/ckpt.old", "", "one/ckpt"},
                                         Harm{"ReplacedByALinkToItself",
                                              [](auto& store, auto&) {
                                                fs::rename(store, store + ".old");
                                                fs::create_directory_symlink(store + ".old", store);
                                              },
                                              "one/ckpt.old"},
                                         // The very LOCK is in the other one, too.
                                         Harm{"ReplacedByACopyWithHardLinks",
                                              [](auto& store, auto& other) {
                                                fs::remove(other + "/LOCK");
                                                fs::create_hard_link(store + "/LOCK", other + "/LOCK");
                                                fs::rename(store, store + ".old");
                                                fs::rename(other, store);
                                              },
                                              "one/ckpt.old", "", "one/ckpt"},
                                         Harm{"ParentRenamed",
                                              [](auto& store, auto&) {
                                                const fs::path parent = fs::path(store).parent_path();
                                                fs::rename(parent, parent.string() + ".old");
                                              },
                                              "one.old/ckpt"},
                                         Harm{"Removed", [](auto& store, auto&) { fs::remove_all(store); }, ""},
                                         Harm{"LockRemoved", [](auto& store, auto&) { fs::remove(store + "/LOCK"); }},
                                         Harm{"LockReplaced",
                                              [](auto& store, auto&) {
                                                fs::remove(store + "/LOCK");
                                                std::ofstream(store + "/LOCK") << "another";
                                              }},
                                         Harm{"StepsReplaced",
                                              [](auto& store, auto&) {
                                                fs::rename(store + "/steps", store + "/steps.old");
                                                fs::create_directory(store + "/steps");
                                              }},
                                         Harm{"JournalReplacedByAnotherStores",
                                              [](auto& store, auto& other) {
                                                fs::rename(store + "/journal", store + "/journal.old");
                                                fs::rename(other + "/journal", store + "/journal");
                                              },
                                              "one/ckpt", "/journal", "one/ckpt/journal"}),
                         [](const auto& info) { return info.param.name; });

TEST_F(StoreDirectoryTest, IsNotOpenedByAnotherPathWhileItIsOpen) {
  const std::string store = directory_ / "one/ckpt";
  const Trainer run(store);
  fs::create_directory_symlink(directory_ / "one", directory_ / "link");
  for (const std::string& path : {directory_ / "link/ckpt", directory_ / "one/../one/./ckpt"}) {
    EXPECT_THAT(AsyncCheckpointer::Open({.directory = path}).status(),
                StatusIs(StatusCode::kUnavailable, HasSubstr("is open for writing elsewhere")));
  }
}

TEST_F(StoreDirectoryTest, OutlivesTheLinkThatItWasOpenedBy) {
  MakeStore(directory_ / "two/ckpt", 3);
  const auto other = FilesOf(directory_ / "two/ckpt");
  fs::create_directory_symlink(directory_ / "one/ckpt", directory_ / "link");
  Trainer run(directory_ / "link");
  ASSERT_THAT(run.Save(1), IsOk());
  fs::remove(directory_ / "link");
  fs::create_directory_symlink(directory_ / "two/ckpt", directory_ / "link");
  ASSERT_THAT(run.Save(2), IsOk());
  ASSERT_THAT(run.checkpointer().Close(), IsOk());
  EXPECT_EQ(FilesOf(directory_ / "two/ckpt"), other);
  ExpectLatest(directory_ / "one/ckpt", 2);
}

// Locks of fcntl(2) would be gone with the first descriptor that is closed.
TEST_F(StoreDirectoryTest, StaysLockedWhenOtherCodeClosesTheLocksFile) {
  Trainer run(directory_ / "one/ckpt");
  { std::ifstream lock(directory_ / "one/ckpt/LOCK"); }
  EXPECT_THAT(AsyncCheckpointer::Open({.directory = directory_ / "one/ckpt"}).status(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("is open for writing elsewhere")));
  EXPECT_THAT(run.Save(1), IsOk());
}

TEST_F(StoreDirectoryTest, StaysLockedAndWritableWhenTheProcessForks) {
  Trainer run(directory_ / "one/ckpt");
  ASSERT_THAT(run.Save(1), IsOk());
  EXPECT_EQ(storage::InChildBesideThreads([] { return "ends"; }), "ends");
  EXPECT_THAT(AsyncCheckpointer::Open({.directory = directory_ / "one/ckpt"}).status(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("is open for writing elsewhere")));
  EXPECT_THAT(run.Save(2), IsOk());
}

TEST_F(StoreDirectoryTest, ItsReaderGoesOnReadingItAndSaysThatItWasReplaced) {
  KeepDirectory();
  MakeStore(directory_ / "one/ckpt", 2);
  MakeStore(directory_ / "two/ckpt", 3);
  fs::current_path(directory_ / "one");
  const auto reader = StoreReader::Open("ckpt");
  ASSERT_THAT(reader, IsOk());
  const auto epoch = (*reader)->ReadEntry(2, "epoch");
  ASSERT_THAT(epoch, IsOk());
  fs::current_path(directory_ / "two");
  EXPECT_EQ(*(*reader)->ReadEntry(2, "epoch"), *epoch);
  EXPECT_THAT((*reader)->Refresh(), IsOk());
  fs::rename(directory_ / "one/ckpt", directory_ / "one/ckpt.old");
  fs::rename(directory_ / "two/ckpt", directory_ / "one/ckpt");
  EXPECT_EQ(*(*reader)->ReadEntry(2, "epoch"), *epoch);
  EXPECT_THAT((*reader)->Refresh(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("was moved or replaced")));
  auto step = (*reader)->OpenStep(2);
  ASSERT_THAT(step, IsOk()) << "the reader goes, what it has opened stays";
}

TEST_F(StoreDirectoryTest, ItsWorkerEndsWhereItWasReplaced) {
  KeepDirectory();
  MakeStore(directory_ / "one/ckpt", 2);
  MakeStore(directory_ / "two/ckpt", 3);
  const auto other = FilesOf(directory_ / "two/ckpt");
  fs::current_path(directory_ / "one");
  std::vector<int64_t> steps;
  const auto report = FollowStore({.directory = "ckpt", .evaluator = "validation"},
                                  [&](const Snapshot& snapshot) -> absl::StatusOr<Verdict> {
                                    steps.push_back(snapshot.step());
                                    fs::current_path("/");
                                    if (snapshot.step() == 2) {
                                      fs::rename(directory_ / "one/ckpt", directory_ / "one/ckpt.old");
                                      fs::rename(directory_ / "two/ckpt", directory_ / "one/ckpt");
                                    }
                                    return Metrics{{"loss", 0.5}};
                                  });
  EXPECT_THAT(report, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("was moved or replaced")));
  EXPECT_THAT(steps, testing::ElementsAre(1, 2));
  EXPECT_EQ(FilesOf(directory_ / "one/ckpt"), other) << "a report went into the other store";
}

TEST(StoreOfAKilledTrainer, IsOpenedAtOnceThoughAForkedChildLives) {
  const storage::TestDirectory directory;
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);  // the child lives until the other end is closed
  ASSERT_EQ(storage::InProgram(FORKING_TRAINER, {directory / "store"}), "killed by signal 9");
  const auto opened = AsyncCheckpointer::Open({.directory = directory / "store", .observer = NoWarnings()});
  ASSERT_THAT(opened, IsOk());
  EXPECT_EQ((*opened)->LatestStep()->step, 1);
  close(ends[1]);
}

}  // namespace
}  // namespace tidemark
