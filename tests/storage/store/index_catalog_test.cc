// An index that fails while it is asked: the journal answers, and the next opening makes a damaged index anew.

#include "storage/store/index_catalog.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/errno_status.h"
#include "storage/store/index_state.h"
#include "storage/store/lease.h"
#include "storage/store/rebuild.h"
#include "storage/store/step_changes.h"
#include "storage/store/store_journal.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/catalog_testing.h"

namespace tidemark::storage {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr StoreId kIndexedStore{{5}};
constexpr int64_t kIndexedSteps = 100;

StepRecord IndexedRecord(int64_t step) {
  StepRecord record = CommittedRecord(step);
  if (step > 1) record.references = {{.step = 1, .attempt = AttemptId{{1}}}};
  return record;
}

// With steps 1 to 100; 50 was replaced. The index has some of them in a table.
class IndexCatalogTest : public testing::Test {
 protected:
  IndexCatalogTest() {
    const auto journal = Open();
    for (int64_t step = 1; step <= kIndexedSteps; ++step) Commit(*journal, IndexedRecord(step));
    StepRecord again = IndexedRecord(50);
    again.info.attempt = AttemptOf(200);
    Commit(*journal, again);
    const DeletionRequestFact request{
        .id = std::string(32, 'a'), .step = 7, .attempt = IndexedRecord(7).info.attempt, .reason = "by hand"};
    EXPECT_THAT(journal->Change([&](const StepCatalog&) -> absl::StatusOr<Facts> {
      return Facts{BestModesFact{{{"loss", BestMode::kLowest}}}, request,
                   PhasesFact{{.step = 7, .attempt = IndexedRecord(7).info.attempt, .phases = {{.name = "write"}}}}};
    }),
                IsOk());
    // The next opening writes the table.
  }

  std::unique_ptr<StoreJournal> Open() {
    auto journal = StoreJournal::Open(
        files_, layout_, kIndexedStore,
        {.holder = true, .warn = [this](std::string_view line) {
           absl::MutexLock lock(&mutex_);
           warnings_.emplace_back(line);
         }});
    EXPECT_THAT(journal, IsOk());
    return journal.ok() ? *std::move(journal) : nullptr;
  }

  static void Commit(StoreJournal& journal, const StepRecord& record) {
    EXPECT_THAT(journal.Change([&](const StepCatalog& catalog) {
      return CommitFacts(catalog, record, nullptr, [](std::string_view) {});
    }),
                IsOk());
  }

  static void ExpectAnswers(const StepCatalog& catalog) {
    EXPECT_EQ(catalog.last_sequence(), static_cast<uint64_t>(kIndexedSteps));
    ExpectAnswersThatMayFail(catalog, /*deletions=*/1);
  }

  static void ExpectAnswersThatMayFail(const StepCatalog& catalog, size_t deletions) {
    std::vector<int64_t> all(kIndexedSteps);
    std::iota(all.begin(), all.end(), 1);
    EXPECT_EQ(StepsOf(catalog), all);
    EXPECT_EQ((*catalog.Find(7))->info.sequence, 7u);
    EXPECT_EQ((*catalog.FindAtOrBelow(1000))->info.step, kIndexedSteps);
    EXPECT_EQ((*catalog.FindCommittedAtOrBelow(60))->info.step, 60);
    EXPECT_THAT(*catalog.Committed(), SizeIs(kIndexedSteps));
    EXPECT_EQ(*catalog.LatestCommitted(), kIndexedSteps);
    EXPECT_EQ((*catalog.FindBest("loss", BestMode::kLowest))->info.step, kIndexedSteps);
    EXPECT_THAT(*catalog.RecordedBestModes(), SizeIs(1));
    EXPECT_THAT(*catalog.Phases(7, IndexedRecord(7).info.attempt), SizeIs(1));
    EXPECT_TRUE(*catalog.IsReferenced(AttemptId{{1}}));
    EXPECT_THAT(*catalog.Deletions(), SizeIs(deletions));
    EXPECT_THAT(*catalog.Requests(), SizeIs(1));
  }

  // From now on the tables of the index cannot be read.
  void FailTables() {
    files_.SetRule([](const FailingFileSystem::Call& call) {
      const bool fails = call.operation == "ReadAt" && call.path.ends_with(".sst");
      return fails ? ErrnoStatus(EIO, "read", call.path) : absl::OkStatus();
    });
  }

