// A journal with its catalog: changes of several processes, each a handle of its own here, and what an opening makes of
// an index in whatever state.

#include "storage/store/store_journal.h"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/index_state.h"
#include "storage/store/lease.h"
#include "storage/store/step_changes.h"
#include "tests/storage/io/failing_file_system.h"
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

constexpr StoreId kStore{{5}};

class StoreJournalTest : public testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<StoreJournal>> TryOpen(bool holder, FileSystem& files = PosixFileSystem()) {
    return StoreJournal::Open(files, layout_, kStore, {.holder = holder, .warn = [this](std::string_view line) {
                                                         warnings_.emplace_back(line);
                                                       }});
  }
  std::unique_ptr<StoreJournal> OpenHolder() { return TryOpen(/*holder=*/true).value(); }
  std::unique_ptr<StoreJournal> OpenTool() { return TryOpen(/*holder=*/false).value(); }

  static absl::Status CommitStep(StoreJournal& journal, int64_t step) {
    return journal.Change([&](const StepCatalog& catalog) {
      return CommitFacts(catalog, CommittedRecord(step), nullptr, [](std::string_view) {});
    });
  }

  static absl::Status PinStep(StoreJournal& journal, int64_t step, std::string_view note = "") {
    return journal.Change([&](const StepCatalog& catalog) { return PinFacts(catalog, step, note, std::nullopt); });
  }

  static std::vector<int64_t> StepsOf(StoreJournal& journal) { return storage::StepsOf(journal.catalog()); }

  static bool IsPinned(StoreJournal& journal, int64_t step) {
    const auto record = journal.catalog().Find(step);
    EXPECT_THAT(record, IsOk());
    return record.ok() && record->has_value() && (*record)->info.pinned;
  }

  TestDirectory directory_;
  const StoreLayout layout_{directory_.path()};
  std::vector<std::string> warnings_;
};

TEST_F(StoreJournalTest, KeepsWhatWasChanged) {
  {
    const auto holder = OpenHolder();
    EXPECT_EQ(holder->epoch(), 1u);
    ASSERT_THAT(CommitStep(*holder, 10), IsOk());
    ASSERT_THAT(PinStep(*holder, 10, "keep"), IsOk());
    EXPECT_THAT(StepsOf(*holder), ElementsAre(10));
  }
  const auto holder = OpenHolder();
  EXPECT_EQ(holder->epoch(), 2u);
  EXPECT_THAT(StepsOf(*holder), ElementsAre(10));
  EXPECT_TRUE(IsPinned(*holder, 10));
  EXPECT_EQ(holder->catalog().last_sequence(), 10u);
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(StoreJournalTest, IsNotFoundByAToolBeforeThereIsAnyStore) {
  EXPECT_THAT(TryOpen(/*holder=*/false), StatusIs(absl::StatusCode::kNotFound, testing::_));
}

TEST_F(StoreJournalTest, AppendsNothingWhereNothingChanges) {
  const auto holder = OpenHolder();
  ASSERT_THAT(CommitStep(*holder, 1), IsOk());
  ASSERT_THAT(PinStep(*holder, 1), IsOk());
  const auto tool = OpenTool();
  ASSERT_THAT(PinStep(*tool, 1), IsOk());
  const absl::StatusOr<bool> looked = holder->Look();
  ASSERT_THAT(looked, IsOk());
  EXPECT_FALSE(*looked);
}

TEST_F(StoreJournalTest, GivesOutTheErrorOfWhatIsRefused) {
  const auto holder = OpenHolder();
  EXPECT_THAT(PinStep(*holder, 7), StatusIs(absl::StatusCode::kNotFound, HasSubstr("step 7")));
}

TEST_F(StoreJournalTest, ShowsWhatAToolHasAppendedBesideATrainer) {
  const auto holder = OpenHolder();
  ASSERT_THAT(CommitStep(*holder, 1), IsOk());
  const auto tool = OpenTool();
  EXPECT_THAT(StepsOf(*tool), ElementsAre(1));
  ASSERT_THAT(PinStep(*tool, 1, "by hand"), IsOk());
  EXPECT_TRUE(IsPinned(*tool, 1));
  EXPECT_FALSE(IsPinned(*holder, 1));
  EXPECT_THAT(holder->Look(), IsOk());
  EXPECT_TRUE(IsPinned(*holder, 1));
  const std::vector<Fact> news = holder->TakeNews();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(std::get<PinFact>(news[0]).note, "by hand");
  EXPECT_THAT(holder->TakeNews(), IsEmpty());
  // Its own facts are no news.
  ASSERT_THAT(CommitStep(*holder, 2), IsOk());
  EXPECT_THAT(holder->Look(), IsOk());
  EXPECT_THAT(holder->TakeNews(), IsEmpty());
}

TEST_F(StoreJournalTest, ChecksAChangeAgainstWhatAnotherHasAppendedMeanwhile) {
  const auto holder = OpenHolder();
  ASSERT_THAT(CommitStep(*holder, 1), IsOk());
  ASSERT_THAT(CommitStep(*holder, 2), IsOk());
  const auto tool = OpenTool();
  // While the holder is about to delete step 1, a tool pins it.
  int calls = 0;
  NotedSteps noted;
  EXPECT_THAT(holder->Change([&](const StepCatalog& catalog) -> absl::StatusOr<Facts> {
    if (++calls == 1) {
      EXPECT_THAT(PinStep(*tool, 1), IsOk());
    }
    const StepNote note{.step = 1, .attempt = AttemptOf(1), .deleted = true, .reason = "by the rules"};
    return NoteFacts(catalog, {&note, 1}, std::nullopt, 1000, noted);
  }),
              IsOk());
  EXPECT_EQ(calls, 3) << "once more after a fresh look, because no entry follows from it";
  EXPECT_THAT(noted.deleted, IsEmpty());
  EXPECT_TRUE(IsPinned(*holder, 1));
}

TEST_F(StoreJournalTest, FollowsAJournalThatWasMadeAnew) {
  const auto worker = [&] {
    const auto holder = OpenHolder();
    EXPECT_THAT(CommitStep(*holder, 1), IsOk());
    EXPECT_THAT(CommitStep(*holder, 2), IsOk());
    return OpenTool();
  }();
  fs::rename(layout_.journal(), layout_.journal() + ".broken");
  fs::remove_all(layout_.index());
  EXPECT_THAT(worker->Look(), StatusIs(absl::StatusCode::kNotFound, testing::_));
  ASSERT_THAT(CommitStep(*OpenHolder(), 1), IsOk());
  // A change is checked against the new one, and appended to it.
  EXPECT_THAT(PinStep(*worker, 2), StatusIs(absl::StatusCode::kNotFound, testing::_));
  EXPECT_THAT(StepsOf(*worker), ElementsAre(1));
  EXPECT_THAT(PinStep(*worker, 1), IsOk());
  EXPECT_TRUE(IsPinned(*OpenTool(), 1));
}

TEST_F(StoreJournalTest, FencesAnOlderHolder) {
  const auto older = OpenHolder();
  ASSERT_THAT(CommitStep(*older, 1), IsOk());
  // As where a lock does not reach: on another machine, with an index of its own.
  fs::rename(layout_.index(), layout_.directory() + "/index-of-the-older");
  const auto newer = OpenHolder();
  EXPECT_EQ(newer->epoch(), 2u);
  EXPECT_THAT(CommitStep(*older, 2), StatusIs(absl::StatusCode::kAborted, testing::_));
  ASSERT_THAT(CommitStep(*newer, 3), IsOk());
  EXPECT_THAT(StepsOf(*newer), ElementsAre(1, 3));
  EXPECT_THAT(StepsOf(*OpenTool()), ElementsAre(1, 3));
}

TEST_F(StoreJournalTest, MakesAnIndexAnewThatIsGone) {
  ASSERT_THAT(CommitStep(*OpenHolder(), 1), IsOk());
  fs::remove_all(layout_.index());
  EXPECT_THAT(StepsOf(*OpenHolder()), ElementsAre(1));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(StoreJournalTest, MakesAnIndexAnewThatIsDamaged) {
  ASSERT_THAT(CommitStep(*OpenHolder(), 1), IsOk());
  for (const auto& file : fs::directory_iterator(layout_.index())) {
    const size_t size = fs::file_size(file.path());
    if (file.path().filename().string().starts_with("MANIFEST")) std::ofstream(file.path()) << std::string(size, 'x');
  }
  EXPECT_THAT(StepsOf(*OpenHolder()), ElementsAre(1));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the index cannot be used and is made anew")));
}

TEST_F(StoreJournalTest, MakesAnIndexAnewOfWhichItIsNotKnownWhetherItIsWhole) {
  ASSERT_THAT(CommitStep(*OpenHolder(), 1), IsOk());
  std::ofstream(layout_.index() + "/mark") << "x";
  // After a power loss, say.
  ASSERT_THAT(MarkIndexOpen(PosixFileSystem(), layout_.index(), "an earlier boot"), IsOk());
  EXPECT_THAT(StepsOf(*OpenHolder()), ElementsAre(1));
  EXPECT_FALSE(fs::exists(layout_.index() + "/mark"));
  EXPECT_THAT(warnings_, IsEmpty()) << "it is no fault";
}

TEST_F(StoreJournalTest, KeepsTheIndexOfAKilledProcess) {
  {
    const auto holder = OpenHolder();
    ASSERT_THAT(CommitStep(*holder, 1), IsOk());
    fs::copy(layout_.index(), layout_.directory() + "/as-killed", fs::copy_options::recursive);
  }
  fs::remove_all(layout_.index());
  fs::rename(layout_.directory() + "/as-killed", layout_.index());
  ASSERT_THAT(MarkIndexOpen(PosixFileSystem(), layout_.index(), BootId()), IsOk());
  std::ofstream(layout_.index() + "/mark") << "x";
  EXPECT_THAT(StepsOf(*OpenHolder()), ElementsAre(1));
  EXPECT_TRUE(fs::exists(layout_.index() + "/mark"));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(StoreJournalTest, MakesAnIndexAnewThatIsOfAnotherHistory) {
  {
    const auto holder = OpenHolder();
    for (const int64_t step : {1, 2, 3}) ASSERT_THAT(CommitStep(*holder, step), IsOk());
  }
  // The journal is another one, with as many entries.
  fs::rename(layout_.journal(), layout_.directory() + "/other");
  fs::rename(layout_.index(), layout_.directory() + "/index-of-other");
  {
    const auto holder = OpenHolder();
    for (const int64_t step : {7, 8, 9}) ASSERT_THAT(CommitStep(*holder, step), IsOk());
  }
  fs::remove_all(layout_.index());
  fs::rename(layout_.directory() + "/index-of-other", layout_.index());
  EXPECT_THAT(StepsOf(*OpenHolder()), ElementsAre(7, 8, 9));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("made anew")));
}

TEST_F(StoreJournalTest, BringsAnIndexUpToDateThatIsBehind) {
  { ASSERT_THAT(CommitStep(*OpenHolder(), 1), IsOk()); }
  fs::copy(layout_.index(), layout_.directory() + "/earlier", fs::copy_options::recursive);
  { ASSERT_THAT(CommitStep(*OpenHolder(), 2), IsOk()); }
  fs::remove_all(layout_.index());
  fs::rename(layout_.directory() + "/earlier", layout_.index());
  EXPECT_THAT(StepsOf(*OpenHolder()), ElementsAre(1, 2));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(StoreJournalTest, MakesAnIndexAnewThatIsOfAnotherStore) {
  { ASSERT_THAT(CommitStep(*OpenHolder(), 1), IsOk()); }
  const TestDirectory elsewhere;
  const StoreLayout other(elsewhere.path());
  {
    auto holder =
        StoreJournal::Open(PosixFileSystem(), other, StoreId{{6}}, {.holder = true, .warn = [](std::string_view) {}});
    ASSERT_THAT(holder, IsOk());
    ASSERT_THAT(CommitStep(**holder, 2), IsOk());
  }
  fs::remove_all(layout_.index());
  fs::copy(other.index(), layout_.index(), fs::copy_options::recursive);
  EXPECT_THAT(StepsOf(*OpenHolder()), ElementsAre(1));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("of another store")));
}