  TestDirectory directory_;
  const StoreLayout layout_{directory_.path()};
  FailingFileSystem files_{PosixFileSystem()};
  absl::Mutex mutex_;  // of the warnings, while several threads ask
  std::vector<std::string> warnings_;
};

// Of an index that RocksDB has thrown an exception in, so that it answers nothing any more.
TEST_F(IndexCatalogTest, EachQuestionIsAnsweredByTheCatalogInItsPlace) {
  if (kAddressSanitizer) GTEST_SKIP() << "what RocksDB loses to an exception is a leak";
  MemoryCatalog memory;
  const std::vector<Fact> facts = *FactsOf(Open()->catalog());
  memory.Apply(facts);
  auto index = Manifest::Create(files_, directory_ / "failing", kIndexedStore);
  ASSERT_THAT(index, IsOk());
  files_.SetRule([](const FailingFileSystem::Call&) -> absl::Status { throw std::bad_alloc(); });
  EXPECT_FALSE((*index)->Apply({.number = 1}, facts).ok());
  files_.Reset();
  const StepCatalog* instead = &memory;
  int replaced = 0;
  const IndexCatalog catalog(*std::move(index), [&](const absl::Status& why) {
    ++replaced;
    EXPECT_THAT(why, StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("not used any more")));
    return instead;
  });
  ExpectAnswersThatMayFail(catalog, /*deletions=*/0);
  EXPECT_EQ(replaced, 12);
  instead = nullptr;
  EXPECT_THAT(catalog.Find(7), StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("not used any more")));
}

TEST_F(IndexCatalogTest, AllThreadsThatAskAreAnswered) {
  const auto journal = Open();
  FailTables();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int64_t step = 1; step <= kIndexedSteps; ++step) {
        EXPECT_EQ((*journal->catalog().Find(step))->info.sequence, static_cast<uint64_t>(step));
      }
    });
  }
  Commit(*journal, IndexedRecord(kIndexedSteps + 1));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*journal->catalog().LatestCommitted(), kIndexedSteps + 1);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the index cannot be used any more, so the journal is read")));
}

TEST_F(IndexCatalogTest, AChangeThatMeetsAFailureIsMadeOnTheJournal) {
  const auto journal = Open();
  FailTables();
  EXPECT_THAT(journal->Change([](const StepCatalog& catalog) { return PinFacts(catalog, 7, "keep", std::nullopt); }),
              IsOk());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the index cannot be used any more")));
  EXPECT_TRUE((*journal->catalog().Find(7))->info.pinned);
}

TEST_F(IndexCatalogTest, ADamagedIndexAnswersRightlyAndIsMadeAnew) {
  Open();
  std::string table;
  for (const auto& entry : fs::directory_iterator(layout_.index())) {
    const std::string path = entry.path();
    if (path.ends_with(".sst") && (table.empty() || fs::file_size(path) > fs::file_size(table))) table = path;
  }
  ASSERT_FALSE(table.empty());
  std::ofstream(layout_.index() + "/mark") << "x";
  ASSERT_THAT(MarkIndexClosed(files_, layout_.index(), *files_.Identify(layout_.index())), IsOk());
  // In the middle, so that some records are read before the damage.
  std::fstream file(table, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(fs::file_size(table) / 2));
  file.write("????", 4);
  file.close();
  ExpectAnswers(Open()->catalog());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the index cannot be used any more")));
  warnings_.clear();
  ExpectAnswers(Open()->catalog());
  EXPECT_FALSE(fs::exists(layout_.index() + "/mark"));
  EXPECT_THAT(warnings_, IsEmpty());
}

// As after a kill in the making of an index in the place of a damaged one.
TEST_F(IndexCatalogTest, AnIndexWhoseRemovalWasCutShortIsNotBelieved) {
  Open();
  for (const auto& entry : fs::directory_iterator(layout_.index())) {
    if (!entry.path().filename().string().starts_with("MANIFEST")) continue;
    std::ofstream(entry.path()) << std::string(fs::file_size(entry.path()), 'x');
  }
  ASSERT_THAT(MarkIndexOpen(files_, layout_.index(), BootId()), IsOk());
  ASSERT_TRUE(*IsIndexBelieved(files_, layout_.index(), BootId()));
  int removed = 0;
  files_.SetRule([&](const FailingFileSystem::Call& call) {
    const bool removes = call.operation == "RemoveFile" && call.path.starts_with(layout_.index() + "/") &&
                         !call.path.ends_with("/state.tmp");
    return removes && removed++ > 0 ? absl::InternalError("EIO") : absl::OkStatus();
  });
  ExpectAnswers(Open()->catalog());
  EXPECT_GT(removed, 1);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("is made anew"), HasSubstr("cannot be written")));
  files_.Reset();
  EXPECT_FALSE(*IsIndexBelieved(files_, layout_.index(), BootId()));
  ExpectAnswers(Open()->catalog());
}

}  // namespace
}  // namespace tidemark::storage