TEST_F(StoreJournalTest, RefusesTheJournalOfAnotherStore) {
  { ASSERT_THAT(CommitStep(*OpenHolder(), 1), IsOk()); }
  for (const bool holder : {false, true}) {
    fs::remove_all(layout_.index());
    EXPECT_THAT(StoreJournal::Open(PosixFileSystem(), layout_, StoreId{{6}},
                                   {.holder = holder, .warn = [](std::string_view) {}}),
                StatusIs(absl::StatusCode::kDataLoss, HasSubstr("journal entry 1: the journal belongs to store 05")));
  }
  EXPECT_THAT(StepsOf(*OpenHolder()), ElementsAre(1));
}

// As on a disk that is full for everything but what the journal has set aside.
absl::Status RefuseIndex(const FailingFileSystem::Call& call) {
  const bool writes = call.operation == "Create" || call.operation == "WriteAt" || call.operation == "CreateDirectory";
  if (!writes || call.path.find("/index") == std::string::npos) return absl::OkStatus();
  return absl::ResourceExhaustedError("no room");
}

TEST_F(StoreJournalTest, ReadsTheJournalIntoMemoryWhereTheIndexCannotBeMade) {
  { ASSERT_THAT(CommitStep(*OpenHolder(), 1), IsOk()); }
  fs::remove_all(layout_.index());
  FailingFileSystem files(PosixFileSystem());
  files.SetRule(RefuseIndex);
  auto holder = TryOpen(/*holder=*/true, files);
  ASSERT_THAT(holder, IsOk());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the index cannot be written, so the journal is read into memory")));
  EXPECT_THAT(StepsOf(**holder), ElementsAre(1));
  ASSERT_THAT(CommitStep(**holder, 2), IsOk());
  EXPECT_THAT(StepsOf(**holder), ElementsAre(1, 2));
  ASSERT_THAT(PinStep(*OpenTool(), 2), IsOk());
  ASSERT_THAT((*holder)->Look(), IsOk());
  EXPECT_TRUE(IsPinned(**holder, 2));
}

TEST_F(StoreJournalTest, TellsAToolTheNewsIfItAsks) {
  const auto holder = OpenHolder();
  ASSERT_THAT(CommitStep(*holder, 1), IsOk());
  const auto tool =
      StoreJournal::Open(PosixFileSystem(), layout_, kStore, {.collects_news = true, .warn = [](auto) {}});
  ASSERT_THAT(tool, IsOk());
  const auto other = OpenTool();
  EXPECT_THAT((*tool)->TakeNews(), IsEmpty()) << "from Open on";
  ASSERT_THAT(PinStep(*holder, 1, "by hand"), IsOk());
  // Its own change takes them in, too.
  ASSERT_THAT(PinStep(**tool, 1, "again"), IsOk());
  const std::vector<Fact> news = (*tool)->TakeNews();
  ASSERT_THAT(news, SizeIs(1));
  EXPECT_EQ(std::get<PinFact>(news[0]).note, "by hand");
  EXPECT_THAT(other->Look(), IsOk());
  EXPECT_THAT(other->TakeNews(), IsEmpty());
}

TEST_F(StoreJournalTest, GoesOnInMemoryWhereTheIndexCannotBeWrittenAnyMore) {
  FailingFileSystem files(PosixFileSystem());
  auto holder = TryOpen(/*holder=*/true, files);
  ASSERT_THAT(holder, IsOk());
  ASSERT_THAT(CommitStep(**holder, 1), IsOk());
  files.SetRule(RefuseIndex);
  // Own facts, and then those of another process.
  ASSERT_THAT(CommitStep(**holder, 2), IsOk());
  EXPECT_THAT(StepsOf(**holder), ElementsAre(1, 2));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the index cannot be used any more")));
  EXPECT_THAT((*holder)->TakeNews(), IsEmpty());
  ASSERT_THAT(PinStep(*OpenTool(), 1), IsOk());
  ASSERT_THAT((*holder)->Look(), IsOk());
  EXPECT_TRUE(IsPinned(**holder, 1));
  EXPECT_THAT((*holder)->TakeNews(), SizeIs(1));
  // The index is brought up to date by the next process.
  holder->reset();
  files.Reset();
  EXPECT_THAT(StepsOf(*OpenHolder()), ElementsAre(1, 2));
}

TEST_F(StoreJournalTest, GoesOnInMemoryWhereTheIndexCannotTakeInNews) {
  FailingFileSystem files(PosixFileSystem());
  auto holder = TryOpen(/*holder=*/true, files);
  ASSERT_THAT(holder, IsOk());
  ASSERT_THAT(CommitStep(**holder, 1), IsOk());
  ASSERT_THAT(PinStep(*OpenTool(), 1), IsOk());
  files.SetRule(RefuseIndex);
  ASSERT_THAT((*holder)->Look(), IsOk());
  EXPECT_TRUE(IsPinned(**holder, 1));
  EXPECT_THAT((*holder)->TakeNews(), SizeIs(1));
}

// A fact of a kind that this library does not know, as a newer one appends it.
void AppendUnknownFact(const StoreLayout& layout) {
  auto journal = Journal::Open(PosixFileSystem(), layout.journal(), JournalPlace());
  ASSERT_THAT(journal, IsOk());
  ASSERT_THAT((*journal)->Look([](const KnownEntry&, bool) {}), IsOk());
  ASSERT_TRUE((*journal)->Append({.facts = {"\x7f\x01"}}, [](const JournalView&) { return absl::OkStatus(); }).ok());
}

TEST_F(StoreJournalTest, PassesOverNoFactThatItDoesNotKnow) {
  const auto holder = OpenHolder();
  const auto tool = OpenTool();
  ASSERT_THAT(CommitStep(*holder, 1), IsOk());
  AppendUnknownFact(layout_);
  for (StoreJournal* journal : {holder.get(), tool.get()}) {
    for (int i = 0; i < 3; ++i) {
      EXPECT_THAT(journal->Look(), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("journal entry")));
      EXPECT_THAT(PinStep(*journal, 1), StatusIs(absl::StatusCode::kUnimplemented, testing::_));
    }
    EXPECT_FALSE(IsPinned(*journal, 1));
  }
  // What was known stays.
  EXPECT_THAT(StepsOf(*holder), ElementsAre(1));
  EXPECT_THAT(TryOpen(/*holder=*/false), StatusIs(absl::StatusCode::kUnimplemented, testing::_));
}

TEST_F(StoreJournalTest, KeepsItsCatalogWhereTheJournalCannotBeReadAgain) {
  FailingFileSystem files(PosixFileSystem());
  auto holder = TryOpen(/*holder=*/true, files);
  ASSERT_THAT(holder, IsOk());
  for (const int64_t step : {1, 2, 3}) ASSERT_THAT(CommitStep(**holder, step), IsOk());
  // An entry that the index has applied is damaged, and then the index cannot be written any more.
  fs::resize_file(layout_.journal() + "/0000/00/0000000002", 10);
  files.SetRule(RefuseIndex);
  EXPECT_THAT(CommitStep(**holder, 4), IsOk());
  EXPECT_THAT(warnings_,
              ElementsAre(HasSubstr("the index cannot be used any more"), HasSubstr("cannot be read just now")));
  EXPECT_THAT(StepsOf(**holder), ElementsAre(1, 2, 3));
  EXPECT_THAT(CommitStep(**holder, 5), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("entry 2")));
  EXPECT_EQ(*(*holder)->catalog().LatestCommitted(), 3);
}

TEST_F(StoreJournalTest, LeavesAnIndexAloneThatCannotBeReadJustNow) {
  { ASSERT_THAT(CommitStep(*OpenHolder(), 1), IsOk()); }
  FailingFileSystem files(PosixFileSystem());
  files.SetRule([](const FailingFileSystem::Call& call) {
    const bool fails = call.operation == "OpenForRead" && call.path.find("/index") != std::string::npos;
    return fails ? absl::ResourceExhaustedError("no descriptors") : absl::OkStatus();
  });
  {
    auto holder = TryOpen(/*holder=*/true, files);
    ASSERT_THAT(holder, IsOk());
    EXPECT_THAT(StepsOf(**holder), ElementsAre(1));
    EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the index cannot be used just now")));
  }
  warnings_.clear();
  EXPECT_THAT(StepsOf(*OpenHolder()), ElementsAre(1));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(StoreJournalTest, TakesChangesOfManyProcessesAtOnce) {
  const auto holder = OpenHolder();
  constexpr int kProcesses = 4;
  constexpr int kChanges = 16;
  for (int64_t step = 1; step <= kProcesses; ++step) ASSERT_THAT(CommitStep(*holder, step), IsOk());
  std::vector<std::unique_ptr<StoreJournal>> tools;
  for (int i = 0; i < kProcesses; ++i) tools.push_back(OpenTool());
  std::vector<std::thread> threads;
  for (int i = 0; i < kProcesses; ++i) {
    threads.emplace_back([&, i] {
      for (int change = 0; change < kChanges; ++change) {
        EXPECT_THAT(tools[i]->Change([&](const StepCatalog& catalog) {
          return TagFacts(catalog, 1, fmt::format("{}-{}", i, change), std::nullopt);
        }),
                    IsOk());
      }
    });
  }
  for (int64_t step = 100; step < 120; ++step) EXPECT_THAT(CommitStep(*holder, step), IsOk());
  for (std::thread& thread : threads) thread.join();
  ASSERT_THAT(holder->Look(), IsOk());
  const auto record = holder->catalog().Find(1);
  ASSERT_THAT(record, IsOk());
  // All of the 64 that a step may have; none that was acknowledged is lost.
  EXPECT_THAT((*record)->info.tags, SizeIs(64));
  EXPECT_THAT(StepsOf(*holder), SizeIs(kProcesses + 20));
}

TEST_F(StoreJournalTest, ForgetsGarbageUntilTheIndexIsMadeAnew) {
  {
    const auto holder = OpenHolder();
    ASSERT_THAT(CommitStep(*holder, 1), IsOk());
    StepRecord again = CommittedRecord(1);
    again.info.attempt = AttemptOf(9);
    ASSERT_THAT(holder->Change([&](const StepCatalog& catalog) {
      return CommitFacts(catalog, again, nullptr, [](std::string_view) {});
    }),
                IsOk());
    auto deletions = holder->catalog().Deletions();
    ASSERT_THAT(deletions, IsOk());
    ASSERT_THAT(*deletions, SizeIs(1));
    EXPECT_EQ(ToHex((*deletions)[0].attempt.bytes), AttemptOf(1));
    holder->ForgetGarbage({&(*deletions)[0].attempt, 1});
    EXPECT_THAT(*holder->catalog().Deletions(), IsEmpty());
  }
  EXPECT_THAT(*OpenHolder()->catalog().Deletions(), IsEmpty());
  fs::remove_all(layout_.index());
  EXPECT_THAT(*OpenHolder()->catalog().Deletions(), SizeIs(1));
}

// A caller that removes garbage until there is none comes to an end.
TEST_F(StoreJournalTest, ForgetsGarbageWhereTheIndexCannotBeWritten) {
  FailingFileSystem files(PosixFileSystem());
  auto holder = TryOpen(/*holder=*/true, files);
  ASSERT_THAT(holder, IsOk());
  ASSERT_THAT(CommitStep(**holder, 1), IsOk());
  StepRecord again = CommittedRecord(1);
  again.info.attempt = AttemptOf(9);
  ASSERT_THAT((*holder)->Change([&](const StepCatalog& catalog) {
    return CommitFacts(catalog, again, nullptr, [](std::string_view) {});
  }),
              IsOk());
  files.SetRule(RefuseIndex);
  const std::vector<DeletionRecord> deletions = *(*holder)->catalog().Deletions();
  ASSERT_THAT(deletions, SizeIs(1));
  (*holder)->ForgetGarbage({&deletions[0].attempt, 1});
  EXPECT_THAT(*(*holder)->catalog().Deletions(), IsEmpty());
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the index cannot be used any more")));
}

}  // namespace
}  // namespace tidemark::storage
